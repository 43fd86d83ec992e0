"""What Services need, in the pods' network: names that lead to their addresses, and addresses that lead to their pods.

It stands for a cluster's DNS and for kube-proxy, and does of both what a Service with one kind of pods needs.

By hand: `python -m tests.installed.services KUBECONFIG ADDRESS`, in the network, serves names at that address.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path

import aiohttp

from benchmarks.processes.client import ApiClient, RequestRefused
from tests.cluster.api import Json

_SERVICES = "/api/v1/services"
_SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
_EVERY_SECONDS = 0.5
_DOMAIN = "svc.cluster.local"


async def answer_questions(address: str, addresses: Mapping[str, str]) -> None:
    """Answer what is asked at an address about names, for ever; what is not known does not exist."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.setblocking(False)
        asked.bind((address, 53))
        while True:
            question, caller = await loop.sock_recvfrom(asked, 512)
            await loop.sock_sendto(asked, answer(question, addresses), caller)


def answer(question: bytes, addresses: Mapping[str, str]) -> bytes:
    """Return the answer to a packet with one question (RFC 1035): an A record, none of that kind, or no such name."""
    labels, at = [], 12
    while length := question[at]:
        labels.append(question[at + 1 : at + 1 + length].decode())
        at += 1 + length
    end = at + 5
    address = addresses.get(".".join(labels).lower())
    is_a = question[at + 1 : at + 3] == b"\0\1"
    record = b"\xc0\x0c\0\1\0\1\0\0\0\5\0\4" + socket.inet_aton(address) if address and is_a else b""
    flags = b"\x85\x80" if address else b"\x85\x83"
    return question[:2] + flags + b"\0\1" + (b"\0\1" if record else b"\0\0") + b"\0\0\0\0" + question[12:end] + record


class Relays:
    """Listens at the addresses of Services, and hands each connection on to one of their pods in turn."""

    def __init__(self) -> None:
        self._pods: dict[tuple[str, str], list[tuple[str, int]]] = {}
        self._servers: dict[tuple[str, int], asyncio.Server] = {}
        self._turns = count()

    def told(self, slices: Iterable[Json]) -> None:
        """Take in where the Services' ready pods are."""
        self._pods = {}
        for each in slices:
            service = (each["metadata"]["namespace"], each["metadata"]["labels"]["kubernetes.io/service-name"])
            ready = [found for found in each["endpoints"] or () if found["conditions"].get("ready")]
            addresses = [
                (address, port["port"]) for found in ready for address in found["addresses"] for port in each["ports"]
            ]
            self._pods.setdefault(service, []).extend(addresses)

    async def listen(self, service: tuple[str, str], address: str, port: int) -> None:
        """Listen for a Service, if nobody does yet."""
        if (address, port) in self._servers:
            return
        words = ("address", "replace", f"{address}/32", "dev", "lo")
        await (await asyncio.create_subprocess_exec("ip", *words)).wait()

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pods = self._pods.get(service)
            with suppress(OSError):
                if pods:
                    theirs = await asyncio.open_connection(*pods[next(self._turns) % len(pods)])
                    await asyncio.gather(_copy(reader, theirs[1]), _copy(theirs[0], writer))
            writer.close()

        self._servers[address, port] = await asyncio.start_server(relay, address, port)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def serve(kubeconfig: Path, address: str) -> None:
    """Serve for ever."""
    names, relays = dict[str, str](), Relays()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(answer_questions(address, names))
        tasks.create_task(follow(kubeconfig, names, relays))


async def follow(kubeconfig: Path, names: dict[str, str], relays: Relays) -> None:
    """Keep both to what the API server has, for ever."""
    async with ApiClient.from_kubeconfig(kubeconfig) as api:
        while True:
            with suppress(aiohttp.ClientError, RequestRefused):  # the next look sees what is so then
                await _look(api, names, relays)
            await asyncio.sleep(_EVERY_SECONDS)


async def _look(api: ApiClient, names: dict[str, str], relays: Relays) -> None:
    relays.told((await api.call("GET", _SLICES)).ok()["items"])
    for each in (await api.call("GET", _SERVICES)).ok()["items"]:
        name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
        names[f"{name}.{namespace}.{_DOMAIN}"] = each["spec"]["clusterIP"]
        if name != "kubernetes":  # the API server itself is there
            for port in each["spec"]["ports"]:
                await relays.listen((namespace, name), each["spec"]["clusterIP"], port["port"])


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
