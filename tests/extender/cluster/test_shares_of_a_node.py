"""What is left of each GPU for shares, by all that can be known of it: what its node tells, what others have, what is hidden."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from extender.cluster.objects.payloads import NodePayloads
from extender.cluster.ownership.takers import Taker, Use
from extender.cluster.shares import known_as_shared, shares_of
from tests.extender.builders import cluster, gpus, node
from tests.extender.shares import SHARE_GIB, saw
from topology.annotations.records import Observed, encode_observed
from topology.annotations.status_codec import encode_status
from topology.node.sharing import Limits, Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, Mode, NodeGpuStatus
from topology.placement.shares import NO_SHARES, NOT_NOW, ONLY_ENFORCE, SharedGpu, Shares
from topology.value.coming_back import MANY_PODS

A, B, C, D, E, F, G, H = gpus("n1", *range(8))
ALL, HIDDEN_GIB = 0b1111_1111, 4
NOTHING = Observed({})
ON = DevicePluginStatus(Mode.ENFORCE, ready=True, sharing=Sharing(5, Limits.NONE))


def payloads(
    *states: GpuStatus, observed: Observed | None = NOTHING, plugin: DevicePluginStatus | None = ON, **texts: str | None
) -> NodePayloads:
    """Read what a node says; GPUs of which it says nothing have their GiB to share."""
    said = {state.uuid: state for state in states}
    every = [said.get(gpu, GpuStatus(gpu, share_gib=SHARE_GIB)) for gpu in (A, B, C, D, E, F, G, H)]
    status = NodeGpuStatus(1, tuple(every), device_plugin=plugin)
    written = {"status": encode_status(status), "observed": encode_observed(observed) if observed else None} | texts
    return cluster(node(**written)).views["n1"].payloads  # type: ignore[arg-type]


def use(*gib: int | None, sharing_class: str | None = "dev") -> Use:
    """Return the use of a GPU by one pod for each; `None`: it has all of it."""
    pods = [f"p{number}" for number in range(len(gib))]
    return Use(
        tuple(Taker(name, "ml", name, "main", each, sharing_class) for name, each in zip(pods, gib, strict=True))
    )


def left(said: NodePayloads, uses: Mapping[str, Use] = {}, free: int = ALL, fit: int = ALL) -> Shares:
    """Return what is left where shares of 4 GiB are somewhere on the node."""
    return shares_of(said, uses, free, fit, HIDDEN_GIB)


def test_what_others_have_and_what_is_hidden_is_not_left() -> None:
    """Of a GPU that is shared, by amount and class; less than nothing where too much is shared. Five GPUs may be shared."""
    uses = {A: use(10, 5), B: use(1, sharing_class=None), C: use(None), D: use(10), E: use(40, 40), F: use(*[1] * 30)}
    gib = SHARE_GIB - HIDDEN_GIB
    assert left(payloads(), uses, fit=ALL & ~0b1000) == Shares(
        (*[SHARE_GIB] * 6, gib, gib),
        (
            SharedGpu(0, gib - 15, "dev", 2),
            SharedGpu(1, 0, "", 1),
            SharedGpu(2, 0, "", 1),
            SharedGpu(3, 0, "", 1),
            SharedGpu(4, gib - 80, "dev", 2),
            SharedGpu(5, gib - 30, "dev", MANY_PODS),
        ),
        shareable=0b1100_0000,
        more=0,
    )


def test_gpus_are_as_the_agent_reports_them() -> None:
    """One that nobody has any more stays shared or whole until it says otherwise, unless it is asked how they would be."""
    said = payloads(observed=saw({A: {"gone": 10}, B: {"gone": 10}}, {C: "gone"}))
    gib = SHARE_GIB - HIDDEN_GIB
    assert known_as_shared(said) == {A, B}
    assert left(said, free=ALL & ~0b1000, fit=ALL & ~0b10) == Shares(
        (*[SHARE_GIB] * 4, *[gib] * 4),
        (SharedGpu(0, gib, None, 0), SharedGpu(1, 0, "", 0)),
        shareable=0b1111_0000,
        more=3,
    )
    would_be = shares_of(said, {}, ALL, ALL, HIDDEN_GIB, as_told=False)
    assert would_be == Shares((gib,) * 8, shareable=ALL, more=5)


def test_memory_beyond_shares_is_not_left() -> None:
    """A GPU of which nothing is left does not begin to be shared; one that is never shared has nothing beyond."""
    said = payloads(
        GpuStatus(A, share_gib=SHARE_GIB, beyond_shares_gib=30),
        GpuStatus(B, share_gib=SHARE_GIB, beyond_shares_gib=34),
        GpuStatus(C, share_gib=SHARE_GIB, beyond_shares_gib=35),
        GpuStatus(D, share_gib=SHARE_GIB, beyond_shares_gib=30),
        GpuStatus(E),
        GpuStatus(F, beyond_shares_gib=8),
    )
    gib = SHARE_GIB - HIDDEN_GIB
    assert left(said, {D: use(3)}, free=ALL & ~0b1100_1000) == Shares(
        (5, 1, SHARE_GIB, SHARE_GIB, 0, 0, SHARE_GIB, SHARE_GIB),
        (SharedGpu(3, gib - 33, "dev", 1),),
        shareable=0b11,
        more=4,
        beyond=0b1111,
    )


def test_no_share_is_left_of_a_gpu_of_which_the_node_says_nothing() -> None:
    """Its status is older than its topology: also where somebody has a share of it."""
    status = encode_status(NodeGpuStatus(1, (GpuStatus(H, share_gib=SHARE_GIB),), device_plugin=ON))
    shares = shares_of(payloads(status=status), {A: use(1)}, ALL, ALL, hidden_gib=0)
    assert shares == Shares((*[0] * 7, SHARE_GIB), (SharedGpu(0, -1, "dev", 1),), shareable=0b1000_0000, more=4)


@pytest.mark.parametrize(
    ("said", "shares"),
    [
        (payloads(topology=None), NO_SHARES),
        (payloads(status=None), NO_SHARES),
        (payloads(plugin=None), NO_SHARES),
        (payloads(plugin=DevicePluginStatus(Mode.ENFORCE, ready=True)), NO_SHARES),
        (payloads(plugin=DevicePluginStatus(Mode.OBSERVE, ready=True, sharing=ON.sharing)), Shares(refused=ONLY_ENFORCE)),
        (
            payloads(plugin=DevicePluginStatus(Mode.ENFORCE, ready=True, sharing=Sharing(0, Limits.NONE, ("why",)))),
            Shares(refused=NOT_NOW),
        ),
    ],
    ids=["no topology", "no status", "no device plugin", "not shared", "another plugin chooses", "not now"],
)  # fmt: skip
def test_where_nothing_is_shared_the_reason_is_told(said: NodePayloads, shares: Shares) -> None:
    """Whatever has been seen there."""
    assert left(said, {A: use(1)}) == shares


@pytest.mark.parametrize(
    "said",
    [
        payloads(observed=saw({A: {"p": 1}}), plugin=None),
        payloads(observed=saw({A: {"p": 1}}), plugin=DevicePluginStatus(Mode.OBSERVE, ready=True)),
        payloads(observed=saw({A: {"p": 1}}), status=None),
        payloads(observed=None),
        payloads(),
    ],
    ids=["no device plugin", "another plugin chooses", "no status", "no report", "none is shared"],
)
def test_no_gpu_counts_as_shared_where_our_plugin_shares_none(said: NodePayloads) -> None:
    """What another plugin shares is whole to the kubelet."""
    assert known_as_shared(said) == frozenset()
