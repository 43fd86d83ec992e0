"""Payloads that nobody vouches for: each trap is refused with its path, and nothing ever raises anything else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from topology.annotations.codec import decode_topology, encode_topology
from topology.annotations.payload import MAX_BYTES
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
)
from topology.annotations.status_codec import decode_status, encode_status
from topology.errors import PayloadError, UnsupportedVersion
from topology.formats.catalog import MACHINES, machine
from topology.node.links import Affinity
from topology.node.status import GpuStatus, LinkFault, NodeGpuStatus

Decoder = Callable[[str | bytes], object]
DECODERS: tuple[Decoder, ...] = (decode_topology, decode_status, decode_ledger, decode_placement, decode_observed)
GPU = {"uuid": "GPU-a", "index": 0, "model": "m"}
OTHER_GPU = {"uuid": "GPU-b", "index": 1, "model": "m"}


def topology(**changes: Any) -> str:
    return json.dumps({"v": 1, "gpus": [GPU, OTHER_GPU], "links": []} | changes)


def gpu(**changes: Any) -> str:
    return topology(gpus=[GPU | changes, OTHER_GPU])


def link(**changes: Any) -> str:
    return topology(links=[{"a": 0, "b": 1} | changes])


TRAPS: list[tuple[str, str | bytes, str]] = [
    ("nothing", "", "$"),
    ("not JSON", "{'v':1}", "$"),
    ("not UTF-8", b'{"v":1,"gpus":[],"x":"\xff"}', "$"),
    ("a lone surrogate in the text", '{"v":1,"gpus":[],"x":"\ud800"}', "$"),
    ("a lone surrogate, escaped", gpu(model="\ud800"), "$.gpus[0].model"),
    ("an array", "[]", "$"),
    ("null", "null", "$"),
    ("too large", '{"v":1,"gpus":[],"x":"' + "x" * MAX_BYTES + '"}', "$"),
    ("too large in bytes only", '{"v":1,"gpus":[],"x":"' + "€" * (MAX_BYTES // 2) + '"}', "$"),
    ("nested deeply", '{"v":1,"gpus":' + "[" * 15_000 + "]" * 15_000 + "}", "$"),
    ("never closed", '{"v":1,"gpus":' + "[" * 30_000, "$"),
    ("NaN", '{"v":1,"gpus":[],"x":NaN}', "$"),
    ("Infinity", '{"v":1,"gpus":[],"x":-Infinity}', "$"),
    ("the same key twice", '{"v":1,"gpus":[],"gpus":[]}', "$"),
    ("the same key twice, below", '{"v":1,"gpus":[{"index":0,"index":1}]}', "$"),
    ("a number of 5,000 digits", '{"v":1,"gpus":[],"x":' + "9" * 5_000 + "}", "$"),
    ("a number of 4,000 digits", gpu().replace('"index": 0', '"index":' + "9" * 4_000), "$.gpus[0].index"),
    ("an underscore in a number", '{"v":1_0,"gpus":[]}', "$"),
    ("digits of another script", '{"v":\u0661,"gpus":[]}', "$"),
    ("no version", '{"gpus":[]}', "$.v"),
    ("a version that is a string", '{"v":"1","gpus":[]}', "$.v"),
    ("a version that is true", '{"v":true,"gpus":[]}', "$.v"),
    ("a version that is a float", '{"v":1.0,"gpus":[]}', "$.v"),
    ("no GPUs", '{"v":1}', "$.gpus"),
    ("GPUs that are an object", topology(gpus={}), "$.gpus"),
    ("73 GPUs", topology(gpus=[GPU | {"index": n, "uuid": f"{n}"} for n in range(73)]), "$.gpus"),
    ("a GPU that is a number", topology(gpus=[1]), "$.gpus[0]"),
    ("no UUID", topology(gpus=[{"index": 0, "model": "m"}]), "$.gpus[0].uuid"),
    ("an empty UUID", gpu(uuid=""), "$.gpus[0].uuid"),
    ("a UUID with a blank", gpu(uuid="GPU a"), "$.gpus[0].uuid"),
    ("a UUID with a line end", gpu(uuid="GPU-a\n"), "$.gpus[0].uuid"),
    ("a long UUID", gpu(uuid="x" * 97), "$.gpus[0].uuid"),
    ("the same UUID twice", gpu(uuid="GPU-b"), "$.gpus[1].uuid"),
    ("an index that is true", gpu(index=True), "$.gpus[0].index"),
    ("an index that is a float", gpu(index=0.0), "$.gpus[0].index"),
    ("an index that is a string", gpu(index="0"), "$.gpus[0].index"),
    ("a negative index", gpu(index=-1), "$.gpus[0].index"),
    ("a falling index", gpu(index=2), "$.gpus[1].index"),
    ("a model with a control character", gpu(model="a\u001b[31m"), "$.gpus[0].model"),
    ("a model that turns the line around", gpu(model="a\u202eb"), "$.gpus[0].model"),
    ("a long model", gpu(model="m" * 254), "$.gpus[0].model"),
    ("negative memory", gpu(memory_bytes=-1), "$.gpus[0].memory_bytes"),
    ("a yottabyte of memory", gpu(memory_bytes=10**24), "$.gpus[0].memory_bytes"),
    ("a capability in other digits", gpu(compute_capability="\u0669.0"), "$.gpus[0].compute_capability"),
    ("a capability with a line end", gpu(compute_capability="9.0\n"), "$.gpus[0].compute_capability"),
    ("negative switch links", gpu(switch_links=-1), "$.gpus[0].switch_links"),
    ("forged common traits", topology(every_gpu={"switch_links": 10**9}), "$.every_gpu.switch_links"),
    ("a negative count of links", link(nvlinks=-1), "$.links[0].nvlinks"),
    ("more links than believed", link(nvlinks=65), "$.links[0].nvlinks"),
    ("a lopsided link", link(a=1, b=0), "$.links[0]"),
    ("a link to itself", link(b=0), "$.links[0]"),
    ("a link to a GPU that is not there", link(b=7), "$.links[0]"),
    (
        "the same pair twice",
        topology(links=[{"a": 0, "b": 1, "nvlinks": 1}, {"a": 0, "b": 1, "nvlinks": 2}]),
        "$.links[1]",
    ),
    ("an unknown path", link(path="PIXY"), "$.links[0].path"),
    ("a link without an end", topology(links=[{"a": 0}]), "$.links[0].b"),
    ("a NIC path to no GPU", topology(nics=[{"name": "n", "paths": {"PIX": [9]}}]), "$.nics[0].paths"),
    ("a NIC twice", topology(nics=[{"name": "n"}, {"name": "n"}]), "$.nics"),
    ("a GPU on two paths", topology(nics=[{"name": "n", "paths": {"PIX": [0], "SYS": [0]}}]), "$.nics[0].paths.SYS"),
    ("a pair of one NIC", topology(nics=[{"name": "n"}], nic_pairs={"PIX": [[0, 0]]}), "$.nic_pairs.PIX"),
    ("a pair of three NICs", topology(nic_pairs={"PIX": [[0, 1, 2]]}), "$.nic_pairs.PIX[0]"),
    ("a domain without clique", topology(domain={"cluster_uuid": "u"}), "$.domain.clique_id"),
]


@pytest.mark.parametrize(("text", "path"), [pytest.param(text, path, id=name) for name, text, path in TRAPS])
def test_trap_is_refused_with_its_path(text: str | bytes, path: str) -> None:
    """One node's bad payload rejects that node, with a reason that somebody can act on."""
    with pytest.raises(PayloadError) as caught:
        decode_topology(text)
    assert caught.value.path == path
    assert caught.value.reason
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("version", [0, 2, -1, 10**30])
def test_other_versions_are_told_apart_from_broken_payloads(decode: Decoder, version: int) -> None:
    """A newer payload must never be rewritten."""
    with pytest.raises(UnsupportedVersion):
        decode(json.dumps({"v": version, "anything": []}))


