"""What is hidden from whom: names of pods in namespaces that the reader may not see; counts and states stay."""

from __future__ import annotations

import pytest

from extender.config.health_words import WordKind
from extender.inspect.inspection import Explanation, GpuInfo, NodeDetail, PodInfo, Refusal
from extender.inspect.new_nodes import NewNodes
from extender.inspect.nvlinks import LinkFaultInfo
from extender.inspect.offers import OfferInfo
from extender.inspect.outlook import OutlookInfo
from extender.inspect.shares import SharedGpuInfo, ShareInfo, SharingInfo
from extender.inspect.sight import EVERYTHING, HIDDEN, Sight
from extender.inspect.slices import SliceInfo
from extender.inspect.words import ClaimedDeviceInfo, DevicePluginInfo, SignInfo, UnknownHolderInfo
from topology.node.sharing import Limits
from topology.node.status import Mode

ML = Sight(frozenset({"ml"}))
NOTHING = Sight(frozenset())
SAID = "held by secret/pod, ml/train and pods/secret/pod"
"""What a reason may say."""


def gpu(index: int, pod: str | None) -> GpuInfo:
    return GpuInfo(
        index=index,
        uuid=f"GPU-{index}",
        model="H100",
        memory_bytes=None,
        numa_node=None,
        state="claimed" if pod else "free",
        pod=pod,
        container="container-of-the-pod" if pod else None,
        reasons=(SAID,),
        outlook=OutlookInfo(since=None, next=SAID, until=None, remedy=SAID),
        shared_nics=(SAID,),
    )


def share(pod: str) -> ShareInfo:
    return ShareInfo(pod=pod, container="container-of-the-pod", memory_gib=8, sharing_class="class-of-the-pod")


NODE = NodeDetail(
    name="n1",
    free=1,
    closed=SAID,
    set_aside=SAID,
    gpus=(gpu(0, "secret/pod"), gpu(1, "ml/train"), gpu(2, None)),
    slices=(
        SliceInfo(
            gpu=0,
            profile="1g.10gb",
            uuid="MIG-0",
            memory_bytes=1,
            start=0,
            size=1,
            state="claimed",
            pod="secret/pod",
            container="container-of-the-pod",
            reasons=(SAID,),
        ),
    ),
    shared=(
        SharedGpuInfo(
            gpu=0,
            uuid="GPU-0",
            share_gib=16,
            left_gib=0,
            beyond_shares_gib=0,
            sharing_class=None,
            shares=(share("secret/pod"), share("ml/train")),
        ),
    ),
    matrix=(("X",),),
    driver_version="580",
    cuda_version="13.0",
    best_sets=(),
    device_plugin=DevicePluginInfo(mode=Mode.OBSERVE, ready=False, reasons=(SAID,)),
    sharing=SharingInfo(max_gpus=1, limits=Limits.NONE, reasons=(SAID,)),
    offers=(OfferInfo(gpus=(0,), offered="whole"),),
    link_faults=(LinkFaultInfo(index=0, uuid="GPU-0", links=(1,), reason=SAID, since=None, until=None),),
    signs=(SignInfo(kind=WordKind.CONDITION, name="c", value="v", agent="a", detail="pod of secret", closes=False),),
    unknown_holders=(UnknownHolderInfo(pod="secret/pod", gpus=2, is_elsewhere=False),),
    unknown_devices=(ClaimedDeviceInfo(claim="secret/claim", device="gpu-0"),),
)


def test_no_name_of_a_hidden_namespace_is_left_anywhere_on_a_node() -> None:
    """Neither in a field of its own nor in a sentence, and no container or class of such a pod."""
    shown = ML.node(NODE).model_dump_json()
    assert "secret" not in shown
    assert shown.count("container-of-the-pod") == shown.count("class-of-the-pod") + 1 == 2
    assert "ml/train" in shown


def test_counts_and_states_stay() -> None:
    """A reader who may see no pod at all sees how many GPUs are held, and how much of a shared one."""
    shown = NOTHING.node(NODE)
    assert (shown.free, [device.state for device in shown.gpus]) == (1, ["claimed", "claimed", "free"])
    assert [device.pod for device in shown.gpus] == [HIDDEN, HIDDEN, None]
    assert [(one.pod, one.memory_gib) for one in shown.shared[0].shares] == [(HIDDEN, 8), (HIDDEN, 8)]
    assert shown.unknown_holders[0].gpus == 2


def test_every_field_of_a_node_is_decided_about() -> None:
    """A field that is new may name pods: hide them in `Sight`, fill it in above, and add it here."""
    without_names = {"name", "free", "by_claim", "matrix", "driver_version", "cuda_version", "best_sets", "offers"}
    hidden = {name for name in NodeDetail.model_fields if getattr(NODE, name) != getattr(NOTHING.node(NODE), name)}
    assert hidden | without_names == set(NodeDetail.model_fields)
    assert set(GpuInfo.model_fields) == {
        *("index", "uuid", "model", "memory_bytes", "numa_node", "state", "doubtful"),
        *("pod", "container", "reasons", "outlook", "shared_nics"),
    }


def test_an_operator_sees_everything_as_it_is() -> None:
    """Nothing is copied."""
    assert EVERYTHING.node(NODE) is NODE
    assert EVERYTHING.sees("secret")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("secret/pod has 4, ml/train has 2", f"{HIDDEN} has 4, ml/train has 2"),
        ("`secret/pod`, (secret/pod.)", f"`{HIDDEN}`, ({HIDDEN})"),
        ("namespaces/secret/pods/pod", HIDDEN),
        ("nvidia.com/gpu, gputopo.dev/relax-after", "nvidia.com/gpu, gputopo.dev/relax-after"),
        ("ml-2/pod and x.ml/pod", f"{HIDDEN} and x.ml/pod"),
    ],
)
def test_a_sentence_loses_the_names_that_are_hidden(text: str, shown: str) -> None:
    """Whatever stands before or behind them; names of resources stay."""
    assert ML.text(text) == shown


def test_an_explanation_names_no_other_pod() -> None:
    """What a node has instead may say who has its GPUs."""
    pod = PodInfo(
        namespace="ml",
        name="train",
        uid="1",
        phase=None,
        gpus=1,
        node=None,
        containers=None,
        indexes=(),
        affinity=None,
        bandwidth_gb_per_s=None,
    )
    refusal = Refusal(reason="too-few-free", message=SAID, nodes=1, example="n1", figures=SAID, remedy=SAID)
    new_nodes = NewNodes(would_fit=("g",), placeholder="secret/placeholder")
    said = Explanation(pod=pod, fits=(), refusals=(refusal,), problem=None, new_nodes=new_nodes)
    assert "secret" not in ML.explanation(said).model_dump_json()
    assert EVERYTHING.explanation(said) is said


def test_readers_who_see_different_pods_have_different_keys() -> None:
    """By it pages are remembered."""
    sights = [EVERYTHING, NOTHING, ML, Sight(frozenset({"ml", "ops"})), Sight(frozenset({"ml"}), unasked=1)]
    sights.append(Sight(frozenset({"ml/ops"})))  # what a query names need not be a namespace
    assert len({sight.key for sight in sights}) == len(sights)
    assert Sight(frozenset({"ops", "ml"})).key == Sight(frozenset({"ml", "ops"})).key
