"""Where the kubeconfig or the environment names a proxy, every request goes by it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from benchmarks.processes.kubeconfig import write_kubeconfig
from extender.binding.intents import Done, GetNode
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.reflector import Unavailable

SECONDS = 30.0


@asynccontextmanager
async def proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """Answer in the place of an API server that cannot be reached; gives its URL, and what it was asked for."""
    asked: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(str(request.url))
        return web.json_response({"metadata": {"name": "n1", "resourceVersion": "7"}})

    runner = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0][:2]), asked
    finally:
        await runner.cleanup()


async def test_a_proxy_is_asked_for_single_requests_and_for_lists(tmp_path: Path) -> None:
    """The API server itself cannot be reached."""
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://api.invalid:6443")
    config = yaml.safe_load(kubeconfig.read_text())
    async with proxy() as (url, asked):
        config["clusters"][0]["cluster"]["proxy-url"] = url
        kubeconfig.write_text(yaml.safe_dump(config))
        async with KubeApi.from_kubeconfig(kubeconfig) as api:
            assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)
            assert await api.resource("/api/v1/nodes").latest_version() == "7"
    assert asked == ["http://api.invalid:6443/api/v1/nodes/n1", "http://api.invalid:6443/api/v1/nodes?limit=1"]


async def test_the_environment_s_proxy_counts_where_the_kubeconfig_names_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for kubectl; one of SOCKS is refused, and not passed over."""
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://api.invalid:6443")
    async with proxy() as (url, asked):
        monkeypatch.setenv("HTTP_PROXY", url)
        async with KubeApi.from_kubeconfig(kubeconfig) as api:
            assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)
    assert asked == ["http://api.invalid:6443/api/v1/nodes/n1"]
    monkeypatch.setenv("HTTP_PROXY", "socks5://proxy:1080")
    with pytest.raises(Unavailable, match="HTTP_PROXY: a proxy of socks5 is not supported; use one of http or https"):
        async with KubeApi.from_kubeconfig(kubeconfig):
            pass
