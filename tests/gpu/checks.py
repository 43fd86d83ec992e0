"""The checks: each gives rows of the report. Nothing here is ever set on a GPU."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import pynvml

from agent.gpus.activity import Activity
from agent.gpus.discovery import discover
from agent.gpus.facts import Answer, GpuFacts, Known, Missing, value_of
from agent.gpus.host import Host
from agent.gpus.nvml.activity_reader import read_activity
from agent.gpus.nvml.answers import ask
from agent.gpus.nvml.reader import opened, read_nvml, read_processes
from agent.gpus.nvml.xid_events import follow_xids
from tests.gpu import smi
from tests.gpu.fields import FACTS, FIGURES, NODE_FACTS, Figure
from tests.gpu.report import Result, Row, compared, skipped, told
from tests.nvml.recording import ask_all
from topology.formats.matrix_text import AffinityColumns, Table, read_table

_XID = int(pynvml.nvmlEventTypeXidCriticalError)
_WAIT_SECONDS = (0.2, 2.0)
"""Between these ends a wait of a quarter of a second."""
_TRIES = 3
"""A figure may jump between three readings; it does not jump each time."""
_TIMES = 5


def _beside_smi(check: Callable[[], Iterator[Row]]) -> Callable[[], Iterator[Row]]:
    """Let a check say that it is skipped where there is no `nvidia-smi`."""

    @wraps(check)
    def rows() -> Iterator[Row]:
        return check() if smi.is_here() else iter([skipped("the check", "node", "no nvidia-smi here")])

    return rows


@_beside_smi
def matrix() -> Iterator[Row]:
    """Compare `gputopo-agent --once -o matrix` with `nvidia-smi topo -m`, cell by cell."""
    done = subprocess.run(
        [sys.executable, "-m", "agent", "--once", "-o", "matrix"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"gputopo-agent --once ended with {done.returncode}: {done.stderr.strip()}")
    ours, theirs = _Matrix(read_table(done.stdout)), _Matrix(read_table(smi.said("topo", "-m")))
    yield compared("devices", "node", ", ".join(ours.names), ", ".join(theirs.names))
    for one, other in combinations(dict.fromkeys([*theirs.names, *ours.names]), 2):
        yield compared("cell", f"{one} to {other}", ours.cell(one, other), theirs.cell(one, other))
    for name in theirs.names:
        of_us, of_them = ours.affinity(name), theirs.affinity(name)
        yield compared("CPUs", name, of_us.cpus, of_them.cpus)
        yield compared("NUMA node", name, of_us.numa, of_them.numa)
        yield compared("NUMA node of its memory", name, of_us.memory_numa, of_them.memory_numa)


class _Matrix:
    """A matrix by the kernel's names of NICs: the numbers of labels are each program's own."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._labels = {table.legend.get(label, label): label for label in table.devices}
        self.names = tuple(self._labels)

    def cell(self, one: str, other: str) -> str | None:
        """Return the cell of two devices, `None` where it has none."""
        labels = self._labels
        return self._table.cell(labels[one], labels[other]) if one in labels and other in labels else None

    def affinity(self, name: str) -> AffinityColumns:
        """Return what stands behind the cells."""
        return self._table.rows.get(self._labels.get(name, ""), AffinityColumns())


@_beside_smi
def facts() -> Iterator[Row]:
    """Compare the agent's facts with `nvidia-smi -q -x`, each of the tables of `fields`."""
    said, log = read_nvml(), smi.query()
    ours = _by_uuid(said.gpus)
    theirs = {element.findtext("uuid", "").strip(): element for element in log.findall("gpu")}
    yield compared("UUIDs", "node", ", ".join(sorted(ours)), ", ".join(sorted(theirs)), names_it=True)
    for node_fact in NODE_FACTS:
        yield _fact(node_fact.name, "node", node_fact.path, node_fact.ours(said), log)
    for uuid, (index, gpu) in ours.items():
        for fact in FACTS if uuid in theirs else ():
            yield _fact(fact.name, f"GPU{index}", fact.path, fact.ours(gpu), theirs[uuid])


