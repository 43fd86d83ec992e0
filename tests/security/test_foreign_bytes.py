"""A reader of what others have written raises what its callers handle, and nothing else, which would end a process."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from agent.config import KubeletSettings
from agent.config import load as load_agent
from agent.errors import ApiError
from agent.gpus.health.health_file import HealthFile
from agent.health.memory import HealthMemory, UnreadableMemory, decode_memory, encode_memory
from agent.kubelet.surroundings import alignment, cdi_devices, numa_nodes_of_cpus
from agent.limits.cgroups import PodCgroups, pod_of
from agent.node.kube import KubernetesNode, _annotations, _document, _event, _reason, _version
from agent.plugin.journal import decode as decode_journal
from benchmarks.processes.kubeconfig import write_kubeconfig
from benchmarks.simulated.fleet import gpu_pod
from extender.binding.intents import BindPod, FencePod, GetNode, GetPod, GetPodVersion, ListPods, SwapLedger
from extender.cluster.objects.budgets import PodDisruptionBudget
from extender.cluster.objects.devices import ResourceClaim, ResourceSlice
from extender.cluster.objects.group_sizes import GroupMaker
from extender.cluster.objects.kinds import Node, Pod
from extender.cluster.objects.quantities import cpu_milli, quantity
from extender.cluster.objects.versions import is_before
from extender.core.device_classes import DeviceClasses
from extender.features.configuration import load
from extender.inspect.samples import samples_of
from extender.kit.clock import Instant
from extender.kit.configuration import ConfigurationError
from extender.kubectl.control_plane import control_plane
from extender.kubectl.hypothetical import pod_from
from extender.kubectl.snapshot import Snapshot, Unreadable
from extender.kubernetes.documents import (
    BrokenStream,
    Expired,
    Overlong,
    decoder,
    event_decoder,
    message_of,
    name_changed,
    name_listed,
    name_object,
    newer_version,
    read_page,
    read_whole,
)
from extender.kubernetes.kube import KubeApi
from extender.kubernetes.kubeconfig import Kubeconfig
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request, to_reply
from tests.security.foreign_bytes import ALWAYS, hostile
from topology.annotations.codec import decode_topology, encode_topology
from topology.annotations.measurements import decode_measurements
from topology.annotations.overrides import Override, Word, decode_overrides, encode_overrides
from topology.annotations.records import (
    Claim,
    Holder,
    Ledger,
    Observed,
    PlacementRecord,
    decode_ledger,
    decode_observed,
    decode_placement,
    encode_ledger,
    encode_observed,
    encode_placement,
    is_later,
)
from topology.annotations.status_codec import decode_status, encode_status
from topology.errors import PayloadError, RequestError
from topology.formats.catalog import machine
from topology.node.status import GpuStatus, LinkFault, NodeGpuStatus, Outlook
from topology.request import words

Reader = Callable[[bytes], object]
QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
"""An input of 30,000 brackets takes minutes to be made smaller, and is small enough."""
POD = {"kind": "Pod", **gpu_pod("p", 2)}
POD["metadata"] |= {"uid": "u", "resourceVersion": "8", "namespace": "ml"}
NODE = {"kind": "Node", "metadata": {"name": "n", "uid": "u", "resourceVersion": "7"}, "status": {"conditions": []}}
PAGE = {"metadata": {"resourceVersion": "9", "continue": "c"}, "items": [NODE, POD]}
STATUS = NodeGpuStatus(
    3,
    (GpuStatus("GPU-a", False, ("xid 79",), 3, True, 100, Outlook("it opens", 200)),),
    (LinkFault("GPU-a", 1, "down", 5),),
)
HONEST = {
    "pod": json.dumps(POD, separators=(",", ":")).encode(),
    "node": json.dumps(NODE, separators=(",", ":")).encode(),
    "page": json.dumps(PAGE, separators=(",", ":")).encode(),
    "event": json.dumps({"type": "ADDED", "object": POD}, separators=(",", ":")).encode(),
    "error": b'{"type":"ERROR","object":{"code":410,"message":"gone"}}',
    "refusal": b'{"kind":"Status","message":"no","code":409}',
    "topology": encode_topology(machine("l40s-8")).encode(),
    "status": encode_status(STATUS).encode(),
    "ledger": encode_ledger(Ledger(2, (Claim("GPU-a", "u", "ml", "p", "main", "7"),), "n")).encode(),
    "placement": encode_placement(PlacementRecord({"main": ("GPU-a",)})).encode(),
    "observed": encode_observed(Observed({"GPU-a": Holder("ml", "p", "main")}, 3)).encode(),
    "overrides": encode_overrides({"GPU-a": Override(Word.CORDONED, "why", "me", 5, 4)}).encode(),
    "memory": encode_memory(HealthMemory(boot="b")),
    "journal": b'{"v":1,"served":[{"namespace":"ml","name":"p","uid":"u","gpus":["GPU-a::0-3"]}]}',
    "metrics": b'# TYPE gputopo_gpu_power_watts gauge\ngputopo_gpu_power_watts{uuid="GPU-a"} 5\n',
    "yaml": b"apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {cluster: c, user: u}\n"
    b"clusters:\n- name: c\n  cluster: {server: 'http://127.0.0.1:1'}\nusers:\n- name: u\n  user: {token: t}\n",
}


def _follow(data: bytes) -> None:
    """Read a line of a watch as the agent does."""
    _version(_event(data)["object"])


READERS: dict[str, tuple[Reader, tuple[type[Exception], ...], str]] = {
    "a refusal's message": (message_of, (), "refusal"),
    "a whole object": (read_whole, (BrokenStream,), "pod"),
    "a page": (read_page, (BrokenStream,), "page"),
    "a page too long": (lambda data: name_listed(Overlong(data, 1)), (BrokenStream,), "page"),
    "an object's name": (lambda data: name_object(data, "why"), (), "pod"),
    "a change's name": (lambda data: (name_changed(data, "why"), newer_version(data)), (), "event"),
    "a Node": (decoder(Node), (BrokenStream,), "node"),
    "a Pod": (decoder(Pod), (BrokenStream,), "pod"),
    "a PodDisruptionBudget": (decoder(PodDisruptionBudget), (BrokenStream,), "pod"),
    "a ResourceClaim": (decoder(ResourceClaim), (BrokenStream,), "pod"),
    "a ResourceSlice": (decoder(ResourceSlice), (BrokenStream,), "pod"),
    "a maker of groups": (decoder(GroupMaker), (BrokenStream,), "pod"),
    "an event": (event_decoder(Pod), (BrokenStream,), "event"),
    "the end of a watch": (event_decoder(Node), (BrokenStream,), "error"),
    "a topology": (decode_topology, (PayloadError,), "topology"),
    "a status": (decode_status, (PayloadError,), "status"),
    "a ledger": (decode_ledger, (PayloadError,), "ledger"),
    "a placement": (decode_placement, (PayloadError,), "placement"),
    "an observation": (decode_observed, (PayloadError,), "observed"),
    "overrides": (lambda data: decode_overrides(data.decode(errors="replace")), (PayloadError,), "overrides"),
    "measurements": (decode_measurements, (PayloadError,), "status"),
    "an agent's metrics": (lambda data: samples_of(data, 9), (), "metrics"),
    "the agent's memory": (decode_memory, (UnreadableMemory,), "memory"),
    "the journal": (lambda data: decode_journal(data.decode()), (ValueError,), "journal"),
    "an answer to the agent": (lambda data: _annotations(_document(data)), (ApiError,), "node"),
    "a refusal to the agent": (_reason, (), "refusal"),
    "a watch of the agent": (_follow, (ApiError,), "event"),
}
INTENTS = (
    GetPod("ml", "p"),
    GetPodVersion("ml", "p"),
    GetNode("n"),
    FencePod("ml", "p", "u", "1", "m", Pod()),
    BindPod("ml", "p", "u", "1", "n", {}),
    SwapLedger("n", "u", "{}", "{}", "1", ""),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
@settings(max_examples=60, deadline=None, phases=PHASES, suppress_health_check=QUIET)
def test_a_reader_raises_what_it_promises(name: str, data: st.DataObject) -> None:
    """It reads it, or refuses it by its own error."""
    read, refusals, honest = READERS[name]
    with suppress(*refusals):
        read(data.draw(hostile(HONEST[honest])))


@pytest.mark.parametrize("name", READERS)
def test_what_once_brought_a_reader_down_does_so_to_none(name: str) -> None:
    """What an honest sender writes is read."""
    read, refusals, honest = READERS[name]
    if "too long" not in name and name != "measurements":
        read(HONEST[honest])
    for text in ALWAYS:
        with suppress(*refusals):
            read(text)


@given(status=st.sampled_from([200, 201, 301, 400, 404, 408, 409, 422, 429, 500, 504]), body=hostile(HONEST["pod"]))
@settings(max_examples=100, deadline=None, phases=PHASES, suppress_health_check=QUIET)
@example(200, b"[" * 30_000)
@example(409, b'{"message":"\xff"}')
def test_every_answer_to_an_intent_is_a_reply(status: int, body: bytes) -> None:
    """What cannot be understood is no answer."""
    for intent in INTENTS:
        to_reply(intent, status, body)


@pytest.mark.slow
@given(body=hostile(HONEST["page"]), status=st.sampled_from([200, 403, 404, 500]))
@settings(max_examples=60, deadline=None, phases=PHASES, suppress_health_check=QUIET)
def test_checks_of_the_cluster_survive_every_answer(body: bytes, status: int) -> None:
    """What is not known stays unknown."""

    async def send(request: Request) -> tuple[int, bytes]:
        return status, body

    async def ask() -> None:
        await control_plane(send, Instant(0.0, 0.0))
        await DeviceClasses(send, "nvidia.com/gpu", lambda mapped: None).check()

    asyncio.run(ask())


@pytest.mark.slow
@given(text=hostile(HONEST["yaml"], HONEST["page"]), is_packed=st.booleans())
@settings(max_examples=60, deadline=None, phases=PHASES, suppress_health_check=QUIET)
def test_files_of_others_are_read_or_refused(tmp_path: Path, text: bytes, is_packed: bool) -> None:
    """Kubeconfig, snapshot, manifest, configuration, health file, CDI spec, the kubelet's configuration."""
    read_as_every_kind_of_file(tmp_path, gzip.compress(text) if is_packed else text)


