"""A node's annotations, decoded without trust and only when their text has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from extender.cluster.objects.claims import going_together
from extender.cluster.objects.topologies import NodeGpus, Topologies
from topology.annotations import keys
from topology.annotations.records import Ledger, Observed, decode_ledger, decode_observed
from topology.annotations.status_codec import decode_status
from topology.errors import PayloadError, UnsupportedVersion
from topology.node.sharing import Sharing
from topology.node.status import DevicePluginStatus, NodeGpuStatus

NO_TOPOLOGY = "no GPU topology is published"
NOT_UNDERSTOOD = "is of a version that is not understood"
MAX_GENERATION: Final = 2**62
"""Of a ledger of ours: each follows a version of its node, and the API server does not count that far."""
RESTLESS = "GPU topology changes too often, and is not read before it has been still for a while"

T = TypeVar("T")


class ForeignLedger(PayloadError):
    """A ledger that somebody else has written: each of our writes makes its generation grow."""


class RestlessTopology(PayloadError):
    """A topology that changes so often that nobody reads it now."""


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
            return Payload(text, self.value, _alone(error))


@dataclass(frozen=True, slots=True)
class NodePayloads:
    """All that others have written on a node for us to read, and our own ledger."""

    topology: Payload[NodeGpus] = Payload()
    status: Payload[NodeGpuStatus] = Payload()
    observed: Payload[Observed] = Payload()
    ledger: Payload[Ledger] = Payload()
    digest: str | None = None
    """What the agent says that the topology's digest is."""
    had_ledger: bool = False
    """There is a ledger, or was one, in a version that was heard of."""

    def reread(
        self, annotations: Mapping[str, str], topologies: Topologies, may_read: Callable[[], bool]
    ) -> NodePayloads:
        """Return the payloads of a newer version of the node; `topologies` reads its topology.

        `may_read` is asked about each other topology than the one before.
        """

        def read_topology(text: str) -> NodeGpus:
            if not may_read():
                raise RestlessTopology("$", "changes too often")
            return topologies.read(text)

        return NodePayloads(
            self.topology.reread(annotations.get(keys.TOPOLOGY), read_topology),
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
        if after is self.ledger or after.problem or after.value is None:
            return after
        if after.value.generation > MAX_GENERATION:  # nothing that grows from it could be read
            theirs = replace(after.value, generation=0)
            merged = theirs if before is None else _merged(before, theirs)
            return Payload(text, merged, ForeignLedger("$.generation", "is beyond all that we write"))
        if before is None:
            return after
        if after.value.generation > before.generation or after.value == before:
            return after
        return Payload(text, _merged(before, after.value), ForeignLedger("$.generation", "does not grow"))

    @property
    def device_plugin(self) -> DevicePluginStatus | None:
        """What the agent says of the node's device plugin, if it does."""
        return self.status.value.device_plugin if self.status.value else None

    @property
    def sharing(self) -> Sharing | None:
        """How the node's GPUs are shared; `None` where they are not."""
        return self.device_plugin.sharing if self.device_plugin else None

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


def _alone(error: PayloadError) -> PayloadError:
    """Drop how the error came out: the frames hold the payload before, with its own error, and so on without end."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _merged(ours: Ledger, theirs: Ledger) -> Ledger:
    """Return our claims, and those of theirs that can stand beside them: they have to be looked into."""
    claims = going_together((*ours.claims, *theirs.claims))
    return Ledger(max(ours.generation, theirs.generation), tuple(claims), ours.node_uid, ours.gpus)
