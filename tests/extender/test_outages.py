"""An API server that is away, silent or refusing costs time and errors in words; nothing is lost, nothing is given twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.processes.client import Json
from benchmarks.simulated.fleet import SimulatedNode
from tests.extender.polling import eventually
from tests.extender.serving import Running, serving
from tests.world.http_faults import RequestFault, Rule, Unreliable
from topology.annotations import keys
from topology.annotations.records import decode_ledger

NODE = SimulatedNode("n1", "dgx-a100")
DEADLINE_SECONDS = 2.0
DEADLINE = {"scheduling.bindDeadline": f"{DEADLINE_SECONDS}s"}
LATE_SECONDS = 5 * DEADLINE_SECONDS
"""For an answer that has that deadline, on a machine that runs other tests beside; without one it would take a minute."""


def trouble(fault: RequestFault, path: str = "*") -> Rule:
    """Say what becomes of the extender's requests to these paths; everybody else is served."""
    return Rule(fault, path=path, client="gputopo-extender")


async def bind(extender: Running, pod: Json, node: str = "n1") -> tuple[str, float]:
    """Bind a pod to a node; returns the error and how long it took."""
    metadata, started = pod["metadata"], asyncio.get_running_loop().time()
    body = {"PodName": metadata["name"], "PodNamespace": "default", "PodUID": metadata["uid"], "Node": node}
    status, answer = await extender.post("bind", body)
    assert status == 200
    return answer["Error"], asyncio.get_running_loop().time() - started


async def owners(extender: Running, node: str = "n1") -> list[str]:
    """Return the pods of a node's ledger, one entry per GPU."""
    found = (await extender.api.call("GET", f"/api/v1/nodes/{node}")).ok()
    text = found["metadata"]["annotations"].get(keys.LEDGER)
    return [claim.name for claim in decode_ledger(text).claims] if text else []


@pytest.mark.slow
async def test_while_the_api_is_down_binds_fail_in_time_and_filter_goes_on(tmp_path: Path) -> None:
    """Memory answers; writes do not pretend; afterwards everything works without a restart."""
    faults = Unreliable()
    async with serving(tmp_path, NODE, settings=DEADLINE, faults=faults) as extender:
        pod = await extender.create("train", 2)
        with faults.during(trouble(RequestFault.RESET_BEFORE)):
            error, seconds = await bind(extender, pod)
            assert error
            assert seconds < LATE_SECONDS
            status, answer = await extender.post("filter", {"Pod": pod, "NodeNames": ["n1"]})
            assert (status, answer) == (200, {"NodeNames": ["n1"]})
        assert (await bind(extender, pod))[0] == ""


@pytest.mark.slow
async def test_a_silent_api_costs_the_deadline_and_no_more(tmp_path: Path) -> None:
    """The claim may have been written, so it is kept; the next attempt uses it."""
    faults = Unreliable()
    async with serving(tmp_path, NODE, settings=DEADLINE, faults=faults) as extender:
        pod = await extender.create("train", 2)
        with faults.during(trouble(RequestFault.LOST_REQUEST, "*/binding")):
            error, seconds = await bind(extender, pod)
            assert error
            assert 0.9 * DEADLINE_SECONDS < seconds < LATE_SECONDS
            assert await owners(extender) == ["train", "train"]
        assert (await bind(extender, pod))[0] == ""
        assert await owners(extender) == ["train", "train"]


@pytest.mark.slow
async def test_a_binding_that_is_not_answered_holds_up_no_other_bind_to_its_node(tmp_path: Path) -> None:
    """The ledger says by then whose its GPUs are."""
    faults = Unreliable()
    async with serving(tmp_path, NODE, settings=DEADLINE, faults=faults) as extender:
        slow, quick = await extender.create("slow", 2), await extender.create("quick", 2)
        with faults.during(trouble(RequestFault.LOST_REQUEST, "*/slow/binding")):
            first = asyncio.create_task(bind(extender, slow))

            async def has_claimed() -> bool:
                return await owners(extender) == ["slow", "slow"]

            await eventually(has_claimed)
            assert (await bind(extender, quick))[0] == ""
            assert not first.done()
            assert (await first)[0]
        assert sorted(await owners(extender)) == ["quick", "quick", "slow", "slow"]


@pytest.mark.slow
async def test_a_refused_binding_leaves_no_claim_whoever_binds_meanwhile(tmp_path: Path) -> None:
    """Its claim is taken back beside the one that came in the meantime."""
    faults = Unreliable()
    async with serving(tmp_path, NODE, settings=DEADLINE, faults=faults) as extender:
        refused, quick = await extender.create("refused", 2), await extender.create("quick", 2)
        with faults.during(trouble(RequestFault.FORBIDDEN, "*/refused/binding")):
            answers = await asyncio.gather(bind(extender, refused), bind(extender, quick))
        assert [bool(error) for error, _ in answers] == [True, False]
        assert await owners(extender) == ["quick", "quick"]