@pytest.mark.slow
def test_files_that_once_brought_a_reader_down_do_so_to_none(tmp_path: Path) -> None:
    """Among them a snapshot that ends too early, one that is deep, and dates and numbers of YAML that are none."""
    cut, deep = gzip.compress(HONEST["page"])[:-3], b'{"kind":"List","items":[' + b'{"a":' * 30_000
    for text in (*ALWAYS, cut, deep, gzip.compress(deep)):
        read_as_every_kind_of_file(tmp_path, text)


def read_as_every_kind_of_file(folder: Path, content: bytes) -> None:
    """Let everybody read it who reads files; each of them handles its own error only."""
    file = folder / "file.yaml"
    file.write_bytes(content)
    with suppress(Unavailable):
        Kubeconfig.find(file, None, {})
    with suppress(Unreadable):
        Snapshot.read(file)
    with suppress(ConfigurationError):
        load(file, {}, {})
    with suppress(ConfigurationError):
        load_agent(file, {}, {})
    with suppress(typer.Exit):
        pod_from(file, "ml")
    alignment(KubeletSettings(configFile=file))
    cdi_devices(folder)
    PodCgroups(folder, file).all_pods()
    (folder / "health.json").write_bytes(content)
    kept = HealthFile(folder)
    kept.load()
    kept.close()


