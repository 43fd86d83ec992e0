"""etcd goes back to a backup: what the extender knows from later is no more, and it finds out by itself."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.simulated.fleet import SimulatedNode
from tests.cluster.control_plane import ControlPlane
from tests.cluster.gpu_cluster import GpuCluster, at_work, wants
from tests.cluster.installation import USERS, Installation
from tests.cluster.polling import eventually

NODE = SimulatedNode("h100", "hgx-h100")
WRITES = 200
"""More than an API server makes by itself when it starts: so far it must not come again before it is asked."""


@contextmanager
def etcd_at_rest(plane: ControlPlane) -> Iterator[Path]:
    """Give the folder of etcd's data while nobody writes there; the API server is away for as long."""
    plane.admin.close()
    plane.apiserver.stop()
    plane.etcd.stop()
    yield plane.state / "etcd"
    plane.etcd.run()
    plane.apiserver.run()


def test_the_cluster_is_known_as_it_is_after_a_restore(binaries: Path) -> None:
    """Lower versions are believed; what the backup does not know of is gone, and a claim that it has lost stays closed."""
    with ControlPlane(binaries, users=USERS) as plane:
        installation, backup = Installation(plane), plane.state / "backup"
        with at_work(installation) as cluster:
            cluster.join(NODE)
            cluster.submit(wants("early", 2))
            eventually(lambda: cluster.node_of("early"))
        with etcd_at_rest(plane) as data:
            shutil.copytree(data, backup)
        with at_work(installation) as cluster:
            cluster.submit(wants("late", 2))
            eventually(lambda: cluster.node_of("late"))
            late = cluster.claims(NODE.name, "late")
            eventually(lambda: cluster.extender.metric("pods") == 2)
            for number in range(WRITES):
                cluster.annotate(NODE.name, "example.test/count", str(number))
            with etcd_at_rest(plane) as data:
                shutil.rmtree(data)
                shutil.copytree(backup, data)
            knows_the_backup(cluster)
            plane.stop_schedulers()
            installation.start_scheduler(cluster.extender)
            cluster.submit(wants("after", 4))
            assert eventually(lambda: cluster.node_of("after")) == NODE.name
            assert not late & set(cluster.placement("after").containers["main"])


def knows_the_backup(cluster: GpuCluster) -> None:
    """Wait until the extender has heard, of nodes and pods, that the API server was set back, and what is there now."""

    def set_back() -> set[str]:
        return {
            facts["resource"]
            for facts in cluster.extender.logged()
            if facts.get("msg") == "the API server was set back"
        }

    eventually(lambda: set_back() >= {"nodes", "pods"})
    eventually(lambda: cluster.extender.metric("pods") == 1)
