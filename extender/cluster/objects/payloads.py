"""A node's annotations, decoded without trust and only when their text has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from extender.cluster.objects.claims import going_together
from topology.annotations import keys
from topology.annotations.codec import decode_topology, digest
from topology.annotations.records import Ledger, Observed, decode_ledger, decode_observed
from topology.annotations.status_codec import decode_status
from topology.errors import PayloadError, UnsupportedVersion
from topology.node.nics import nics_by_gpu, nics_of
from topology.node.status import NodeStatus
from topology.placement.topology_class import TopologyClass, TopologyClasses

NO_TOPOLOGY = "no GPU topology is published"
NOT_UNDERSTOOD = "is of a version that is not understood"
RESTLESS = "GPU topology changes too often, and is not read before it has been still for a while"

T = TypeVar("T")


@lru_cache(maxsize=1024)
def _one_for_all(nics: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """Return the same object for equal ones: thousands of nodes name their devices alike."""
    return nics


class ForeignLedger(PayloadError):
    """A ledger that somebody else has written: each of our writes makes its generation grow."""


class RestlessTopology(PayloadError):
    """A topology that changes so often that nobody reads it now."""


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """What a topology payload comes down to: the GPUs by name, and the class that plans for them."""

    uuids: tuple[str, ...]
    """By position."""
    devices: tuple[str, ...]
    """What pods can get, by position: the GPUs, then the MIG slices."""
    topology_class: TopologyClass
    digest: str
    """Of the text."""
    domain: str | None = None
    """The NVLink domain across nodes, as GPU Feature Discovery's label has it: `CLUSTER.CLIQUE`."""
    nics: tuple[tuple[str, ...], ...] = ()
    """RDMA devices under the PCIe switch of each GPU, by position."""

    @property
    def memory_gib(self) -> dict[str, int]:
        """GPU → its whole memory."""
        gpus = self.topology_class.node.gpus
        return {uuid: (gpu.memory_bytes or 0) >> 30 for uuid, gpu in zip(self.uuids, gpus, strict=True)}

    def nics_near(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """Return the RDMA devices under the switches of these GPUs, in their order."""
        return nics_of(self.nics[self.uuids.index(gpu)] for gpu in gpus)


@dataclass(frozen=True, slots=True)
class Payload(Generic[T]):
    """One annotation: its text and what it says, or what is wrong with it."""

    text: str | None = None
    value: T | None = None
    """With a problem: what it said when it could last be read."""
    problem: PayloadError | None = None

    def reread(self, text: str | None, decode: Callable[[str], T]) -> Payload[T]:
        """Return the payload for `text`, which is this one when the text is the same."""
        if text == self.text:
            return self
        if text is None:
            return Payload()
        try:
            return Payload(text, decode(text))
        except PayloadError as error:
            return Payload(text, self.value, error)


@dataclass(frozen=True, slots=True)
class NodePayloads:
    """All that others have written on a node for us to read, and our own ledger."""

    topology: Payload[NodeGpus] = Payload()
    status: Payload[NodeStatus] = Payload()
    observed: Payload[Observed] = Payload()
    ledger: Payload[Ledger] = Payload()
    digest: str | None = None
    """What the agent says that the topology's digest is."""
    had_ledger: bool = False
    """There is a ledger, or was one, in a version that was heard of."""

    def reread(
        self, annotations: Mapping[str, str], classes: TopologyClasses, may_read: Callable[[], bool]
    ) -> NodePayloads:
        """Return the payloads of a newer version of the node; `classes` compiles its topology.

        `may_read` is asked about each other topology than the one before.
        """

        def compile_topology(text: str) -> NodeGpus:
            if not may_read():
                raise RestlessTopology("$", "changes too often")
            node = decode_topology(text)
            domain = f"{node.domain.cluster_uuid}.{node.domain.clique_id}" if node.domain else None
            uuids, nics = tuple(gpu.uuid for gpu in node.gpus), _one_for_all(nics_by_gpu(node))
            return NodeGpus(uuids, node.devices, classes.of(node), digest(text), domain, nics)

        return NodePayloads(
            self.topology.reread(annotations.get(keys.TOPOLOGY), compile_topology),
            self.status.reread(annotations.get(keys.STATUS), decode_status),
            self.observed.reread(annotations.get(keys.OBSERVED), decode_observed),
            self._reread_ledger(annotations.get(keys.LEDGER)),
            annotations.get(keys.TOPOLOGY_DIGEST),
            self.had_ledger or keys.LEDGER in annotations,
        )

    def _reread_ledger(self, text: str | None) -> Payload[Ledger]:
        """Keep what was said by a ledger that somebody else has removed or changed: that is the more likely truth.

        As long as the text is the same in each version, the payload is the same object, and no longer.
        """
        before = self.ledger.value
        if text is None:
            return self.ledger if self.ledger.text is None else Payload(None, before)
        after = self.ledger.reread(text, decode_ledger)
        if after is self.ledger or after.problem or before is None or after.value is None:
            return after
        if after.value.generation > before.generation or after.value == before:
            return after
        return Payload(text, _merged(before, after.value), ForeignLedger("$.generation", "does not grow"))

    @property
    def is_ledger_whole(self) -> bool:
        """Whether there is a ledger that nobody has to rebuild."""
        return self.ledger.text is not None and not self.is_ledger_broken

    @property
    def is_ledger_broken(self) -> bool:
        """Whether the ledger has to be rebuilt; one of a version that is not understood is nobody's to touch."""
        problem = self.ledger.problem
        return problem is not None and not isinstance(problem, UnsupportedVersion)

    @property
    def defect(self) -> str | None:
        """Why the node is closed, in words that are the same for all such nodes."""
        problems = {
            "topology": self.topology.problem,
            "status": self.status.problem,
            "report": self.observed.problem,
            "ledger": self.ledger.problem,
        }
        for name, problem in problems.items():
            if isinstance(problem, UnsupportedVersion):
                return f"GPU {name} {NOT_UNDERSTOOD}"
            if isinstance(problem, RestlessTopology):
                return RESTLESS
            if isinstance(problem, ForeignLedger):
                return f"GPU {name} was changed by somebody else and is being rebuilt"
            if problem is not None:
                return f"GPU {name} cannot be read"
        if self.topology.value is None:
            return NO_TOPOLOGY
        if self.digest is not None and self.digest != self.topology.value.digest:
            return "GPU topology does not match its digest"
        return None


def _merged(ours: Ledger, theirs: Ledger) -> Ledger:
    """Return our claims, and those of theirs that can stand beside them: they have to be looked into."""
    claims = going_together((*ours.claims, *theirs.claims))
    return Ledger(max(ours.generation, theirs.generation), tuple(claims), ours.node_uid)
