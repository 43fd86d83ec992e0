"""A script for the fake NVML as facts for `gputopo-bench health`: the same story, told to the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from tests.nvml.script import Step, UnreadableScript

Fact = dict[str, object]

SWITCH = "the switch"
"""What a link of these machines leads to."""

_RATES = {
    "corrected_errors": ("ecc_corrected_per_second", 1),
    "nvlink_crc": ("nvlink_errors_per_second", 1),
    "pcie_replays": ("pcie_replays_per_minute", 60),
}
_VALUES = {
    "recovery_action": "recovery_action",
    "uncorrected_errors": "ecc_uncorrected",
    "banks_without_spares": "banks_without_spares",
    "margin": "temperature_margin",
}
_FLAGS = {"remap_failure": "remap_failure", "sram_exceeded": "sram_threshold"}
_UNHEARD = {"sram_uncorrected", "energy_mj"}
"""Nothing is judged by them alone."""


def facts_of(steps: Iterable[Step], uuids: Sequence[str], restarts: Iterable[float] = ()) -> list[Fact]:
    """Return the facts in their order, by UUID; the GPUs say at first that they have no errors and need nothing.

    Args:
        steps: of the script.
        uuids: of the machine at first, by index.
        restarts: when another agent takes over.

    """
    told = _Told(uuids)
    for step in steps:
        told.facts += [{"t": step.at, **fact} for fact in told.take(step)]
    told.facts += [{"t": at, "agent_restart": True} for at in restarts]
    return sorted(told.facts, key=lambda fact: fact["t"])  # type: ignore[arg-type, return-value]


def as_lines(facts: Iterable[Fact]) -> str:
    """Return the facts as the command reads them."""
    return "".join(f"{json.dumps(fact)}\n" for fact in facts)


class _Told:
    """What is told so far."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids = list(uuids)
        self._lost = set[str]()
        first: list[Fact] = [{"t": 0.0, "gpu": uuid, "ecc_uncorrected": 0} for uuid in uuids]
        self.facts = [*first, {"t": 0.0, "recovery_action": 0}]

    def take(self, step: Step) -> Iterator[Fact]:
        """Yield what one step tells."""
        if step.verb == "remove":
            self._uuids = [uuid for index, uuid in enumerate(self._uuids) if index not in step.gpus]
            return
        for index in step.gpus:
            for fact in self._of_gpu(step, index):
                yield {"gpu": self._uuids[index], **fact}
            if step.verb == "gpu" and step.arguments[1] == "uuid":
                self._uuids[index] = step.arguments[2]

    def _of_gpu(self, step: Step, index: int) -> Iterator[Fact]:
        uuid, arguments = self._uuids[index], step.arguments
        match step.verb:
            case "xid":
                yield {"xid": int(arguments[1])}
            case "fail" if arguments[0] == "*" and arguments[2] == "GPU_IS_LOST":
                self._lost.add(uuid)
                yield {"lost": True}
            case "heal" | "reset":
                if uuid in self._lost:
                    self._lost.remove(uuid)
                    yield {"back": True}
                if step.verb == "reset":
                    yield {"driver_reload": True}
            case "rise":
                key, factor = _RATES[arguments[1]]
                yield {key: factor * float(arguments[2])}
                self.facts.append({"t": step.at + float(arguments[4]), "gpu": uuid, key: 0})
            case "gpu":
                yield from _of_value(arguments[1], arguments[2])
            case "link":
                yield {"nvlink_up" if arguments[2] == "active" else "nvlink_down": SWITCH}
            case "hang" | "health":
                return  # they change how long calls take, and what is said of the fabric, and no state
            case _:
                raise UnreadableScript(f"no fact says {step.verb}")


def _of_value(key: str, value: str) -> Iterator[Fact]:
    if key in _VALUES:
        yield {_VALUES[key]: int(value)}
    elif key in _FLAGS:
        yield {_FLAGS[key]: value == "1"}
    elif key == "slowdown":
        yield {"throttled": bool(int(value) & 192)}
    elif key not in {*_UNHEARD, "uuid"}:
        raise UnreadableScript(f"no fact says {key}")
