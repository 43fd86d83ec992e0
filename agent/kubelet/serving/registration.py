"""Being the kubelet's device plugin for one resource, through restarts of the kubelet, wiped sockets and second instances.

Each attempt serves on a socket of a new name and registers that. The kubelet deletes all sockets in its folder when it
starts. A used name may be unlinked by the server that had it before. A kubelet is known by its socket's inode *and*
change time, because inodes are used again. The end of our own stream means that the kubelet has let go of us, for
whatever reason. It never says so, and never connects again by itself. Nor does it say when another plugin has registered
after us. That shows only in the devices that it would give away, and the watch that compares them calls `again`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import structlog

from agent.kubelet.api.deviceplugin_pb2 import DevicePluginOptions, RegisterRequest
from agent.kubelet.api.deviceplugin_pb2_grpc import RegistrationStub, add_DevicePluginServicer_to_server
from agent.kubelet.serving.device_plugin import DevicePluginService

log = structlog.get_logger()

KUBELET_SOCKET: Final = "kubelet.sock"
OUR_SOCKETS: Final = "gputopo-*.sock"
_POLL_SECONDS = 0.05
"""Between two tries to find a kubelet; a new one admits its first pods a second after its socket is there."""
_WATCH_SECONDS = 0.5
"""Between two checks of the sockets while all is well: a kubelet that ends, ends our stream at once."""
_REGISTER_SECONDS = 11.0
"""The kubelet itself waits up to 10 s for our socket."""
_LIST_SECONDS = 5.0
_PAUSES_SECONDS = (0.0, 0.05, 0.2, 1.0)
"""Before the next attempt, by the number of those that failed in a row."""


@dataclass(frozen=True, slots=True)
class SocketIdentity:
    """Tells one kubelet's socket from the next one's."""

    inode: int
    changed_ns: int

    @classmethod
    def of(cls, socket: Path) -> SocketIdentity | None:
        """Return the socket's, or `None` when there is none."""
        try:
            status = socket.stat()
        except OSError:
            return None
        return cls(status.st_ino, status.st_ctime_ns)


class Registration:
    """Keeps one resource registered until `run` is cancelled; `changed` is called with the session, or empty."""

    def __init__(
        self,
        folder: Path,
        resource: str,
        service: Callable[[], DevicePluginService],
        changed: Callable[[str], None],
        counted: Callable[[str], None],
        numbers: Iterator[int] | None = None,
    ) -> None:
        """Name sockets by `numbers`, which all registrations of a process have in common."""
        self._folder = folder
        self._kubelet = folder / KUBELET_SOCKET
        self._resource = resource
        self._service = service
        self._changed = changed
        self._counted = counted
        self._current: DevicePluginService | None = None
        self._numbers = numbers or count(1)
        self._failures = 0

    async def run(self) -> None:
        """Register, and again whenever that has come to nothing."""
        while True:
            await asyncio.sleep(_PAUSES_SECONDS[min(self._failures, len(_PAUSES_SECONDS) - 1)])
            kubelet = await self._listening_kubelet()
            try:
                await self._session(kubelet)
            finally:
                self._changed("")

    def again(self) -> None:
        """Register anew, though nothing has ended."""
        if self._current:
            self._current.ended.set()

    async def _listening_kubelet(self) -> SocketIdentity:
        """Wait for a kubelet that answers; one that does has deleted the sockets of before."""
        while True:
            identity = SocketIdentity.of(self._kubelet)
            if identity and await answers(self._kubelet):
                return identity
            await asyncio.sleep(_POLL_SECONDS)

    async def _session(self, kubelet: SocketIdentity) -> None:
        number = next(self._numbers)
        self._failures += 1
        socket = self._folder / f"gputopo-{os.getpid()}-{number}.sock"
        service, server = self._service(), grpc.aio.server()
        add_DevicePluginServicer_to_server(service, server)
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        try:
            await self._register(socket.name)
            async with asyncio.timeout(_LIST_SECONDS):
                await service.listed.wait()
            self._failures, self._current = 0, service
            self._counted("ok")
            log.info("registered with the kubelet", resource=self._resource, socket=socket.name)
            self._changed(f"{kubelet.inode:x}-{kubelet.changed_ns:x}-{number}")
            log.info("the registration is over", reason=await self._end(kubelet, socket, service))
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else "no list of devices was asked for"
            self._counted("failed")
            log.warning("cannot register with the kubelet", reason=reason)
        finally:
            self._current = None
            await server.stop(grace=None)
            del server  # gRPC's destructor needs the running loop, which a traceback may outlive
            socket.unlink(missing_ok=True)

    async def _register(self, name: str) -> None:
        request = RegisterRequest(
            version="v1beta1",
            endpoint=name,
            resource_name=self._resource,
            options=DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True),
        )
        async with grpc.aio.insecure_channel(
            f"unix:{self._kubelet}", [("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            await RegistrationStub(channel).Register(request, timeout=_REGISTER_SECONDS)

    async def _end(self, kubelet: SocketIdentity, socket: Path, service: DevicePluginService) -> str:
        """Wait until the registration is worth nothing any more, and return why."""
        while SocketIdentity.of(self._kubelet) == kubelet and SocketIdentity.of(socket):
            try:
                async with asyncio.timeout(_WATCH_SECONDS):
                    await service.ended.wait()
            except TimeoutError:
                continue
            return "the kubelet has let go of us"
        return "the kubelet's socket is another one" if SocketIdentity.of(socket) else "our socket was removed"


def remove_leftovers(folder: Path) -> None:
    """Remove the sockets of an agent that ended without doing so."""
    for leftover in folder.glob(OUR_SOCKETS):
        leftover.unlink(missing_ok=True)


async def answers(socket: Path) -> bool:
    """Whether somebody listens there."""
    try:
        _, writer = await asyncio.open_unix_connection(socket)
    except OSError:
        return False
    writer.close()
    return True