@pytest.mark.slow
async def test_a_binding_whose_reply_was_lost_is_found_to_have_happened(tmp_path: Path) -> None:
    """A live read tells, and the answer is the truth."""
    faults = Unreliable()
    async with serving(tmp_path, NODE, faults=faults) as extender:
        pod = await extender.create("train", 2)
        with faults.during(trouble(RequestFault.RESET_AFTER, "*/binding")) as rule:
            assert (await bind(extender, pod))[0] == ""
            assert faults.struck[rule] == 1


@pytest.mark.slow
async def test_a_binding_that_a_policy_refuses_leaves_no_claim(tmp_path: Path) -> None:
    """The reason reaches the pod's event through the scheduler."""
    async with serving(tmp_path, NODE, faults=Unreliable([trouble(RequestFault.FORBIDDEN, "*/binding")])) as extender:
        pod = await extender.create("train", 2)
        assert "403: out of nowhere" in (await bind(extender, pod))[0]
        assert await owners(extender) == []


@pytest.mark.slow
async def test_a_pod_whose_binding_always_fails_has_claims_on_one_node(tmp_path: Path) -> None:
    """A webhook of its namespace is down: it tries one node after the other, and leaves no trail of claims."""
    nodes = [SimulatedNode(name, "dgx-a100") for name in ("n1", "n2", "n3")]
    faults = Unreliable()
    async with serving(tmp_path, *nodes, settings=DEADLINE, faults=faults) as extender:
        pod = await extender.create("doomed", 8)
        with faults.during(trouble(RequestFault.ERROR, "*/doomed/binding")):
            for name in ("n1", "n2", "n3", "n1"):
                error, _ = await bind(extender, pod, name)
                assert "500: out of nowhere" in error
                claims = {node.name: await owners(extender, node.name) for node in nodes}
                assert claims == {node.name: ["doomed"] * 8 * (node.name == name) for node in nodes}


@pytest.mark.slow
async def test_a_pod_that_cannot_be_fenced_stays_with_the_node_that_it_has_claims_on(tmp_path: Path) -> None:
    """A policy refuses all writes to it: nothing more is claimed, it says why, and filter offers that node alone."""
    nodes = [SimulatedNode(name, "dgx-a100") for name in ("n1", "n2")]
    async with serving(
        tmp_path, *nodes, faults=Unreliable([trouble(RequestFault.FORBIDDEN, "*/doomed/*")])
    ) as extender:
        pod = await extender.create("doomed", 8)
        assert "403: out of nowhere" in (await bind(extender, pod))[0]
        assert "claims on another node, which cannot be dropped: 403: out of" in (await bind(extender, pod, "n2"))[0]
        assert (await owners(extender), await owners(extender, "n2")) == (["doomed"] * 8, [])
        status, answer = await extender.post("filter", {"Pod": pod, "NodeNames": ["n1", "n2"]})
        assert (status, answer) == (200, {"NodeNames": ["n1"]})


@pytest.mark.slow
async def test_two_binds_of_one_pod_at_once_make_one_claim(tmp_path: Path) -> None:
    """They would not know of each other: the second one waits for the first."""
    nodes = [SimulatedNode(name, "dgx-a100") for name in ("n1", "n2")]
    faults = Unreliable()
    async with serving(tmp_path, *nodes, settings=DEADLINE, faults=faults) as extender:
        pod = await extender.create("train", 2)
        with faults.during(trouble(RequestFault.LOST_REQUEST, "*/binding")):
            answers = await asyncio.gather(*(bind(extender, pod, node.name) for node in nodes))
        assert sorted(error.partition(":")[0] for error, _ in answers) == [
            "another bind of the pod took all the time",
            "the Binding's outcome is not known",
        ]
        assert sorted([await owners(extender), await owners(extender, "n2")]) == [[], ["train", "train"]]


@pytest.mark.slow
async def test_a_lost_permission_is_not_ready_until_it_is_back(tmp_path: Path) -> None:
    """Liveness is not touched: a restart would not help."""
    faults = Unreliable()
    async with serving(tmp_path, NODE, settings={"watch.stream": "1s"}, faults=faults) as extender:

        async def is_denied() -> bool:
            return "nodes-watch failed: denied" in (await extender.get("/readyz"))[1]

        with faults.during(trouble(RequestFault.FORBIDDEN, "*/nodes")):
            assert await eventually(is_denied)
            assert (await extender.get("/livez"))[0] == 200
        assert await eventually(extender.is_ready)


@pytest.mark.slow
async def test_one_pod_that_is_always_refused_does_not_hold_up_others(tmp_path: Path) -> None:
    """Binds to one node take turns; each of the others is bound at its first attempt."""
    always = trouble(RequestFault.FORBIDDEN, "*refused/binding")
    async with serving(tmp_path, NODE, faults=Unreliable([always])) as extender:
        refused = await extender.create("refused", 1)
        others = [await extender.create(f"p{number}", 1) for number in range(4)]
        (first, _), *rest = await asyncio.gather(*(bind(extender, pod) for pod in (refused, *others)))
        assert "403" in first
        assert [error for error, _ in rest] == [""] * 4
