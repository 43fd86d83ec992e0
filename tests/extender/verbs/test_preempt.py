"""preempt names the pods whose GPUs form the set that is asked for: the least important ones, and no more than it takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from benchmarks.simulated.fleet import SimulatedNode
from extender.cluster.objects.kinds import Pod
from extender.cluster.objects.quantities import quantity, requests
from extender.verbs.victims import EXACT_PODS
from extender.verbs.wire import ExtenderPreemptionArgs, MetaPod, MetaVictims, Victims
from tests.extender.builders import PAIRS, claim, cluster, gpus, node, pod
from tests.extender.serving import serving
from tests.extender.verbs.pairs import G, asker, decide, guest, machine, singles, victims
from topology.annotations import keys


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


@pytest.mark.slow
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
