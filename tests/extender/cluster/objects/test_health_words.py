"""What other health agents say on a Node is found by a table of words, and closes it only where an operator says so."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.objects.health_signs import MAX_DETAIL_CHARACTERS, MAX_NAME_CHARACTERS, MAX_SIGNS, HealthWords
from extender.cluster.objects.kinds import Node, NodeCondition, NodeSpec, NodeStatus, ObjectMeta, Taint
from extender.config.health_words import KNOWN, HealthWord, WordKind, condition, label, taint

STATE = "dgxc.nvidia.com/nvsentinel-state"
KUBELETS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "KernelDeadlock")


def node(*conditions: NodeCondition, labels: dict[str, str] | None = None, taints: tuple[Taint, ...] = ()) -> Node:
    return Node(ObjectMeta("n1", labels=labels), NodeStatus(None, list(conditions)), NodeSpec(list(taints)))


def texts(found: Node, *more: HealthWord) -> list[str]:
    return [sign.text for sign in HealthWords(more).signs(found)]


@pytest.mark.parametrize(
    ("said", "agent"),
    [
        (NodeCondition("GpuMemWatch", "True"), "NVSentinel"),
        (NodeCondition("GpuNvlinkWatch", "True"), "NVSentinel"),
        (NodeCondition("SysLogsXIDError", "True"), "NVSentinel"),
        (NodeCondition("SysLogsGPUFallenOff", "True"), "NVSentinel"),
        (NodeCondition("NVSwitchFatalError", "True"), "NVSentinel"),
        (NodeCondition("MultipleRemediations", "True"), "NVSentinel"),
        (NodeCondition("XidCriticalError", "True"), "GKE"),
        (NodeCondition("GPUMissing", "True"), "AKS"),
        (NodeCondition("NVLinkStatusInactive", "True"), "AKS"),
        (NodeCondition("XIDErrors", "True"), "AKS"),
        (NodeCondition("IBLinkFlapping", "True"), "AKS"),
        (NodeCondition("AcceleratedHardwareReady", "False"), "EKS"),
        (NodeCondition("NebiusGPUError", "True"), "Nebius"),
    ],
    ids=lambda value: value.type if isinstance(value, NodeCondition) else value,
)
def test_a_condition_counts_in_its_bad_status_only(said: NodeCondition, agent: str) -> None:
    """Agents leave their conditions in place and turn them; who does not know says nothing."""
    (sign,) = HealthWords().signs(node(said))
    assert (sign.kind, sign.name, sign.value, sign.agent) == (WordKind.CONDITION, said.type, said.status, agent)
    well = {"True": "False", "False": "True"}[said.status]
    assert texts(node(NodeCondition(said.type, well))) == texts(node(NodeCondition(said.type, "Unknown"))) == []


def test_labels_and_taints_are_read_too() -> None:
    """NVSentinel's course of a repair, and the taints that its guide names."""
    found = node(
        labels={STATE: "draining", "a": "b"}, taints=(Taint("nvidia.com/gpu-xid-error", "NoSchedule", "true"),)
    )
    assert texts(found) == [f"label {STATE}=draining", "taint nvidia.com/gpu-xid-error=true:NoSchedule"]


def test_what_a_condition_says_is_kept_with_it() -> None:
    """Reason and message as they stand there, bounded: anybody who may write a node's status may write a book."""
    (short,) = HealthWords().signs(node(NodeCondition("XIDErrors", "True", "XIDErrorsPresent", "XID 79 in the log")))
    (long,) = HealthWords().signs(node(NodeCondition("XIDErrors", "True", "R", "x" * 10_000)))
    assert short.detail == "XIDErrorsPresent: XID 79 in the log"
    assert len(long.detail) == MAX_DETAIL_CHARACTERS