DEEP = 100
"""Brackets that an agent's own kubeconfig may open in a test."""


@pytest.fixture(scope="module")
def nobody_answers() -> Iterator[None]:
    """Let no name be resolved, and no proxy be asked: an address that is mutilated may be that of somebody who never answers."""

    def refuse(host: object, *_: object, **__: object) -> list[Any]:
        if host in ("127.0.0.1", b"127.0.0.1"):
            return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 1))]
        raise socket.gaierror(socket.EAI_NONAME, "nobody is asked")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", refuse)
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            patched.delenv(name, raising=False)
            patched.delenv(name.upper(), raising=False)
        yield


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:URLs without a scheme:FutureWarning")
@given(text=hostile(HONEST["yaml"]))
@settings(max_examples=30, deadline=None, phases=PHASES, suppress_health_check=QUIET)
@example(HONEST["yaml"].replace(b"127.0.0.1:1", b"127.0.0.1:99999999"))
@example(HONEST["yaml"].replace(b"token: t", b'token: "a\\nb"'))
@example(HONEST["yaml"].replace(b"token: t", b'token: "\\u20ac"'))
@example(
    HONEST["yaml"].replace(
        b"server: 'http://127.0.0.1:1'", b"server: 'https://127.0.0.1:1', certificate-authority-data: eA=="
    )
)
def test_whatever_a_kubeconfig_says_it_is_read_or_there_are_no_credentials(
    tmp_path: Path, nobody_answers: None, text: bytes
) -> None:
    """Also by requests, lists and watches that are made with it; extender and agent alike."""
    file = tmp_path / "kubeconfig"
    file.write_bytes(text)
    if any(address != b"127.0.0.1" for address in re.findall(rb"https?://([^:/'\"]*)", text)):
        return  # only 127.0.0.1 may be asked

    async def use() -> None:
        with suppress(Unavailable):
            async with KubeApi.from_kubeconfig(file, request_timeout_seconds=1.0) as api:
                await api.execute(GetPod("ml", "p"), 1.0)
                with suppress(Unavailable):
                    await api.resource("/api/v1/pods").latest_version()

    asyncio.run(use())
    if text.count(b"[") > DEEP:
        return  # the official client reads it for minutes, with the square of its depth
    with suppress(ApiError):
        KubernetesNode("n", file, None, 1.0).read()


