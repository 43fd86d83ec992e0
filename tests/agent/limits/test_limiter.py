"""Limits are set before a container starts, read back, followed, and gone with their share; through the real binding."""

from __future__ import annotations

import os
import time

import pytest

from agent.errors import NvmlUnavailable
from agent.gpus.facts import Known
from agent.gpus.memory_limits import GpuCgroup
from agent.gpus.nvml.access import PAUSED
from agent.gpus.nvml.time_limit import NvmlCalls
from agent.limits.level_announcement import announce_level
from agent.limits.limiter import Backends, Limiter
from tests.agent.limits.node import GPUS, Node, listening, share
from tests.extender.polling import until
from topology.node.sharing import Limits

OTHER = "6b0c3f0e-0000-4000-8000-000000000002"


async def test_pod_is_held_to_the_sum_of_its_shares_before_it_starts(node: Node) -> None:
    """GPU by GPU, and only on those that it has."""
    pod, limiter = node.pod(), node.limiter()
    await limiter.look(GPUS)
    assert limiter.level.limits is Limits.CGROUP
    assert await limiter.before_start([share(10), share(4, "side"), share(20, "big", gpu=3)]) is None
    assert node.limits(pod) == {0: 14, 3: 20}
    assert {line.split()[3] for line in node.all_limits()} == {"0"}, "no soft limits, which outlive their cgroup"


async def test_looking_whether_limits_are_taken_leaves_none(node: Node) -> None:
    """And takes none away that somebody else has set on all pods."""
    await node.limiter().look(GPUS)
    assert node.all_limits() == []
    limiter = node.limiter()
    limiter._backends.set_limits({GpuCgroup(gpu, str(node.top)): 1 << 40 for gpu in GPUS})
    await limiter.look(GPUS)
    assert limiter.level.limits is Limits.CGROUP
    assert node.limits(node.top) == dict.fromkeys(range(8), 1024)


@pytest.mark.parametrize("qos", ["", "burstable", "besteffort"])
async def test_limits_die_with_the_pod(node: Node, qos: str) -> None:
    """Whatever its class of service, nothing is left in the driver when its cgroup goes."""
    pod, limiter = node.pod(qos=qos), node.limiter()
    await limiter.look(GPUS)
    assert await limiter.before_start([share(10)]) is None
    assert node.limits(pod) == {0: 10}
    pod.rmdir()
    await limiter.follow([])
    assert node.all_limits() == []


async def test_containers_own_cgroup_reports_the_limit_a_moment_later(node: Node) -> None:
    """It is not there before the start."""
    pod, limiter = node.pod(), node.limiter()
    await limiter.look(GPUS)
    await limiter.before_start([share(10)])
    container = pod / "cri-containerd-0a1b.scope"
    container.mkdir()
    await limiter.follow([share(10)])
    assert node.limits(container) == {0: 10}


async def test_share_that_shrinks_or_goes_takes_its_limit_along(node: Node) -> None:
    """While the pod's cgroup stands."""
    pod, limiter = node.pod(), node.limiter()
    await limiter.look(GPUS)
    await limiter.follow([share(10), share(4, gpu=1)])
    await limiter.follow([share(6)])
    assert node.limits(pod) == {0: 6}
    await limiter.follow([])
    assert node.all_limits() == []


async def test_new_agent_sets_the_limits_again_and_takes_back_what_nobody_has(node: Node) -> None:
    """An agent keeps nothing over a restart: the ledger has it."""
    pod, gone = node.pod(), node.pod(OTHER)
    first = node.limiter()
    await first.look(GPUS)
    await first.follow([share(10), share(4, uid=OTHER)])
    second = node.limiter()
    await second.look(GPUS)
    await second.follow([share(12)])
    assert (node.limits(pod), node.limits(gone)) == ({0: 12}, {})


async def test_driver_loaded_anew_is_told_again_within_half_a_minute(node: Node) -> None:
    """It knows no limits then."""
    pod, limiter = node.pod(), node.limiter()
    await limiter.look(GPUS)
    await limiter.follow([share(10)])
    node.load_driver_anew()
    node.now = 29.0
    await limiter.follow([share(10)])
    assert node.limits(pod) == {}
    node.now = 31.0
    await limiter.follow([share(10)])
    assert node.limits(pod) == {0: 10}


