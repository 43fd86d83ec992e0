"""preempt spares pods whose disruption budgets bear no eviction, and tears no group apart, where others will do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from benchmarks.simulated.double.server import FaultInjector, Faultless, Handler
from benchmarks.simulated.fleet import SimulatedNode
from extender.cluster.objects.kinds import Pod
from extender.features.configuration import load
from extender.kubernetes.kube import KubeApi
from extender.service import Extender
from extender.verbs.cost import Protection
from extender.verbs.victims import Candidate
from extender.verbs.wire import ExtenderPreemptionArgs, MetaPod, MetaVictims
from tests.extender.builders import PAIRS, budget, claim, cluster, gpus, node, pod
from tests.extender.polling import eventually
from tests.extender.serving import serving
from tests.extender.verbs.pairs import G, asker, decide, guest, machine, members, singles, victims
from topology.annotations import keys
from topology.effort import finish


def protected(at: int) -> Pod:
    """Build a pod with one GPU that a budget is about."""
    held = (G[at],)
    return pod(
        f"kept-{at}", on="n1", placed=held, phase="Running", terminated=False, priority=0, labels={"app": "kept"}
    )


def test_a_pod_whose_budget_bears_no_eviction_stays_where_others_will_do() -> None:
    """Though it matters less; kube-scheduler does not know that its GPU is needed, and did not offer it."""
    guests = (guest("a", 0), guest("b", 2, priority=5), protected(1), guest("d", 3, priority=5))
    idle = (G[4], G[6])
    for allowed, expected in ((0, ["b", "d"]), (1, ["a", "kept-1"])):
        state = cluster(machine(*guests, sick=idle), *guests, budgets=[budget("b", allowed, app="kept")])
        assert sorted(victims(state, asker(), "a", "b") or ()) == expected


def test_where_no_other_will_do_the_budget_yields_and_kube_scheduler_hears_of_it() -> None:
    """As its own preemption does: it counts the violation and prefers other nodes."""
    guests = (guest("a", 0), protected(1))
    sick = tuple(G[2:])
    state = cluster(machine(*guests, sick=sick), *guests, budgets=[budget("b", 0, app="kept")])
    answer = decide(state, ExtenderPreemptionArgs(asker(), None, {"n1": MetaVictims([MetaPod("a")], 0)}))
    assert (sorted(answer["n1"].uids), answer["n1"].num_pdb_violations) == (["a", "kept-1"], 1)


def test_a_pod_whose_eviction_a_budget_has_counted_already_violates_nothing() -> None:
    """It is in `disruptedPods`, and on its way."""
    guests = (guest("a", 0), protected(1), guest("b", 2, priority=5), guest("d", 3, priority=5))
    state = cluster(machine(*guests, sick=(G[4], G[6])), *guests, budgets=[budget("b", 0, "kept-1", app="kept")])
    assert victims(state, asker(), "b", "d") == ["a", "kept-1"]


def test_violations_among_victims_without_gpus_stay_as_they_were_counted() -> None:
    """We keep nothing of such pods that a budget could be held to."""
    guests = singles(*[0] * 8)
    state = cluster(machine(*guests), *guests, budgets=[])
    offered = MetaVictims([MetaPod("web"), MetaPod("c"), MetaPod("d")], 1)
    assert decide(state, ExtenderPreemptionArgs(asker(), None, {"n1": offered})) == {"n1": offered}


def test_where_budgets_may_not_be_read_kube_schedulers_word_counts() -> None:
    """Whom it did not offer it may have spared for a budget."""
    guests = singles(5, 5, 7, 0, 1, 2, 5, 5)
    unknown, none = cluster(machine(*guests), *guests), cluster(machine(*guests), *guests, budgets=[])
    assert victims(unknown, asker(), "a", "b") == ["a", "b"]
    assert victims(none, asker(), "a", "b") == ["f", "e"]


def test_spared_pods_stay_and_of_these_the_offered_ones_count_as_gone() -> None:
    """Such as pods that are ending already: with the GPU of one of them, one victim is enough for a pair."""
    guests = singles(*[0] * 8)
    state = cluster(machine(*guests), *guests, budgets=[])
    request = state.request_of(asker()).request
    for offered, expected in ((("a",), ["a", "b"]), ((), ["g", "h"])):
        spared = {*"acdef"}
        search = Candidate(state.views["n1"], asker(), request, Counter(), offered, Protection(), spared).search()
        assert sorted(finish(search)) == expected


def test_a_group_is_not_torn_apart_where_others_will_do() -> None:
    """Whoever loses one pod of a group loses the work of all, so two others go rather than one of them."""
    team = members("team", 0, 1) + members("team", 0, on="n2")
    guests = (*team[:2], guest("c", 2), guest("d", 3))
    elsewhere = node("n2", PAIRS, claims=tuple(claim(gpu, "team-0-far") for gpu in gpus("n2", 0, machine_name=PAIRS)))
    far = msgspec.structs.replace(team[2], metadata=msgspec.structs.replace(team[2].metadata, name="far", uid="far"))
    idle = (G[4], G[6])
    for is_known in (False, True):
        state = cluster(machine(*guests, sick=idle), elsewhere, *guests, far, budgets=[] if is_known else None)
        assert victims(state, asker(), "team-0", "c") == ["c", "d"]


def test_a_whole_group_may_go() -> None:
    """Nobody of it is left whose work would be lost."""
    team = members("team", 0, 1)
    guests = (*team, guest("c", 2, priority=5), guest("d", 3, priority=5))
    state = cluster(machine(*guests, sick=(G[4], G[6])), *guests, budgets=[])
    assert victims(state, asker(), "c", "d") == ["team-0", "team-1"]


def test_nobody_of_a_group_goes_for_its_wholeness() -> None:
    """One GPU is asked for; that the group is torn costs it less than two pods."""
    team = members("team", 0, 1)
    state = cluster(machine(*team, sick=tuple(G[2:])), *team, budgets=[])
    assert victims(state, asker(1, wants={keys.COMMUNICATION: "none"}), "team-0") == ["team-0"]


def test_members_that_wait_or_have_ended_are_torn_from_nobody() -> None:
    """They have no work to lose."""
    waiting = pod("waits", wants={keys.GROUP: "team"})
    ended = pod("ended", on="n2", phase="Succeeded", wants={keys.GROUP: "team"})
    guests = (*members("team", 0, priority=-5), guest("b", 1), guest("c", 2), guest("d", 3))
    state = cluster(machine(*guests, sick=(G[4], G[6])), waiting, ended, *guests, budgets=[])
    assert victims(state, asker(), "c", "d") == ["b", "team-0"], "the sum of priorities decides"


def test_a_node_where_a_group_would_be_torn_is_left_out_where_another_spares_it() -> None:
    """To kube-scheduler both are equals, and it would draw lots."""
    torn = members("team", 0, 2, 4, 6)
    single = tuple(
        pod(f"s{at}", on="n2", placed=(gpu,), phase="Running", terminated=False)
        for at, gpu in enumerate(gpus("n2", 0, 2, 4, 6, machine_name=PAIRS))
    )
    claims = tuple(claim(gpu, f"s{at}") for at, gpu in enumerate(gpus("n2", 0, 2, 4, 6, machine_name=PAIRS)))
    sick = gpus("n2", 1, 3, 5, 7, machine_name=PAIRS)
    first = machine(*torn, sick=(G[1], G[3], G[5], G[7]))
    state = cluster(first, node("n2", PAIRS, claims=claims, sick=sick), *torn, *single, budgets=[])
    offered = {"n1": MetaVictims([MetaPod("team-0")]), "n2": MetaVictims([MetaPod("s0")])}
    asking = asker(1, wants={keys.COMMUNICATION: "none"})
    assert decide(state, ExtenderPreemptionArgs(asking, None, offered)).keys() == {"n2"}
    del offered["n2"]
    assert decide(state, ExtenderPreemptionArgs(asking, None, offered)).keys() == {"n1"}


class NoBudgets(Faultless):
    """An API server whose RBAC does not let the extender read budgets."""

    async def exchange(self, request: web.BaseRequest, handler: Handler) -> web.StreamResponse:
        """Refuse that, and nothing else."""
        is_about_them = "poddisruptionbudgets" in request.path and request.method == "GET"
        return web.json_response({"code": 403}, status=403) if is_about_them else await handler(request)


@pytest.mark.slow
@pytest.mark.parametrize(("faults", "known"), [(None, True), (NoBudgets(), False)], ids=["may read", "denied"])
async def test_budgets_are_watched_where_they_may_be_read(
    tmp_path: Path, faults: FaultInjector | None, known: bool
) -> None:
    """Elsewhere the extender is ready all the same, keeps to what kube-scheduler has counted, and a gauge says so."""
    async with serving(tmp_path, SimulatedNode("n1", "t4-4", used=(0, 1, 2, 3)), faults=faults) as extender:
        occupant = (await extender.api.call("GET", "/api/v1/namespaces/default/pods/n1-occupant")).ok()
        policy = {"metadata": {"name": "all"}, "spec": {"selector": {}}, "status": {"disruptionsAllowed": 0}}
        (await extender.api.call("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", policy)).ok()
        asking = await extender.create("vip", 2)
        asking["spec"]["priority"] = 1000
        offered = {"n1": {"Pods": [{"UID": occupant["metadata"]["uid"]}], "NumPDBViolations": 0}}
        body = {"Pod": asking, "NodeNameToVictims": None, "NodeNameToMetaVictims": offered}

        async def is_told() -> bool:
            _, answer = await extender.post("preempt", body)
            return bool(answer["NodeNameToMetaVictims"]["n1"]["NumPDBViolations"] == known)

        await eventually(is_told)
        assert await extender.is_ready()
        assert f"gputopo_budgets_known {known:.1f}" in (await extender.get("/metrics"))[1]
        front = (await extender.get("/"))[1]
        assert ("PodDisruptionBudgets are not read here" in front) is not known
        assert "placed by other schedulers: 1" in front, "the occupant is"


def test_budgets_that_may_be_read_no_longer_count_as_unknown(tmp_path: Path) -> None:
    """What was read before may be out of date."""
    extender = Extender(load(None, {}, {}), KubeApi.from_kubeconfig(tmp_path / "nobody"))
    extender.state.budgets.replaced([])
    known = [extender.state.budgets.known]
    extender.condition.watches.budgets.denied = True
    assert [*known, extender.state.budgets.known] == [True, False]
