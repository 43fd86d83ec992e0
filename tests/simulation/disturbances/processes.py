"""What happens to the extenders' processes, and to the memory of the API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from tests.simulation.world.process import Process
from tests.simulation.world.server import Server
from tests.world.faults import AnyFault, Fault

_JUMP_SECONDS = 3600.0


class ProcessDisturbances:
    """Kills, pauses, clocks and compactions."""

    def __init__(self, server: Server, replicas: Sequence[Process], random: Random) -> None:
        self._server = server
        self._replicas = replicas
        self._random = random
        self.events: Mapping[AnyFault, Callable[[], str | None]] = {
            Fault.COMPACTED: self._compact,
            Fault.KILLED: self._kill,
            Fault.FROZEN: self._freeze,
            Fault.CLOCK_JUMP: self._jump,
        }

    def _compact(self) -> str:
        self._server.store.compact(keep=self._random.choice((0, 0, 5)))
        return ""

    def _kill(self) -> str | None:
        process = self._random.choice(self._replicas)
        if process.extender is None:
            return None
        process.kill()
        return process.name

    def _freeze(self) -> str:
        process = self._random.choice(self._replicas)
        process.freeze()
        return process.name

    def _jump(self) -> str:
        process = self._random.choice(self._replicas)
        seconds = self._random.uniform(-_JUMP_SECONDS, _JUMP_SECONDS)
        process.clock.wall_offset_seconds += seconds
        return f"{process.name} by {seconds:.0f} s"
