"""A cluster as though some pods had never been, for `what-if --evict`: a question, and nothing is evicted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import msgspec

from extender.cluster.objects.kinds import Node, Pod
from topology.annotations import keys
from topology.annotations.records import (
    Claim,
    Holder,
    decode_ledger,
    decode_observed,
    encode_ledger,
    encode_observed,
)
from topology.errors import PayloadError

PodName = tuple[str, str]
"""Namespace and name."""


class NoSuchPods(Exception):
    """Some of the pods are not there; names them."""


def without(nodes: Sequence[Node], pods: Sequence[Pod], gone: Collection[PodName]) -> tuple[list[Node], list[Pod]]:
    """Return the nodes and pods as they would be when these pods have gone, and their containers have stopped.

    Raises:
        NoSuchPods: some of them are not among the pods.

    """
    missing = {*gone} - {_name(pod) for pod in pods}
    if missing:
        raise NoSuchPods("no such pod: " + ", ".join("/".join(key) for key in sorted(missing)))
    uids = {pod.metadata.uid for pod in pods if _name(pod) in gone}

    def is_claimed_on(claim: Claim) -> bool:
        return claim.uid not in uids

    def is_held_on(holder: Holder) -> bool:
        return (holder.namespace, holder.name) not in gone

    return (
        [_freed(node, is_claimed_on, is_held_on) for node in nodes],
        [pod for pod in pods if pod.metadata.uid not in uids],
    )


def _name(pod: Pod) -> PodName:
    return pod.metadata.namespace, pod.metadata.name


def _freed(node: Node, keeps_claim: Callable[[Claim], bool], keeps_holder: Callable[[Holder], bool]) -> Node:
    annotations = dict(node.metadata.annotations or {})
    try:
        if text := annotations.get(keys.LEDGER):
            ledger = decode_ledger(text)
            annotations[keys.LEDGER] = encode_ledger(
                replace(ledger, claims=tuple(claim for claim in ledger.claims if keeps_claim(claim)))
            )
        if text := annotations.get(keys.OBSERVED):
            observed = decode_observed(text)
            several = {gpu: tuple(filter(keeps_holder, of)) for gpu, of in observed.shared.items()}
            shared = {gpu: of for gpu, of in several.items() if of}
            kept = {gpu: holder for gpu, holder in observed.gpus.items() if keeps_holder(holder)}
            kept |= {gpu: Holder(of[0].namespace, of[0].name, of[0].container) for gpu, of in shared.items()}
            claimed = tuple(filter(keeps_holder, observed.claimed))
            annotations[keys.OBSERVED] = encode_observed(replace(observed, gpus=kept, shared=shared, claimed=claimed))
    except PayloadError:
        return node  # it is closed for that, whoever goes
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=annotations))