async def test_container_that_cannot_be_held_waits_where_limits_are_required(node: Node) -> None:
    """With the reason; it starts once the limit stands, and the node tells the weaker level until then."""
    node.pod()
    limiter = node.limiter()
    await limiter.look(GPUS)
    node.describe("fail nvmlDeviceSetMemoryLimits_v1 0 NO_PERMISSION")
    reason = await limiter.before_start([share(10)])
    assert reason == "the agent may not set memory limits: that takes root and the capability SYS_ADMIN"
    await limiter.look(GPUS)
    assert limiter.level.limits is Limits.NONE
    assert limiter.held_back == f"{reason}; MPS is off (sharing.mps)"
    node.said.pop()
    node.describe()
    await limiter.look(GPUS)
    assert await limiter.before_start([share(10)]) is None


async def test_container_that_cannot_be_held_starts_where_limits_are_preferred(node: Node) -> None:
    """And the node says that nothing holds it."""
    node.pod()
    limiter = node.limiter(required=False)
    await limiter.look(GPUS)
    node.describe("fail nvmlDeviceSetMemoryLimits_v1 0 NO_PERMISSION")
    assert await limiter.before_start([share(10)]) is None
    assert (await limiter.look(GPUS)).limits is Limits.NONE
    assert limiter.held_back == ""


async def test_limit_that_reads_back_otherwise_does_not_count(node: Node) -> None:
    """Only a set and a read-back that agree prove that it holds."""
    node.pod()
    limiter = node.limiter()
    await limiter.look(GPUS)
    honest = limiter._backends
    limiter._backends = Backends(
        lambda wanted: dict.fromkeys(honest.set_limits(wanted), Known(1 << 40)),
        honest.read_limits,
        honest.cgroups,
        None,
    )
    assert await limiter.before_start([share(10)]) == "NVML reads back another memory limit than was set"


async def test_limit_that_cannot_be_read_back_does_not_count(node: Node) -> None:
    """As r615 answers where it keeps none."""
    node.pod()
    limiter = node.limiter()
    await limiter.look(GPUS)
    node.describe("fail nvmlDeviceGetMemoryLimits_v1 0 NOT_SUPPORTED")
    assert "takes no memory limits" in (await limiter.before_start([share(10)]) or "")


async def test_one_pod_that_is_not_held_is_tried_again_while_its_share_stands(node: Node) -> None:
    """And the node is as good as before once it holds."""
    pod = node.pod()
    limiter = node.limiter()
    await limiter.look(GPUS)
    node.describe("fail nvmlDeviceGetMemoryLimits_v1 0 NOT_SUPPORTED")
    await limiter.before_start([share(10)])
    assert (await limiter.look(GPUS)).limits is Limits.NONE
    node.said.pop()
    node.describe()
    await limiter.follow([share(10)])
    assert (await limiter.look(GPUS)).limits is Limits.CGROUP
    assert node.limits(pod) == {0: 10}


async def test_pod_without_a_cgroup_waits(node: Node) -> None:
    """Where the agent does not see it, nothing can be said of its limit."""
    limiter = node.limiter()
    await limiter.look(GPUS)
    assert await limiter.before_start([share(10)]) == "its pod has no cgroup that the agent sees"


async def test_with_dmem_a_pod_whose_parent_does_not_pass_it_on_is_not_held(node: Node) -> None:
    """Its cgroup has no dmem files then, and the driver finds nothing to limit; the reason says what to do."""
    node.describe("limits dmem")
    (node.top / "dmem.max").touch()
    pod, limiter = node.pod(), node.limiter()
    await limiter.look(GPUS)
    assert "+dmem in cgroup.subtree_control" in (await limiter.before_start([share(10)]) or "")
    (pod / "dmem.max").touch()
    assert await limiter.before_start([share(10)]) is None
    assert node.limits(pod) == {0: 10}


async def test_with_dmem_only_containers_that_have_its_files_are_told_of_it(node: Node) -> None:
    """The others report the pod's limit already."""
    node.describe("limits dmem")
    (node.top / "dmem.max").touch()
    pod, limiter = node.pod(), node.limiter()
    (pod / "dmem.max").touch()
    for name in ("with", "without"):
        (pod / name).mkdir()
    (pod / "with" / "dmem.max").touch()
    await limiter.look(GPUS)
    await limiter.follow([share(10)])
    assert node.limits(pod / "with") == {0: 10}
    assert limiter._refusals == {}


