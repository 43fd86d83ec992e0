"""Others beside us in one scheduler: a second profile, and a second extender after ours."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.simulated.fleet import fleet
from tests.cluster.binaries import is_oldest
from tests.cluster.gpu_cluster import GpuCluster, wants
from tests.cluster.installation import Installation
from tests.cluster.polling import eventually
from tests.cluster.recorder import serving

pytestmark = pytest.mark.usefixtures("kubelets")

CANDIDATES = 16


@contextmanager
def picky_extender(refused: set[str]) -> Iterator[dict[str, object]]:
    """Serve a filter that refuses the first sixteen nodes that it hears of, always; give its scheduler configuration."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            names = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["NodeNames"]
            refused.update(names[: CANDIDATES - len(refused)])
            passing = [name for name in names if name not in refused]
            failing = {name: "not to my taste" for name in names if name in refused}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"NodeNames": passing, "FailedNodes": failing}).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with serving(server):
        url = f"http://127.0.0.1:{server.server_port}"
        yield {"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True}


def test_two_profiles_share_one_extender(gpu_cluster: GpuCluster, installation: Installation) -> None:
    """Pods of either profile get placements, and no GPU twice."""
    installation.plane.stop_schedulers()
    installation.start_scheduler(gpu_cluster.extender, more_profiles=["gputopo-batch"])
    gpu_cluster.join(*fleet({"hgx-h100": 1}))
    gpu_cluster.submit(*(wants(f"own-{number}", 2) for number in range(2)))
    gpu_cluster.submit(*(wants(f"batch-{number}", 2, schedulerName="gputopo-batch") for number in range(2)))
    eventually(lambda: all(map(gpu_cluster.is_running, ("own-0", "own-1", "batch-0", "batch-1"))))
    assert len(gpu_cluster.ledger("hgx-h100-0").claims) == 8


@pytest.mark.skipif(is_oldest(), reason="kube-scheduler 1.30 lets such a pod wait for another event, or five minutes")
def test_pod_whose_candidates_another_extender_refuses_goes_elsewhere(
    gpu_cluster: GpuCluster, installation: Installation, figure: Callable[[str], None]
) -> None:
    """It is not offered the same sixteen nodes for ever."""
    installation.plane.stop_schedulers()
    refused: set[str] = set()
    with picky_extender(refused) as entry:
        installation.start_scheduler(gpu_cluster.extender, more_extenders=[entry])
        gpu_cluster.join(*fleet({"hgx-h100": CANDIDATES + 2}))
        began = time.monotonic()
        gpu_cluster.submit(wants("choosy", 4, "required-affinity: nvlink"))
        eventually(lambda: gpu_cluster.is_running("choosy"))
        figure(f"a pod whose 16 candidates were refused ran elsewhere after {time.monotonic() - began:.2f} s")
        assert len(refused) == CANDIDATES
        assert gpu_cluster.node_of("choosy") not in refused
        gpu_cluster.plane.stop_schedulers()
