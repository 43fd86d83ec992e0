"""Where the kubeconfig names a proxy, every request goes by it."""

from __future__ import annotations

from pathlib import Path

import yaml
from aiohttp import web

from benchmarks.processes.kubeconfig import write_kubeconfig
from extender.binding.intents import Done, GetNode
from extender.kubernetes.kube import KubeApi

SECONDS = 30.0


async def test_a_proxy_is_asked_for_single_requests_and_for_lists(tmp_path: Path) -> None:
    """The API server itself cannot be reached."""
    asked: list[str] = []

    async def proxy(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(str(request.url))
        return web.json_response({"metadata": {"name": "n1", "resourceVersion": "7"}})

    runner = web.ServerRunner(web.Server(proxy, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kubeconfig = tmp_path / "kubeconfig"
    write_kubeconfig(kubeconfig, "http://api.invalid:6443")
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["proxy-url"] = "http://{}:{}".format(*runner.addresses[0][:2])
    kubeconfig.write_text(yaml.safe_dump(config))
    try:
        async with KubeApi.from_kubeconfig(kubeconfig) as api:
            assert isinstance(await api.execute(GetNode("n1"), SECONDS), Done)
            assert await api.resource("/api/v1/nodes").latest_version() == "7"
    finally:
        await runner.cleanup()
    assert asked == ["http://api.invalid:6443/api/v1/nodes/n1", "http://api.invalid:6443/api/v1/nodes?limit=1"]
