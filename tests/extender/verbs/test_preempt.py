"""preempt names the pods whose GPUs form the set that is asked for: the least important ones, and no more than it takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from benchmarks.simulated.double.server import Faultless, Faults, Handler
from benchmarks.simulated.fleet import SimulatedNode
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.objects.quantities import quantity, requests
from extender.cluster.state import ClusterState
from extender.verbs.preempt import preempt
from extender.verbs.victims import EXACT_PODS
from extender.verbs.wire import ExtenderPreemptionArgs, MetaPod, MetaVictims, Victims
from tests.extender.builders import PAIRS, at, budget, claim, cluster, finish, gpus, node, pod
from tests.extender.polling import eventually
from tests.extender.serving import serving
from topology.annotations import keys

G = gpus("n1", *range(8), machine_name=PAIRS)
RING = {keys.REQUIRED_AFFINITY: "nvlink"}


def guest(name: str, *positions: int, priority: int = 0, cpu: str = "") -> Pod:
    """Build a pod that runs on n1 with these GPUs."""
    placed = tuple(G[position] for position in positions)
    return pod(name, len(placed), on="n1", placed=placed, phase="Running", terminated=False, priority=priority, cpu=cpu)


def members(group: str, *positions: int, on: str = "n1", **more: Any) -> tuple[Pod, ...]:
    """Build members of a group with one GPU each, called by its position."""
    held = gpus(on, *positions, machine_name=PAIRS)
    pods = (
        pod(f"{group}-{at}", on=on, placed=(gpu,), phase="Running", terminated=False, wants={keys.GROUP: group}, **more)
        for at, gpu in zip(positions, held, strict=True)
    )
    return tuple(pods)


def asker(count: int = 2, *, wants: dict[str, str] | None = None, cpu: str = "") -> Pod:
    """Build an important pod that has no place."""
    return pod("vip", count, wants=wants or RING, priority=1000, cpu=cpu)


def machine(*guests: Pod, sick: tuple[str, ...] = ()) -> Node:
    """Return n1, four NVLink pairs, with the claims of these pods."""
    claims = [claim(gpu, guest.metadata.uid) for guest in guests for gpu in placed(guest)]
    return node("n1", PAIRS, claims=tuple(claims), sick=sick)


def placed(guest: Pod) -> list[str]:
    text = (guest.metadata.annotations or {})[keys.PLACEMENT]
    return [gpu for gpu in G if gpu in text]


def decide(state: ClusterState, args: ExtenderPreemptionArgs) -> dict[str, MetaVictims]:
    """Return the whole answer, in a time that stands still."""
    return finish(preempt(state, args, at, budget_seconds=1.0)).victims


def victims(state: ClusterState, asking: Pod, *offered: str) -> list[str] | None:
    """Return who has to go from n1 if these are offered; `None`: eviction there does not help."""
    candidates = {"n1": MetaVictims([MetaPod(uid) for uid in offered])}
    answer = decide(state, ExtenderPreemptionArgs(asking, None, candidates))
    return answer["n1"].uids if "n1" in answer else None


def singles(*priorities: int) -> tuple[Pod, ...]:
    """Build pods a, b, c … with one GPU each."""
    return tuple(guest("abcdefgh"[at], at, priority=priority) for at, priority in enumerate(priorities))


def test_victims_are_chosen_so_that_their_gpus_form_the_set() -> None:
    """kube-scheduler counted two out that are not joined; one of them and its neighbour are."""
    guests = singles(*[0] * 8)
    assert victims(cluster(machine(*guests), *guests), asker(), "a", "d") in (["a", "b"], ["d", "c"])


def test_offered_victims_that_form_the_set_stay_as_they_are() -> None:
    """Nothing is gained by others."""
    guests = singles(*[0] * 8)
    assert victims(cluster(machine(*guests), *guests), asker(), "c", "d") == ["c", "d"]


def test_the_least_important_pods_go_first() -> None:
    """Where those that were offered do not form the set."""
    guests = singles(5, 5, 7, 0, 1, 2, 5, 5)
    assert victims(cluster(machine(*guests), *guests), asker(), "a", "c") == ["f", "e"]


def test_of_equals_as_few_as_possible_go() -> None:
    """One pod with both GPUs of a pair, rather than two with one each."""
    guests = (*singles(*[0] * 6), guest("pair", 6, 7))
    assert victims(cluster(machine(*guests), *guests), asker(), "a", "c") == ["pair"]


def test_two_pods_cost_more_than_one_whatever_the_sign_of_their_priorities() -> None:
    """kube-scheduler adds them up from the least there is."""
    guests = (*singles(*[-5] * 6), guest("pair", 6, 7, priority=-5))
    assert victims(cluster(machine(*guests), *guests, budgets=[]), asker(), "a", "c") == ["pair"]


def test_free_gpus_are_used_first() -> None:
    """Of a pair that is half free one pod has to go."""
    guests = tuple(found for found in singles(*[0] * 8) if found.metadata.name != "c")
    assert victims(cluster(machine(*guests), *guests), asker(), "a") == ["d"]


def test_pods_of_the_same_priority_are_nobodys_victims() -> None:
    """Nor those of a higher one."""
    guests = singles(1000, 0, 2000, 0, 1000, 0, 0, 1000)
    assert victims(cluster(machine(*guests), *guests), asker(), "b", "d") is None


def test_a_sick_gpu_is_not_won_by_eviction() -> None:
    """Its pod may live."""
    guests = singles(*[0] * 4)
    state = cluster(machine(*guests, sick=(G[0], G[4], G[6])), *guests)
    assert victims(state, asker(), "a", "b") == ["c", "d"]


def test_a_node_where_no_eviction_forms_the_set_is_left_out() -> None:
    """Four GPUs of this machine never share a ring."""
    guests = singles(*[0] * 8)
    assert victims(cluster(machine(*guests), *guests), asker(4), "a", "b", "c", "d") is None


def test_a_closed_node_is_left_out() -> None:
    """Whatever is evicted there, nothing is bound to it."""
    guests = singles(*[0] * 8)
    state = cluster(node("n1", PAIRS, ledger='{"v":9}'), *guests)
    assert victims(state, asker(), "a", "b") is None


def test_victims_without_gpus_go_in_any_case() -> None:
    """They are in the way of something that we do not see; their place in the order is kept."""
    guests = singles(*[0] * 8)
    chosen = victims(cluster(machine(*guests), *guests), asker(), "web", "a", "d")
    assert chosen is not None
    assert chosen[0] == "web"
    assert sorted(chosen[1:]) in (["a", "b"], ["c", "d"])


def test_as_much_is_freed_of_every_resource_as_the_pod_needs() -> None:
    """What was offered made room for its CPUs, too."""
    guests = (guest("a", 0, cpu="500m"), guest("b", 1, cpu="500m"), guest("c", 2, cpu="4"), guest("d", 4, cpu="4"))
    state = cluster(machine(*guests, sick=(G[3], G[5], G[6], G[7])), *guests)
    assert victims(state, asker(cpu="1"), "c", "d") == ["a", "b"]
    assert sorted(victims(state, asker(cpu="2"), "c", "d") or ()) == ["a", "b", "c"]


def test_disruption_budgets_stay_as_kube_scheduler_counted_them() -> None:
    """It picks the node with the fewest violations."""
    guests = singles(*[0] * 8)
    state = cluster(machine(*guests), *guests)
    offered = MetaVictims([MetaPod("c"), MetaPod("d")], 2)
    assert decide(state, ExtenderPreemptionArgs(asker(), None, {"n1": offered})) == {"n1": offered}


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


def test_the_first_victim_counts_as_the_most_important() -> None:
    """kube-scheduler compares nodes by it."""
    guests = singles(1, 2, 9, 9, 9, 9, 9, 9)
    assert victims(cluster(machine(*guests), *guests), asker(), "a") == ["b", "a"]


def test_many_small_pods_are_spared_one_by_one() -> None:
    """Beyond the number up to which every choice is looked at, the result still forms the set, and nobody goes for nothing."""
    whole = gpus("n1", *range(16), machine_name="dgx-2")
    guests = tuple(
        pod(f"p{at:02}", on="n1", placed=(gpu,), phase="Running", priority=at) for at, gpu in enumerate(whole)
    )
    assert len(guests) > EXACT_PODS
    claims = tuple(claim(gpu, f"p{at:02}") for at, gpu in enumerate(whole))
    state = cluster(node("n1", "dgx-2", claims=claims), *guests)
    assert victims(state, asker(4), "p13", "p14", "p15") == ["p03", "p02", "p01", "p00"]


def test_whole_pods_are_understood_where_the_scheduler_does_not_send_names() -> None:
    """The answer is in names all the same."""
    guests = singles(*[0] * 8)
    state = cluster(machine(*guests), *guests)
    args = ExtenderPreemptionArgs(asker(), {"n1": Victims([guests[2], guests[3]], 1)}, None)
    answer = decide(state, args)
    assert (answer["n1"].uids, answer["n1"].num_pdb_violations) == (["c", "d"], 1)


@pytest.mark.parametrize("asking", [pod("vip", "1.5", priority=9), pod("vip", 2, wants={keys.MIN_BANDWIDTH: "fast"})])
def test_a_pod_that_cannot_be_read_evicts_nobody(asking: Pod) -> None:
    """It would not be bound afterwards."""
    guests = singles(*[0] * 8)
    assert victims(cluster(machine(*guests), *guests), asking, "a", "b") is None


def test_a_pod_without_gpus_is_none_of_our_business() -> None:
    """What was offered goes back."""
    assert victims(cluster(machine()), pod("vip", 0), "web") == ["web"]


def test_a_pod_without_gpus_is_none_of_our_business_whatever_else_it_asks_for() -> None:
    """kube-scheduler reads quantities that we do not; without an answer of ours nobody would make room for it."""
    assert victims(cluster(machine()), pod("vip", 0, cpu="+1"), "web") == ["web"]


def test_a_pod_that_has_ended_is_nobodys_victim() -> None:
    """kube-scheduler does not count it among the node's pods, and a victim that it does not know fails the whole call."""
    guests = singles(*[0] * 8)
    lost = msgspec.structs.replace(guests[1], status=msgspec.structs.replace(guests[1].status, phase="Failed"))
    state = cluster(machine(*guests), *guests)
    state.pods.changed(
        msgspec.structs.replace(lost, metadata=msgspec.structs.replace(lost.metadata, resource_version="2"))
    )
    assert sorted(victims(state, asker(), "a", "d") or ()) == ["c", "d"]


