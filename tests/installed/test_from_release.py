"""From the last released version to this one and back, by Helm, on real kubelets and while pods come and go."""

from collections.abc import Callable
from dataclasses import replace
from statistics import median

import pytest

from tests.cluster.polling import eventually
from tests.image.building import IMAGE
from tests.installed.cluster import Cluster
from tests.installed.conftest import Older
from tests.installed.load import PATIENCE_SECONDS, comings_and_goings
from tests.installed.release import WITHIN, Release
from tests.installed.test_install import EXAMPLE, planned, processes
from tests.manifests.helm import CHART
from tests.manifests.rendered import NAMESPACE

pytestmark = pytest.mark.waits

AGENTS = ("daemonset/gputopo-agent", "agent")
EXTENDERS = ("deployment/gputopo-scheduler", "extender")


@pytest.mark.parametrize("first", [AGENTS, EXTENDERS], ids=["agents-first", "extenders-first"])
def test_upgrade_from_the_last_release_and_back(
    cluster: Cluster,
    older: Older | None,
    installed: Callable[..., Release],
    figure: Callable[[str], None],
    first: tuple[str, str],
) -> None:
    """Either program goes first: who runs keeps process and GPUs, and who comes meanwhile gets GPUs of nobody else."""
    if older is None:
        pytest.skip("this checkout has no history with a release, or its image cannot be built here")
    release = installed(older, agent__mode="enforce")
    cluster.kubectl("apply", "-f", EXAMPLE)
    before = cluster.wait_running("required-nvlink")
    with comings_and_goings(cluster) as seen:

        def a_few_more() -> None:
            ran = len(seen.waited)
            eventually(lambda: len(seen.waited) >= ran + 3, 3 * PATIENCE_SECONDS)

        a_few_more()
        _replace_image(cluster, *first)
        a_few_more()
        replace(release, chart=CHART, image=IMAGE).upgrade()
        a_few_more()
        release.roll_back()
        a_few_more()
    after = cluster.wait_running("required-nvlink")
    figure(
        f"{older.image} to this version and back, {first[1]}s first: {len(seen.waited)} pods ran, the longest after "
        f"{max(seen.waited):.1f} s, half of them within {median(seen.waited):.1f} s; {len(seen.turned_away)} were turned away, "
        f"{len(seen.unplanned)} had other GPUs than planned"
    )
    assert seen.gpus_given_twice == set()
    assert not planned(after) & seen.gpus
    assert processes(after) == processes(before)
    assert cluster.node_of(after).held()["required-nvlink", "main"] == planned(after) == planned(before)


def _replace_image(cluster: Cluster, workload: str, container: str) -> None:
    """Replace one program by that of this version, and leave its configuration and the other program as they are."""
    cluster.kubectl("set", "image", f"--namespace={NAMESPACE}", workload, f"{container}={IMAGE}")
    cluster.kubectl("rollout", "status", f"--namespace={NAMESPACE}", workload, f"--timeout={WITHIN}")
