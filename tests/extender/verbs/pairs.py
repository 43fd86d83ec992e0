"""A full node of four NVLink pairs, somebody important who asks for GPUs, and what preempt answers, in one line each."""

from __future__ import annotations

from typing import Any

from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.state import ClusterState
from extender.verbs.preempt import preempt
from extender.verbs.wire import ExtenderPreemptionArgs, MetaPod, MetaVictims
from tests.extender.builders import PAIRS, at, claim, finish, gpus, node, pod
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