def test_a_hostile_key_does_not_reach_the_logs_unescaped() -> None:
    """Paths are printable and bounded, whatever the keys were."""
    text = json.dumps({"v": 1, "gpus": {"GPU-\u202e\n" + "x" * 3_000: {}}})
    for decode in (decode_status, decode_observed):
        with pytest.raises(PayloadError) as caught:
            decode(text)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 400


def _valid() -> tuple[tuple[Decoder, str], ...]:
    claims = tuple(Claim(f"GPU-{n}", f"uid-{n}", "ml", f"train-{n}", "main", "1") for n in range(4))
    status = NodeGpuStatus(3, (GpuStatus("GPU-a", False, ("xid 79",), 3, True),), (LinkFault("GPU-a", 1, "down"),))
    machines = [(decode_topology, encode_topology(machine(name))) for name in MACHINES]
    return (
        *machines,
        (decode_status, encode_status(status)),
        (decode_ledger, encode_ledger(Ledger(1, claims, "node"))),
        (decode_placement, encode_placement(PlacementRecord({"main": ("GPU-a", "GPU-b")}, Affinity.NVLINK))),
        (decode_observed, encode_observed(Observed({"GPU-a": Holder("ml", "train", "main")}))),
    )


STRANGE: tuple[Any, ...] = (
    None, True, False, -1, 0, 1.5, 10**30, "", "x", "\x00", "\u202e", "٣", "NaN", "GPU-a", [], {}, [[]], {"a": {}}, [None],
)  # fmt: skip