def test_offered_victims_go_before_others_of_less_importance() -> None:
    """kube-scheduler spared those by a disruption budget, or needs the offered ones gone for what we cannot see."""
    guests = singles(5, 5, 7, 0, 1, 2, 5, 5)
    assert victims(cluster(machine(*guests), *guests), asker(), "a", "b") == ["a", "b"]


def test_a_call_about_many_nodes_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pod takes is read once, not once for each choice that it is part of."""
    read: list[str] = []

    def count(asked: Pod) -> Counter[str]:
        read.append(asked.metadata.uid)
        return requests(asked)

    monkeypatch.setattr("extender.verbs.preempt.requests", count)
    monkeypatch.setattr("extender.verbs.victims.requests", count)
    guests = singles(*[0] * 8)
    assert victims(cluster(machine(*guests), *guests), asker(8, wants={keys.COMMUNICATION: "none"}), *"abcdefgh")
    assert len(read) == len(set(read)) == 9


@pytest.mark.parametrize(("text", "value"), [("1", 1), ("250m", 0.25), ("1Gi", 2**30), ("1.5k", 1500), ("2e3", 2000)])
def test_quantities(text: str, value: float) -> None:
    """As Kubernetes writes them."""
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "-1", "1 Gi", "٣", "1_000", "NaN", "9" * 5000, "1e999"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """I2."""
    with pytest.raises(ValueError, match="not a quantity"):
        quantity(text)


def test_requests_are_those_of_the_larger_of_starting_and_running() -> None:
    """As kube-scheduler counts them."""
    assert requests(pod("p", 2, cpu="1500m")) == {keys.GPU_RESOURCE: 2, "cpu": 1.5}


class NoBudgets(Faultless):
    """An API server whose RBAC does not let the extender read budgets."""

    async def exchange(self, request: web.BaseRequest, handler: Handler) -> web.StreamResponse:
        """Refuse that, and nothing else."""
        is_about_them = "poddisruptionbudgets" in request.path and request.method == "GET"
        return web.json_response({"code": 403}, status=403) if is_about_them else await handler(request)


@pytest.mark.parametrize(("faults", "known"), [(None, 1), (NoBudgets(), 0)], ids=["may read", "denied"])
async def test_budgets_are_watched_where_they_may_be_read(tmp_path: Path, faults: Faults | None, known: int) -> None:
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


async def test_the_verb_answers_over_http(tmp_path: Path) -> None:
    """With kube-scheduler's bytes, and a count of its answers."""
    async with serving(tmp_path, SimulatedNode("n1", "t4-4", used=(0, 1, 2, 3))) as extender:
        asking = await extender.create("vip", 2)
        occupant = (await extender.api.call("GET", "/api/v1/namespaces/default/pods/n1-occupant")).ok()
        asking["spec"]["priority"] = 1000
        offered = {"n1": {"Pods": [{"UID": occupant["metadata"]["uid"]}], "NumPDBViolations": 0}}
        body = {"Pod": asking, "NodeNameToVictims": None, "NodeNameToMetaVictims": offered}
        assert await extender.post("preempt", body) == (200, {"NodeNameToMetaVictims": offered})
        assert 'gputopo_verdicts_total{reason="victims",verb="preempt"} 1.0' in (await extender.get("/metrics"))[1]
