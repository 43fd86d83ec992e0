"""What pods ask for is read once for all that ask alike, and is what each would have by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.cluster.objects import pod_demand as module
from extender.cluster.objects.gpu_pods import may_preempt, read_gpu_pod
from extender.cluster.objects.kept_pods import lean, lean_with_claims
from extender.cluster.objects.kinds import Container, Pod, PodSpec, ResourceRequirements
from extender.cluster.objects.pod_demand import MAX_QUANTITIES, asked_by
from extender.cluster.objects.quantities import cpu_milli
from tests.extender.builders import gpus, pod
from topology.annotations import keys

quantities = st.none() | st.dictionaries(
    st.sampled_from(["cpu", "memory", keys.GPU_RESOURCE, keys.SHARE_RESOURCE, f"{keys.MIG_PREFIX}1g.10gb"]),
    st.sampled_from(["0", "1", "2", 2, "250m", "many"]),
    max_size=3,
)
requirements = st.builds(ResourceRequirements, quantities, quantities)
containers = st.builds(Container, st.sampled_from(["a", "b"]), requirements, st.sampled_from([None, "Always"]))
specs = st.builds(
    PodSpec,
    containers=st.lists(containers, max_size=2),
    init_containers=st.none() | st.lists(containers, max_size=2),
    resources=requirements,
    overhead=quantities,
)


@pytest.mark.slow
@given(specs)
def test_what_is_remembered_is_what_the_pod_says(spec: PodSpec) -> None:
    """Its containers too, to the word: they stand in the place of its own."""
    item = Pod(spec=spec)
    asked = asked_by(item)
    assert asked.spec == spec
    assert asked.cpu_milli == cpu_milli(item)
    texts = repr([*spec.containers, *(spec.init_containers or ())])
    assert asked.names_gpus == any(
        f"'{key}" in texts for key in (keys.GPU_RESOURCE, keys.SHARE_RESOURCE, keys.MIG_PREFIX)
    )
    assert (read_gpu_pod(item) is None) == (asked.is_readable and asked.gpus is None)


def test_pods_that_ask_alike_share_what_they_say() -> None:
    """Of ten thousand pods of one template most is kept once."""
    p, q = (lean(each, asked_by(each)) for each in (pod("p", 2, on="n1"), pod("q", 2, on="n2")))
    assert p.spec.containers is q.spec.containers
    assert p.spec.scheduler_name is q.spec.scheduler_name
    running = [pod(name, 1, on="n1", placed=gpus("n1", 0), phase="Running", terminated=False) for name in "pq"]
    p, q = (lean(each, asked_by(each)) for each in running)
    assert p.status.container_statuses is q.status.container_statuses
    assert p == running[0]


def test_of_a_running_pod_that_may_move_it_is_kept_where_it_may_go() -> None:
    """And since when it runs, how long it takes to end, and whether it restarts; of others none of that is read again."""
    for word, is_kept in (("true", True), ("false", False)):
        item = pod("p", 1, on="n1", wants={keys.MOVABLE: word})
        spec, status = (
            replace(item.spec, node_selector={"a": "b"}, termination_grace_period_seconds=60, restart_policy="Never"),
            replace(item.status, start_time="2026-01-01T00:00:00Z"),
        )
        kept = lean(replace(item, spec=spec, status=status), asked_by(item))
        spec, start = kept.spec, kept.status.start_time
        read_later = spec.node_selector, start, spec.termination_grace_period_seconds, spec.restart_policy
        assert [part is not None for part in read_later] == 4 * [is_kept]


def test_that_a_pod_never_preempts_is_kept_as_long_as_it_waits() -> None:
    """All other pods may, and nothing is kept of that."""
    for node, policy, kept in ((None, "Never", "Never"), ("n1", "Never", None), (None, "PreemptLowerPriority", None)):
        item = pod("p", 1, on=node)
        item = replace(item, spec=replace(item.spec, preemption_policy=policy))
        assert lean(item, asked_by(item)).spec.preemption_policy == kept
        assert may_preempt(item) is (policy != "Never")


def test_of_a_pod_with_claims_it_is_kept_how_long_it_may_take_to_end() -> None:
    """Also after it is bound."""
    item = pod("p", 0, on="n1")
    item = replace(item, spec=replace(item.spec, termination_grace_period_seconds=60))
    kept = [of(item, asked_by(item)).spec.termination_grace_period_seconds for of in (lean_with_claims, lean)]
    assert kept == [60, None]


def test_a_pod_with_any_number_of_quantities_is_read_and_not_remembered() -> None:
    """Whoever may create pods decides how many these are."""
    many: dict[str, str | int] = {f"example.test/{number}": "1" for number in range(MAX_QUANTITIES)}
    item = Pod(spec=PodSpec(containers=[Container("main", ResourceRequirements(many | {keys.GPU_RESOURCE: "2"}))]))
    before = module._read.cache_info().currsize
    assert asked_by(item).gpus == 2
    assert module._read.cache_info().currsize == before