def answer(body: bytes, status: bytes = b"200 OK", head: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(body), head, body)


ANSWERS = {
    "Retry-After that is no UTF-8": answer(HONEST["pod"], head=b"Retry-After: \xff\r\n"),
    "Retry-After that is no UTF-8, and busy": answer(b"{}", b"429 Too Many Requests", b"Retry-After: \xff\r\n"),
    "Retry-After of 5,000 digits": answer(b"{}", b"429 Too Many Requests", b"Retry-After: " + b"9" * 5000 + b"\r\n"),
    "Retry-After in other digits": answer(b"{}", b"500 Sorry", "Retry-After: ٣\r\n".encode()),
    "a refusal that is no UTF-8": answer(b'{"message":"\xff"}', b"409 Conflict"),
    "a refusal that is deep": answer(b"[" * 30_000, b"409 Conflict"),
    "a deep page": answer(b"[" * 30_000),
    "a page whose continuation is no UTF-8": answer(HONEST["page"].replace(b'"continue":"c"', b'"continue":"\xff"')),
    "a page that is null": answer(b"null"),
    "no HTTP": b"\xff\xff\xff\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n\xff",
    "a redirect to nowhere": answer(b"", b"307 Temporary Redirect", b"Location: http://[\r\n"),
    "a header without a name": answer(b"{}", head=b": x\r\n"),
    "a header of 100 KiB": answer(b"{}", head=b"X: " + b"a" * 100_000 + b"\r\n"),
    "a cookie": answer(b"{}", head=b"Set-Cookie: \xff=\xff; expires=Thu, 99 Foo 99999 99:99:99\r\n"),
    "a charset": answer(HONEST["page"], head=b"Content-Type: application/json; charset=\xff\r\n"),
    "gzip that is none": answer(b"\x1f\x8b\xff", head=b"Content-Encoding: gzip\r\n"),
    "an unknown encoding": answer(b"\x1f\x8b\xff", head=b"Content-Encoding: \xff\r\n"),
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\n{}",
    "a length of 5,000 digits": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n{}",
    "chunks that are none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\xff\r\n",
    "a status of five digits": b"HTTP/1.1 99999 OK\r\nContent-Length: 2\r\n\r\n{}",
    "a phrase that is no UTF-8": answer(b"{}", b"500 \xff"),
}