def _fact(name: str, of: str, path: str, ours: str | None, log: Element) -> Row:
    text = log.findtext(path)
    return (
        skipped(name, of, f"this nvidia-smi has no {path}")
        if text is None
        else compared(name, of, ours, smi.meant(text))
    )


def _by_uuid(gpus: tuple[Answer[GpuFacts], ...]) -> dict[str, tuple[int, GpuFacts]]:
    known = ((index, answer.value) for index, answer in enumerate(gpus) if isinstance(answer, Known))
    return {uuid: (index, gpu) for index, gpu in known if (uuid := value_of(gpu.uuid))}


def events() -> Iterator[Row]:
    """Register for what each GPU says it supports, and wait as the agent does."""
    with opened():
        supported = [ask(pynvml.nvmlDeviceGetSupportedEventTypes, handle) for handle in _handles()]
        for index, (handle, types) in enumerate(zip(_handles(), supported, strict=True)):
            if isinstance(types, Missing):
                yield skipped("event types", f"GPU{index}", types.code)
                continue
            yield told("event types", f"GPU{index}", f"{types.value:#x}, critical errors {types.value & _XID != 0}")
            yield compared("supported types", f"GPU{index}", _registered(handle, types.value), "registered")
        tells_all = all(isinstance(types, Known) and types.value & _XID for types in supported)
        yield from _followed(tells_all)


def _registered(handle: Any, types: int) -> str:
    events = pynvml.nvmlEventSetCreate()
    try:
        answer = ask(pynvml.nvmlDeviceRegisterEvents, handle, types, events)
    finally:
        pynvml.nvmlEventSetFree(events)
    return answer.code if isinstance(answer, Missing) else "registered"


def _followed(tells_all: bool) -> Iterator[Row]:
    following = follow_xids()
    try:
        coverage = next(following)
        yield compared("the agent hears of all", "node", str(not getattr(coverage, "untold", ())), str(tells_all))
        begun = time.monotonic()
        event = next(following)
        took = time.monotonic() - begun
    finally:
        following.close()
    if event is not None:
        yield skipped("a wait times out", "node", "an event came meanwhile; run it again")
    else:
        low, high = _WAIT_SECONDS
        yield compared(
            "a wait times out", "node", "after 0.25 s" if low <= took <= high else f"after {took:.2f} s", "after 0.25 s"
        )


@_beside_smi
def processes() -> Iterator[Row]:
    """Compare who computes with `nvidia-smi --query-compute-apps`; who came or went between two looks may be in or not."""
    before = smi.processes()
    ours = {uuid: value_of(answer) for uuid, answer in read_processes(list(_by_uuid(read_nvml().gpus))).items()}
    after = smi.processes()
    if not any(before.values()) and not any(ours.values()) and not any(after.values()):
        yield skipped("processes", "node", "nothing computes on any GPU; start something, and run it again")
        return
    for index, (uuid, found) in enumerate(ours.items()):
        was, came = before.get(uuid, set()), after.get(uuid, set())
        if found is None:
            yield compared("processes", f"GPU{index}", None, _count(was | came) if was | came else None)
            continue
        pids = {process.pid for process in found}
        agrees = was & came <= pids <= was | came
        yield compared("processes", f"GPU{index}", _count(pids), _count(pids if agrees else was | came))


def _count(pids: set[int]) -> str:
    return f"{len(pids)}: {', '.join(map(str, sorted(pids)))}" if pids else "none"


@_beside_smi
def figures() -> Iterator[Row]:
    """Compare what GPUs do with what nvidia-smi said just before and just after; the best of a few tries counts."""
    with opened():  # else the driver may be loaded anew for each look, and clocks jump
        tries: list[list[Row]] = []
        while len(tries) < _TRIES and not any(_agrees(rows) for rows in tries):
            tries.append(list(_figures()))
    yield from next(filter(_agrees, tries), tries[-1])


def _agrees(rows: list[Row]) -> bool:
    return all(row.result is not Result.DIFFERS for row in rows)