async def test_driver_that_is_left_alone_changes_nothing(node: Node) -> None:
    """It takes what it took, once it is ours again."""

    def left_alone(_: object) -> dict[object, object]:
        raise NvmlUnavailable(PAUSED, "the operator changes the driver")

    node.pod()
    limiter = node.limiter()
    await limiter.look(GPUS)
    honest = limiter._backends
    limiter._backends = Backends(left_alone, left_alone, honest.cgroups, None)  # type: ignore[arg-type]
    assert (await limiter.look(GPUS)).limits is Limits.CGROUP
    assert await limiter.before_start([share(10)]) == "NVML refused a memory limit (PAUSED)"


async def test_mps_takes_over_where_the_driver_takes_no_limits(node: Node) -> None:
    """A daemon for each GPU that may be shared; the container gets its variables, pipe and shared memory."""
    node.said.remove("limits misc")
    node.describe("driver 580.65.06")
    limiter = node.limiter(mps=True)
    with listening(node.folder / "mps" / "nvidia.com/gpu" / "pipe"):
        level = await limiter.look(GPUS)
        assert (level.limits, level.reasons) == (
            Limits.MPS,
            ("the driver's NVML knows no memory limits by cgroup: they come with driver r615",),
        )
        assert limiter.environment(share(10))["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=10G"
        assert [mount.container_path for mount in limiter.mounts(share(10))] == ["/run/mps/pipe", "/dev/shm"]
        assert await limiter.before_start([share(10)]) is None
    assert (await limiter.look(GPUS)).limits is Limits.NONE
    assert limiter.environment(share(10)) == {}
    assert "no MPS daemon answers for any GPU" in (await limiter.before_start([share(10)]) or "")


def test_nothing_is_promised_before_the_first_look(node: Node) -> None:
    """An agent that starts says that it has not looked."""
    limiter: Limiter = node.limiter(required=False)
    assert limiter.held_back == "the agent has not looked for limits yet"


async def test_level_is_told_when_it_is_another_one(node: Node) -> None:
    """To metrics and events, once."""
    limiter = node.limiter()
    await limiter.look(GPUS)
    await limiter.look(GPUS)
    node.describe("fail nvmlDeviceSetMemoryLimits_v1 0 NO_PERMISSION")
    await limiter.look(GPUS)
    assert [level.limits for level in node.told] == [Limits.CGROUP, Limits.NONE]
    assert announce_level(node.told[1]).note == (
        "Nothing holds containers to their shares of GPUs: the agent may not set memory limits: that takes root and the "
        "capability SYS_ADMIN; MPS is off (sharing.mps)"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_agent_that_is_not_root_says_so(open_node: Node) -> None:
    """The driver takes limits from root alone."""
    limiter = open_node.limiter()
    os.seteuid(65534)
    try:
        level = await limiter.look(GPUS)
    finally:
        os.seteuid(0)
    assert level.limits is Limits.NONE
    assert level.reasons[0] == "the agent may not set memory limits: that takes root and the capability SYS_ADMIN"


async def test_limits_that_stand_are_not_set_again(node: Node) -> None:
    """A look at what stands writes nothing."""
    node.pod()
    limiter = node.limiter()
    await limiter.look(GPUS)
    await limiter.follow([share(10)])
    node.describe("fail nvmlDeviceSetMemoryLimits_v1 0 NO_PERMISSION")
    node.now = 31.0
    await limiter.follow([share(10)])
    assert limiter._refusals == {}


@pytest.mark.slow
async def test_driver_that_hangs_holds_a_container_back_and_nobody_else(node: Node) -> None:
    """An answer that does not come in time is none."""
    node.pod()
    limiter = node.limiter()
    await limiter.look(GPUS)
    limiter._nvml = calls = NvmlCalls(0.2)
    node.describe("hang nvmlDeviceSetMemoryLimits_v1 0 3")
    began = time.monotonic()
    assert await limiter.before_start([share(10)]) == "NVML did not answer in time"
    await limiter.follow([share(10)])
    assert (await limiter.look(GPUS)).limits is Limits.NONE
    assert time.monotonic() - began < 3.0
    assert calls._latest is not None
    await until(calls._latest.done)  # the call that hangs is left to itself, and has to end before its library goes