@asynccontextmanager
async def saying(answers: bytes) -> AsyncIterator[str]:
    """Answer every request by the same bytes, and hang up."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answers)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
async def test_every_answer_over_a_socket_is_a_reply_or_none(tmp_path: Path, name: str) -> None:
    """Requests never raise; lists and watches raise what reflectors handle; so it is with the agent."""
    async with saying(ANSWERS[name]) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        async with KubeApi.from_kubeconfig(tmp_path / "kubeconfig", request_timeout_seconds=1.0) as api:
            for intent in (*INTENTS, ListPods("n")):
                assert await api.execute(intent, 0.5) is not None
            with suppress(Unavailable):
                message_of((await api.send(Request("GET", "/api/v1/pods")))[1])
            pods = api.resource("/api/v1/pods")
            with suppress(Unavailable, Expired, BrokenStream):
                await pods.list_page(None)
            with suppress(Unavailable, Expired, BrokenStream):
                await pods.latest_version()
            with suppress(Unavailable, Expired, BrokenStream):
                async for chunk in pods.watch("1"):
                    assert isinstance(chunk, bytes)
        node = KubernetesNode("n", tmp_path / "kubeconfig", None, 1.0)
        with suppress(ApiError):
            await asyncio.to_thread(node.read)
        with suppress(ApiError):
            await asyncio.to_thread(lambda: list(node.follow(1)))


@pytest.mark.slow
@given(
    text=st.text(max_size=40)
    | st.sampled_from(["0001-01-01T00:00:00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
)
@settings(max_examples=300, deadline=None)
def test_every_text_of_an_annotation_is_read_or_refused(text: str) -> None:
    """Times, quantities and versions: what nobody can read counts as not said, or is refused by name."""
    assert 0.0 <= Instant(0.0, 1.8e9).age_seconds(text) <= 1.8e9
    with suppress(ValueError):
        quantity(text)
    assert not is_before(text, text) and not is_later(text, text)
    readers: Mapping[str, Callable[[str, str], Any]] = {
        name: getattr(words, name)
        for name in ("affinity", "positive_decimal", "positive_count", "percent", "duration", "version", "capability")
    } | {name: getattr(words, name) for name in ("quantity", "globs", "group_affinity", "switch", "name")}
    for read in readers.values():
        with suppress(RequestError):
            read("key", text)


def test_versions_of_thousands_of_digits_are_no_numbers() -> None:
    """Python reads no number of more than 4,300 digits."""
    many = "9" * 5000
    assert not is_before("1", many) and not is_later(many, "1")
    assert is_before("1", "9" * 20) and is_later("9" * 20, "1")


def test_a_quantity_is_a_number_or_none() -> None:
    """What the API server lets pass, and what it does not."""
    for text in ("1e99", "9" * 18 + "E", "9" * 5000, "1e-99", "٣"):
        read = decoder(Pod)(
            json.dumps(
                gpu_pod("p", 1) | {"spec": {"containers": [{"name": "m", "resources": {"requests": {"cpu": text}}}]}}
            ).encode()
        )
        assert cpu_milli(read) >= 0


def test_the_kernels_files_are_read_in_any_encoding(tmp_path: Path) -> None:
    """Whoever may make a cgroup may give it any name."""
    for path, content in {"2/comm": b"kthreadd\n", "7/cgroup": b"0::/\xff/kubepods/x\n"}.items():
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_bytes(content)
    assert pod_of(7, tmp_path) == ""
    folder = tmp_path / "devices/system/node/node0"
    folder.mkdir(parents=True)
    (folder / "cpulist").write_bytes(b"\xff0-3")
    assert numa_nodes_of_cpus(tmp_path) == {}
