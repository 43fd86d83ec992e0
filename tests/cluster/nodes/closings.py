"""When a node takes no pods, as the extender sees it, and why."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

from tests.cluster.extender_process import ExtenderProcess

_LOOK_SECONDS = 0.02


def why_closed(extender: ExtenderProcess, node: str) -> str:
    """Return why a node takes no pods; empty where it does."""
    status, text = extender.read(f"/v1/inspect/nodes/{node}")
    return str(json.loads(text)["closed"] or "") if status == 200 else "the extender does not know it"


@dataclass(slots=True)
class Closings:
    """What was seen of one node."""

    changes: list[tuple[float, str]] = field(default_factory=list)
    """When (monotonic seconds) another reason came to hold; empty: open."""

    def seconds(self) -> float:
        """Return for how long it was closed altogether, until now."""
        ends = [*(at for at, _ in self.changes[1:]), time.monotonic()]
        return sum(end - at for (at, why), end in zip(self.changes, ends, strict=True) if why)

    def reasons(self) -> list[str]:
        """Return each reason that ever held, in order."""
        return [why for _, why in self.changes if why]


@contextmanager
def closings(extender: ExtenderProcess, node: str) -> Iterator[Closings]:
    """Ask again and again for the length of a `with` block."""
    seen, over = Closings(), Event()

    def watch() -> None:
        while not over.wait(_LOOK_SECONDS):
            why = why_closed(extender, node)
            if not seen.changes or seen.changes[-1][1] != why:
                seen.changes.append((time.monotonic(), why))

    thread = Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