def _mutated(random: random.Random, value: Any) -> Any:
    """Change one place somewhere inside."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(list(value))
        changed = dict(value)
        if random.random() < 0.2:
            del changed[key]
        else:
            changed[key] = _mutated(random, value[key])
        return changed
    if isinstance(value, list) and value and random.random() < 0.9:
        at = random.randrange(len(value))
        how = random.random()
        if how < 0.15:
            return value[:at] + value[at + 1 :]
        if how < 0.3:
            return [*value, value[at]]
        return [*value[:at], _mutated(random, value[at]), *value[at + 1 :]]
    return random.choice(STRANGE)


def _hostile(seed: int, count: int) -> Iterator[tuple[Decoder, str | bytes]]:
    chance = random.Random(seed)
    valid = _valid()
    for _ in range(count):
        decode, text = chance.choice(valid)
        how = chance.random()
        if how < 0.5:
            document = json.loads(text)
            for _ in range(chance.randint(1, 3)):
                document = _mutated(chance, document)
            yield decode, json.dumps(document)
        elif how < 0.8:
            raw = bytearray(text.encode())
            for _ in range(chance.randint(1, 8)):
                raw[chance.randrange(len(raw))] = chance.randrange(256)
            yield decode, bytes(raw)
        elif how < 0.9:
            yield decode, text[: chance.randrange(len(text))]
        else:
            yield chance.choice(DECODERS), chance.randbytes(chance.randrange(200))


@pytest.mark.slow
def test_ten_thousand_hostile_payloads() -> None:
    """Mutated, truncated and random: decoded or refused, and what is decoded could be written again."""
    encoders: dict[Decoder, Callable[[Any], str]] = {decode_topology: encode_topology, decode_ledger: encode_ledger}
    refused = decoded = 0
    for decode, text in _hostile(seed=20_260_101, count=10_000):
        try:
            value: Any = decode(text)
        except PayloadError:
            refused += 1
        else:
            decoded += 1
            if encode := encoders.get(decode):
                encode(value)
    assert refused + decoded == 10_000
    assert refused > 5_000
    assert decoded > 100
