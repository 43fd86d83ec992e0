"""The Job that measures one machine, and what its log says: pure.

A pod cannot ask for particular GPUs. So the Job takes the whole machine, on which nobody then disturbs it, and each run of
nccl-tests sees one set alone, by `CUDA_VISIBLE_DEVICES`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from benchmarks.measure.survey import Target, uuids_of
from topology.annotations.measurements import MIN_MESSAGE_BYTES
from topology.annotations.records import PlacementRecord
from topology.bandwidth.collectives import DEFAULT_MESSAGE_BYTES
from topology.bandwidth.measured import Conditions, Figure
from topology.errors import SourceError
from topology.formats.nccl_tests import NcclOutput, parse_nccl_tests

Json = dict[str, Any]

LABELS: Final = {"app.kubernetes.io/name": "gputopo-measure"}
GO: Final = "measure.gputopo.dev/go"
"""Label of a Job and its pod: who has made them, and may remove the Job."""
CONTAINER: Final = "nccl-tests"
READ_SECONDS: Final = 300
"""After its time, until the cluster ends a Job and its log is gone: we read that first."""
FORGET_SECONDS: Final = 600
"""After which the cluster removes a Job that has ended, if we cannot."""
_MARK: Final = "# gputopo: GPUs "
_FAILED: Final = "# gputopo: failed with "
_WARM_UP, _ITERATIONS = 3, 10


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How the Jobs are to be."""

    image: str
    """With `sh` and nccl-tests in it."""
    command: str = "all_reduce_perf"
    runs: int = 3
    """Of each set."""
    timeout_seconds: float = 1800.0
    scheduler: str = "gputopo"
    resource: str = "nvidia.com/gpu"
    priority_class: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A set of which there is no figure, and why."""

    gpus: tuple[int, ...]
    reason: str


def job_name(target: Target) -> str:
    """Return one name for all who would measure this kind of machine at the same time."""
    return f"gputopo-measure-{target.kind}"


def job(target: Target, wanted: JobOptions, go: str) -> Json:
    """Return the Job: the whole node, and one set after the other; `go` is the name of what it belongs to."""
    pod_spec: Json = {
        "schedulerName": wanted.scheduler,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _only(target.node)}},
        "tolerations": [{"key": wanted.resource, "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [
            {
                "name": CONTAINER,
                "image": wanted.image,
                "command": ["sh", "-c", script(target, wanted)],
                "env": [{"name": "NCCL_DEBUG", "value": "VERSION"}],
                "resources": {"limits": {wanted.resource: str(len(target.topology))}},
                "securityContext": {"allowPrivilegeEscalation": False},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - NCCL's
            }
        ],
        # NCCL's threads of one pod meet here where GPUs cannot reach each other; the default of 64 MiB is too small for it.
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}],
    }
    if wanted.priority_class:
        pod_spec["priorityClassName"] = wanted.priority_class
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(target), "labels": {**LABELS, GO: go}},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(wanted.timeout_seconds) + READ_SECONDS,
            "ttlSecondsAfterFinished": FORGET_SECONDS,
            "template": {"metadata": {"labels": {**LABELS, GO: go}}, "spec": pod_spec},
        },
    }


def script(target: Target, wanted: JobOptions) -> str:
    """Return what the container runs; a set that fails does not keep the others from being measured."""
    size, rounds = DEFAULT_MESSAGE_BYTES, " ".join(map(str, range(1, wanted.runs + 1)))
    test = f'{wanted.command} -b {size} -e {size} -g "$3" -w {_WARM_UP} -n {_ITERATIONS}'
    lines = [
        "run() {",
        f'  echo "{_MARK}$1"',
        f"  for each in {rounds}; do",
        f'    CUDA_VISIBLE_DEVICES="$2" {test} 2>&1 || echo "{_FAILED}$?"',
        "  done",
        "}",
        *(f"run {_joined(gpus)} {_joined(uuids_of(target, gpus))} {len(gpus)}" for gpus in target.sets),
    ]
    return "\n".join(lines) + "\n"


def _joined(parts: Iterable[object]) -> str:
    return ",".join(map(str, parts))


def _only(node: str) -> Json:
    return {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}],
    }


def figures_in(
    log: str, target: Target, record: PlacementRecord, at: str
) -> tuple[tuple[Figure, ...], tuple[Failed, ...]]:
    """Return the figures of a log, and the sets of which it has none; `record` says which GPUs the pod was given."""
    given = {gpu for gpus in record.containers.values() for gpu in gpus}
    if given != set(uuids_of(target, range(len(target.topology)))):
        return (), tuple(Failed(gpus, "the pod was not given the GPUs of the machine") for gpus in target.sets)
    figures: list[Figure] = []
    failed: list[Failed] = []
    parts = dict(_parts(log))
    for gpus in target.sets:
        try:
            figures.append(_figure(gpus, parts.get(gpus), target, at))
        except SourceError as error:
            failed.append(Failed(gpus, str(error)))
    return tuple(figures), tuple(failed)


def _parts(log: str) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield each set with what was printed for it."""
    for part in re.split(f"^{re.escape(_MARK)}", log, flags=re.MULTILINE)[1:]:
        named, _, printed = part.partition("\n")
        if re.fullmatch(r"\d+(,\d+)+", named.strip()):
            yield tuple(map(int, named.split(","))), printed


def _figure(gpus: tuple[int, ...], printed: str | None, target: Target, at: str) -> Figure:
    if printed is None:
        raise SourceError(0, 0, "it was not reached in time")
    if code := re.search(f"^{re.escape(_FAILED)}(\\d+)", printed, flags=re.MULTILINE):
        raise SourceError(0, 0, f"nccl-tests failed with exit code {code[1]}: {_last_words(printed)}")
    output = parse_nccl_tests(printed)
    _check_buses(output, gpus, target)
    sizes = {run.message_bytes for run in output.runs}
    if min(sizes) < MIN_MESSAGE_BYTES or len(sizes) > 1:
        raise SourceError(0, 0, f"messages of {min(sizes)} bytes, and {DEFAULT_MESSAGE_BYTES} were asked for")
    runs = tuple(run.out_of_place_gb_per_s for run in output.runs)
    if median(runs) <= 0:
        raise SourceError(0, 0, "no bandwidth was seen")
    conditions = Conditions(target.node, at, sizes.pop(), target.topology.driver_version, output.nccl)
    return Figure(gpus, runs, conditions)


def _check_buses(output: NcclOutput, gpus: tuple[int, ...], target: Target) -> None:
    """Refuse what other GPUs have done, where both sides name PCI addresses."""
    addresses = [target.topology.gpus[position].pci for position in gpus]
    known = {int(address.split(":")[-2], 16) for address in addresses if address}
    if output.buses and len(known) == len(gpus) and output.buses != known:
        raise SourceError(0, 0, "other GPUs took part than were asked for")


def _last_words(printed: str) -> str:
    lines = [line for line in printed.splitlines() if line.strip() and not line.startswith("#")]
    return lines[-1].strip()[:200] if lines else "it said nothing"
