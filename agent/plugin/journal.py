"""What was handed out, as the text that survives a restart of the agent.

It is bounded, and decoded without trust. A journal that cannot be read is an empty one, and the kubelet's own List and
the ledger tell the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from agent.plugin.devices.share_devices import brief, spelled_out
from agent.plugin.hold_back import Served

MAX_ENTRIES = 1024
"""A node has at most 72 GPUs, or some hundreds of pods that share them; init containers can have theirs twice."""


def encode(served: Iterable[Served]) -> str:
    """Return the newest entries as one line of JSON."""
    kept = list(served)[-MAX_ENTRIES:]
    entries = [{"namespace": s.namespace, "name": s.name, "uid": s.uid, "gpus": brief(s.gpus)} for s in kept]
    return json.dumps({"v": 1, "served": entries}, separators=(",", ":"))


def decode(text: str) -> tuple[Served, ...]:
    """Return the entries; raises `ValueError` for anything that `encode` could not have written."""
    try:
        document = json.loads(text)
        if document["v"] != 1:
            raise ValueError(f"version {document['v']} is not understood")
        entries = document["served"][-MAX_ENTRIES:]
        return tuple(
            Served(str(s["namespace"]), str(s["name"]), str(s["uid"]), frozenset(spelled_out(map(str, s["gpus"]))))
            for s in entries
        )
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not a journal: {error!r}") from error