def _figures() -> Iterator[Row]:
    names = [figure.query for figure in FIGURES]
    before, gpus, after = smi.figures(names), read_activity(), smi.figures(names)
    ours, theirs = sorted(gpu.uuid for gpu in gpus), sorted(before.keys() & after.keys())
    yield compared("GPUs", "node", ", ".join(ours), ", ".join(theirs), names_it=True)
    for index, gpu in enumerate(gpus):
        if gpu.uuid not in theirs:
            continue
        for figure in FIGURES:
            around = (before[gpu.uuid][figure.query], after[gpu.uuid][figure.query])
            yield near(figure, f"GPU{index}", gpu, around)


def near(figure: Figure, of: str, gpu: Activity, around: tuple[float | None, float | None]) -> Row:
    """Compare a figure with those read before and after."""
    value, said = figure.ours(gpu), [each for each in around if each is not None]
    if value is None or not said:
        return compared(figure.name, of, None if value is None else f"{value:g}", f"{said[0]:g}" if said else None)
    low, high, unit = min(said), max(said), figure.unit
    ours, theirs = f"{value:.0f} {unit}", f"{low:.0f} to {high:.0f} {unit}"
    if figure.tolerance is None:
        return Row(figure.name, of, Result.TOLD, ours, theirs, "moves too fast to compare")
    agrees = low - figure.tolerance <= value <= high + figure.tolerance
    why = f"± {figure.tolerance:g} {unit}"
    return Row(figure.name, of, Result.EQUAL if agrees else Result.DIFFERS, ours, theirs, why)


def memory_limits() -> Iterator[Row]:
    """Ask for the limits of our own cgroup (version 2); none is set."""
    if not hasattr(pynvml, "nvmlDeviceGetMemoryLimits_v1"):
        yield skipped("memory limits", "node", "this nvidia-ml-py has no nvmlDeviceGetMemoryLimits_v1")
        return
    with opened():
        for index, handle in enumerate(_handles()):
            yield _limit(f"GPU{index}", handle)


def _limit(of: str, handle: Any) -> Row:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t()
    limits.nameSpace = f"/sys/fs/cgroup{own}".rstrip("/").encode()
    answer = ask(pynvml.nvmlDeviceGetMemoryLimits_v1, handle, limits)
    if isinstance(answer, Missing):
        has_none = answer.code == "FUNCTION_NOT_FOUND"
        why = "this driver has no memory limits; they come with r615"
        return skipped("memory limits", of, why) if has_none else told("memory limits", of, answer.code)
    return told(
        "memory limits", of, f"soft {limits.softLimit}, hard {limits.hardLimit}, used {limits.currentUsed} bytes"
    )


def calls(file: Path) -> Iterator[Row]:
    """Write down each call that the agent makes and its reply, so that a fake can be compared with this driver."""
    recording = ask_all()
    recording.write(file)
    codes = Counter(reply.code for reply in recording.replies.values())
    yield told("calls", "node", ", ".join(f"{count} {code}" for code, count in codes.most_common()))


def cost() -> Iterator[Row]:
    """Say how long a look and a sample take, and what they compute."""
    yield _cost("a look that opens NVML", lambda: discover(read_nvml(), Host()))
    with opened():
        yield _cost("a look", lambda: discover(read_nvml(), Host()))
        yield _cost("a sample", read_activity)


def _cost(what: str, call: Callable[[], object]) -> Row:
    took, computed = [], []
    for _ in range(_TIMES):
        begun, used = time.perf_counter(), time.process_time()
        call()
        took.append(1000 * (time.perf_counter() - begun))
        computed.append(1000 * (time.process_time() - used))
    middle = statistics.median
    return told(
        what,
        "node",
        f"{middle(took):.1f} ms, {middle(computed):.1f} ms of CPU, at most {max(took):.1f} ms, of {_TIMES}",
    )


def _handles() -> list[Any]:
    """Return the handles that NVML gives out; a GPU without one is seen by the other checks."""
    answers = [ask(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(pynvml.nvmlDeviceGetCount())]
    return [answer.value for answer in answers if isinstance(answer, Known)]