@pytest.mark.slow
@given(
    st.lists(st.sampled_from(["True", "False", "Unknown"]).map(lambda status: ("GpuMemWatch", status))),
    st.sets(st.sampled_from([word.name.replace("*", "X") for word in KNOWN])),
    st.dictionaries(st.sampled_from([STATE, "other"]), st.text(max_size=5)),
)
def test_nothing_closes_a_node_by_default(said: list[tuple[str, str]], names: set[str], labels: dict[str, str]) -> None:
    """Whatever others say: their words name no GPU."""
    conditions = [NodeCondition(name, status) for name, status in (*said, *((name, "True") for name in names))]
    taints = tuple(Taint(name, "NoSchedule") for name in names)
    assert all(sign.closes is None for sign in HealthWords().signs(node(*conditions, labels=labels, taints=taints)))


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(KUBELETS), st.sampled_from(["True", "False"]))), st.text(), st.text())
def test_a_node_without_any_of_the_words_says_nothing(said: list[tuple[str, str]], reason: str, message: str) -> None:
    """The kubelet's own conditions among them, in whatever state they are."""
    found = node(*(NodeCondition(name, status, reason, message) for name, status in said), labels={"gpu": "sick"})
    assert HealthWords().signs(found) == ()


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (condition("XidCriticalError"), "closed by condition XidCriticalError=True"),
        (condition("Xid*"), "closed by condition XidCriticalError=True"),
        (label(STATE), f"closed by label {STATE}"),
        (label(f"{STATE}=drain*"), f"closed by label {STATE}"),
        (label(f"{STATE}=draining"), f"closed by label {STATE}=draining"),
        (taint("example.com/*"), "closed by taint example.com/sick"),
        (taint("example.com/sick:NoExecute"), "closed by taint example.com/sick"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_word_that_closes_gives_a_reason_that_can_be_counted(word: HealthWord, reason: str) -> None:
    """Values that differ from node to node are left out of it, messages always."""
    found = node(
        NodeCondition("XidCriticalError", "True", '{"79":true}', "boot 7"),
        labels={STATE: "draining"},
        taints=(Taint("example.com/sick", "NoExecute", "since-noon"),),
    )
    signs = HealthWords([replace(word, closes=True)]).signs(found)
    assert [sign.closes for sign in signs if sign.closes] == [reason]
    assert signs[0].closes == reason


def test_a_word_that_closes_keeps_the_name_of_who_says_it() -> None:
    """The operator names the word, the table knows whose it is."""
    (sign,) = HealthWords([HealthWord(WordKind.CONDITION, "XIDErrors", "True", closes=True)]).signs(
        node(NodeCondition("XIDErrors", "True"))
    )
    assert (sign.agent, sign.closes) == ("AKS", "closed by condition XIDErrors=True")


def test_words_that_an_operator_adds_are_shown() -> None:
    """Conditions, labels and taints of agents that nobody here knows of."""
    found = node(NodeCondition("FansReady", "False"), labels={"example.com/gpu": "bad"})
    assert texts(found, condition("FansReady=False"), label("example.com/*=b*")) == [
        "condition FansReady=False",
        "label example.com/gpu=bad",
    ]


def test_a_flood_of_signs_is_cut_and_what_closes_stays() -> None:
    """However many conditions a node has, few are kept, and the one that matters is among them."""
    flood = [NodeCondition(f"Gpu{number:04}Watch", "True") for number in range(1000)]
    words = HealthWords([HealthWord(WordKind.CONDITION, "Gpu0999Watch", "True", closes=True)])
    signs = words.signs(node(*flood, NodeCondition(f"Gpu{'x' * MAX_NAME_CHARACTERS}Watch", "True")))
    assert len(signs) == MAX_SIGNS
    assert signs[0].closes == "closed by condition Gpu0999Watch=True"
    assert all(len(sign.name) <= MAX_NAME_CHARACTERS for sign in signs)


@pytest.mark.parametrize("name", ["GpuBooWatch\n", "Gpu Boo Watch", "Gpu<b>Watch", "Gpu\x1b[31mWatch", "GpuüWatch"])
def test_a_name_that_is_none_is_nobodys(name: str) -> None:
    """The API server takes any text for the type of a condition; a reason with one would be in every pod's event."""
    assert texts(node(NodeCondition(name, "True")), condition("Gpu*")) == []


def test_taints_and_conditions_are_read_as_the_api_server_sends_them() -> None:
    """Without a value where a taint has none, and without a reason where a condition has none."""
    document = (
        b'{"metadata":{"name":"n1"},"spec":{"taints":[{"key":"nvidia.com/gpu-error","effect":"NoSchedule"}]},'
        b'"status":{"conditions":[{"type":"GPUMissing","status":"True","lastHeartbeatTime":null}]}}'
    )
    found = msgspec.json.decode(document, type=Node)
    assert texts(found) == ["condition GPUMissing=True", "taint nvidia.com/gpu-error=:NoSchedule"]
