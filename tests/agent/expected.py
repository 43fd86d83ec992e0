"""The matrix that a machine's description implies, worked out from its text alone: no NVML, none of the agent's code."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path


def expected_matrix(description: Path) -> dict[tuple[int, int], str]:
    """Return the cell of each pair (a, b), a < b, of GPUs that can be identified."""
    said = _Said(description.read_text())
    alive = sorted(said.gpus - said.lost)
    return {(a, b): said.cell(a, b) for a in alive for b in alive if a < b}


class _Said:
    """What the statements say, one kind at a time."""

    def __init__(self, text: str) -> None:
        self.gpus: set[int] = set()
        self.lost: set[int] = set()
        self.mig: set[int] = set()
        self.not_ready: set[int] = set()
        self.links: defaultdict[int, list[object]] = defaultdict(list)  # far ends by link number: a GPU or a word
        self.down: set[tuple[int, int]] = set()
        self.paths: dict[tuple[int, int], str] = {}
        self.denied: dict[tuple[int, int], bool] = {}
        for line in text.splitlines():
            if words := line.partition("#")[0].split():
                getattr(self, f"_{words[0].replace('-', '_')}", lambda *_: None)(*words[1:])

    def cell(self, a: int, b: int) -> str:
        count = self._direct(a, b) or min(self._switch(a), self._switch(b))
        usable = count and not {a, b} & self.mig and not self.denied.get((a, b))
        return f"NV{count}" if usable else self.paths.get((a, b), "SYS").replace("INTERNAL", "PIX")

    def _direct(self, a: int, b: int) -> int:
        up = [far for n, far in enumerate(self.links[a]) if (a, n) not in self.down]
        up_there = [far for n, far in enumerate(self.links[b]) if (b, n) not in self.down]
        return min(up.count(b), up_there.count(a))

    def _switch(self, gpu: int) -> int:
        up = [far for n, far in enumerate(self.links[gpu]) if (gpu, n) not in self.down]
        return 0 if gpu in self.not_ready else up.count("switch")

    def _gpu(self, gpus: str, key: str, *value: str) -> None:
        self.gpus |= set(_numbers(gpus))
        if key == "mig":
            self.mig = self.mig | set(_numbers(gpus)) if value == ("on",) else self.mig - set(_numbers(gpus))

    def _nvlink(self, a: str, b: str, count: str) -> None:
        self.links[int(a)] += [int(b)] * int(count)
        self.links[int(b)] += [int(a)] * int(count)

    def _nvswitch(self, gpus: str, count: str, *_: str) -> None:
        for gpu in _numbers(gpus):
            self.links[gpu] += ["switch"] * int(count)

    def _npu(self, gpus: str, count: str, *_: str) -> None:
        for gpu in _numbers(gpus):
            self.links[gpu] += ["cpu"] * int(count)

    def _link(self, gpu: str, links: str, state: str) -> None:
        changed = {(int(gpu), number) for number in _numbers(links)}
        self.down = self.down - changed if state in ("active", "sleeping") else self.down | changed

    def _fabric(self, gpus: str, state: str, code: str = "SUCCESS", *_: str) -> None:
        ready = state in ("-", "none") or (state, code) == ("completed", "SUCCESS")
        self.not_ready = self.not_ready - set(_numbers(gpus)) if ready else self.not_ready | set(_numbers(gpus))

    def _path(self, first: str, second: str, word: str) -> None:
        self.paths |= dict.fromkeys(_pairs(first, second), word)

    def _p2p(self, first: str, second: str, cap: str, status: str) -> None:
        if cap in ("nvlink", "read", "write", "all"):
            self.denied |= dict.fromkeys(_pairs(first, second), status != "OK")

    def _fail(self, function: str, gpus: str, _: str) -> None:
        if function in ("*", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"):
            self.lost |= set(_numbers(gpus))


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found += range(int(first), int(last or first) + 1)
    return found


def _pairs(first: str, second: str) -> Iterator[tuple[int, int]]:
    return ((min(a, b), max(a, b)) for a in _numbers(first) for b in _numbers(second) if a != b)
