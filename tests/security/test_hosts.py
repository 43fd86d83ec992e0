"""No web page reads our pages by having its own name point at us (DNS rebinding); whoever asked until now still may."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from benchmarks.simulated.fleet import SimulatedNode
from extender.web.hosts import Hosts
from tests.extender.serving import serving
from tests.security.target import filter_body

NODE = SimulatedNode("n1", "dgx-a100")
OURS = (
    "127.0.0.1",
    "127.0.0.1:8888",
    "[::1]:8888",
    "10.1.2.3:8888",
    "localhost:8888",
    "LOCALHOST",
    "gputopo.localhost",
    "gputopo-extender",
    "gputopo-extender.gputopo-system.svc",
    "gputopo-extender.gputopo-system.svc.cluster.local:8888",
    "10-1-2-3.gputopo-system.pod.cluster.local.",
    "node-7.internal",
    socket.gethostname(),
    "gpus.example.com",
    "a.gpus.example.org:443",
)
THEIRS = (
    "evil.example",
    "evil.example:8888",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "x.svc.evil.example",
    "gpus.example.com.evil.example",
    "[::1",
    "evil.example\xff",
    "1.2.3.4.5",
)


@pytest.mark.parametrize("host", OURS)
def test_names_that_nobody_can_register_are_ours(host: str) -> None:
    """Addresses, services, pods, this machine, and what is configured."""
    assert Hosts(["gpus.example.com", "*.gpus.example.org"]).are_ours(host)


@pytest.mark.parametrize("host", THEIRS)
def test_other_names_are_not(host: str) -> None:
    """However much they look like ours."""
    assert not Hosts(["gpus.example.com", "*.gpus.example.org"]).are_ours(host)


@pytest.mark.slow
async def test_pages_and_json_are_for_our_names_only(tmp_path: Path) -> None:
    """A stranger's name reads nothing; the verbs and probes, which tell a browser nothing, ask for no name."""
    async with serving(tmp_path, NODE, settings={"listen.allowedHosts": "[gpus.example.com]"}) as extender:
        asked = {"127.0.0.1": 200, "gputopo-extender": 200, "gpus.example.com": 200, "evil.example": 421}
        for host, status in asked.items():
            for path in ("/", "/nodes/n1", "/v1/inspect/nodes", "/v1/inspect/config", "/metrics", "/openapi.json"):
                async with extender.session.get(extender.url + path, headers={"Host": host}) as answer:
                    assert answer.status == status, (host, path)
            for path in ("/livez", "/readyz"):
                async with extender.session.get(extender.url + path, headers={"Host": host}) as answer:
                    assert answer.status == 200
            url, body = f"{extender.url}/v1/extender/filter", filter_body([NODE.name])
            async with extender.session.post(url, data=body, headers={"Host": host}) as answer:
                assert answer.status == 200
