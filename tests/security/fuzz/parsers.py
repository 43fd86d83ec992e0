"""What reads the bytes of strangers, each as one function that raises only where there is a fault."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from benchmarks.simulated.fleet import gpu_pod
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.pod_feed import PodFeed
from extender.cluster.state import ClusterState
from extender.kubernetes.reflector import Reflector, Timing
from extender.verbs.wire import (
    MalformedBody,
    decode_args,
    decode_binding_args,
    decode_filter_args,
    decode_preemption_args,
)
from tests.extender.kubernetes.test_reflector import bookmark, error, line, page
from tests.extender.kubernetes.test_reflector import node as listed_node
from topology.annotations.codec import decode_topology, encode_topology
from topology.annotations.records import Claim, Ledger, decode_ledger, encode_ledger
from topology.errors import PayloadError
from topology.formats.catalog import machine

HERE = Path(__file__).parent
RECORDED = HERE.parents[1] / "contract" / "recorded"
MACHINES = ("dgx-1v", "hgx-h100", "l40s-8", "rtx-3090-2")


def ledger(data: bytes) -> None:
    """Read a node's ledger; what was read can be written, and reads the same."""
    with suppress(PayloadError):
        read = decode_ledger(data)
        written = encode_ledger(read)
        assert decode_ledger(written) == read


def topology(data: bytes) -> None:
    """Read a node's topology; as with a ledger."""
    with suppress(PayloadError):
        read = decode_topology(data)
        written = encode_topology(read)
        assert decode_topology(written) == read


def args(data: bytes) -> None:
    """Read the body of each verb, and what a verb looks at first."""
    for decode in (decode_args, decode_filter_args):
        with suppress(MalformedBody):
            asked = decode(data)
            assert len(asked.passing([*asked.names]).node_names) == len(asked.names)
    with suppress(MalformedBody):
        assert all(victims.uids is not None for victims in decode_preemption_args(data).candidates.values())
    with suppress(MalformedBody):
        decode_binding_args(data)


def watch(data: bytes) -> None:
    """Follow a stream into a whole state: nodes first, then the same bytes as pods."""
    state = ClusterState()
    pods = PodFeed(state)
    asyncio.run(
        _follow(
            Reflector("nodes", Once(data), Node, state.nodes, timing=_AT_ONCE),
            Reflector("pods", Once(data), Pod, pods, keep=pods.keep, timing=_AT_ONCE),
        )
    )


PARSERS: Mapping[str, Callable[[bytes], None]] = {f.__name__: f for f in (ledger, topology, args, watch)}


def seeds(parser: str) -> Iterator[bytes]:
    """Yield what an honest sender writes, to begin with."""
    match parser:
        case "ledger":
            claims = tuple(Claim(f"GPU-{number}", "u", "ml", "train-0", "main", "7") for number in range(3))
            yield encode_ledger(Ledger(2, claims, "node-uid")).encode()
        case "topology":
            yield from (encode_topology(machine(name)).encode() for name in MACHINES)
        case "args":
            yield from (file.read_bytes() for file in sorted(RECORDED.rglob("*.json")))
        case "watch":
            pod = gpu_pod("p", 2)
            pod["metadata"] |= {"uid": "u", "resourceVersion": "8"}
            yield line("ADDED", listed_node("n1", 7)) + line("DELETED", listed_node("n1", 9)) + bookmark(10)
            yield line("ADDED", pod) + line("MODIFIED", pod) + error(410)


def found(parser: str) -> Iterator[bytes]:
    """Yield the inputs that once brought a fault to light."""
    yield from (file.read_bytes() for file in sorted((HERE / "found" / parser).glob("*")))


class Finished(BaseException):
    """The stream was followed to its end."""


class Once:
    """A source of an empty list and one stream, in chunks as TCP might cut it."""

    def __init__(self, data: bytes) -> None:
        self._streams = [data]

    async def list_page(self, continuation: str | None) -> bytes:
        assert continuation is None
        if not self._streams:
            raise Finished
        return page(1)

    async def latest_version(self) -> str:
        return "1"

    async def watch(self, resource_version: str) -> AsyncGenerator[bytes]:
        assert resource_version
        if not self._streams:
            raise Finished
        data = self._streams.pop()
        for start in range(0, len(data), 100):
            yield data[start : start + 100]


_AT_ONCE = Timing(backoff_seconds=0.0, max_backoff_seconds=0.0)


async def _follow(*reflectors: Reflector[Node] | Reflector[Pod]) -> None:
    for reflector in reflectors:
        with suppress(Finished):
            await reflector.run()
