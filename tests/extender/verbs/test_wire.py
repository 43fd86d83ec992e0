"""The bodies are those of kube-scheduler, and anything else is refused with a path and a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from extender.verbs.wire import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    HostPriority,
    MalformedBody,
    decode_args,
    decode_binding_args,
    decode_preemption_args,
    encode,
)

RECORDED = Path(__file__).parents[2] / "contract" / "recorded"
DECODERS: dict[str, Callable[[bytes], ExtenderArgs | ExtenderBindingArgs | ExtenderPreemptionArgs]] = {
    "filter": decode_args,
    "prioritize": decode_args,
    "bind": decode_binding_args,
    "preempt": decode_preemption_args,
}


def test_reads_what_kube_scheduler_writes() -> None:
    """Outer keys are Go names, inner objects are lowerCamel, the unused list is null."""
    args = decode_args(
        b'{"Pod":{"metadata":{"uid":"u1"},"spec":{"nodeName":"n9","x":1}},"Nodes":null,"NodeNames":["n1","n2"]}'
    )
    assert (args.pod.metadata.uid, args.pod.spec.node_name) == ("u1", "n9")
    assert args.node_names == ["n1", "n2"]
    assert args.nodes is None


def test_sends_nodes_back_as_they_came_when_no_names_are_sent() -> None:
    """A scheduler without `nodeCacheCapable` sends whole nodes and takes nothing else."""
    node = b'{"metadata":{"name":"n1"},"spec":{"unknown":[1]}}'
    args = decode_args(
        b'{"Pod":{"metadata":{"uid":"u"}},"Nodes":{"items":['
        + node
        + b',{"metadata":{"name":"n2"}}]},"NodeNames":null}'
    )
    assert args.names == ["n1", "n2"]
    assert encode(args.passing(["n1"])) == b'{"NodeNames":["n1"],"Nodes":{"items":[' + node + b"]}}"


def test_refuses_nodes_without_metadata() -> None:
    """What cannot be named cannot be answered."""
    with pytest.raises(MalformedBody, match="metadata"):
        decode_args(b'{"Pod":{"metadata":{"uid":"u"}},"Nodes":{"items":[{"spec":{}}]}}')


def test_reads_a_binding() -> None:
    """Bind names the pod and the node, nothing more."""
    body = b'{"PodName":"p1","PodNamespace":"ml","PodUID":"u1","Node":"n2"}'
    assert decode_binding_args(body) == ExtenderBindingArgs("p1", "ml", "u1", "n2")


def test_reads_victims_by_uid() -> None:
    """Preemption candidates come as UIDs."""
    args = decode_preemption_args(
        b'{"Pod":{},"NodeNameToVictims":null,'
        b'"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"u7"}],"NumPDBViolations":2}}}'
    )
    assert args.node_name_to_meta_victims is not None
    victims = args.node_name_to_meta_victims["n1"]
    assert victims.pods is not None
    assert (victims.pods[0].uid, victims.num_pdb_violations) == ("u7", 2)


@pytest.mark.parametrize(
    ("answer", "wire"),
    [
        (ExtenderFilterResult(["n1"]), {"NodeNames": ["n1"]}),
        (ExtenderFilterResult([]), {"NodeNames": []}),
        (
            ExtenderFilterResult([], {"n1": "a"}, {"n2": "b"}),
            {"NodeNames": [], "FailedNodes": {"n1": "a"}, "FailedAndUnresolvableNodes": {"n2": "b"}},
        ),
        ([HostPriority("n1", 10)], [{"Host": "n1", "Score": 10}]),
        (ExtenderBindingResult(), {"Error": ""}),
        (ExtenderBindingResult("taken"), {"Error": "taken"}),
    ],
)
def test_writes_what_kube_scheduler_reads(answer: object, wire: object) -> None:
    """Names are Go's, scores are integers, and an empty list is never null."""
    assert json.loads(encode(answer)) == wire


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b"", "$"),
        (b"[]", "$"),
        (b"{}", "$"),
        (b'{"Pod":', "$"),
        (b'{"Pod":{"metadata":{"uid":7}}}', "$.Pod.metadata.uid"),
        (b'{"Pod":{"metadata":{}}}', "$"),
        (b'{"Pod":{"metadata":{"uid":"\xff"}}}', "$"),
        (b'{"Pod":{"metadata":{"uid":"u"},"x":NaN}}', "$"),
        (b'{"Pod":{"metadata":{"uid":"u"},"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}}", "$"),
        (b'{"Pod":{"metadata":{"uid":"u"}},"NodeNames":["a",1]}', "$.NodeNames[1]"),
        (b'{"Pod":{"metadata":{"uid":"u"},"x":' + b"9" * 5000 + b"}}", "$"),
        (b'{"Pod":{"metadata":{"uid":"u"},"x":1_000}}', "$"),
        ('{"Pod":{"metadata":{"uid":"u"},"x":٣}}'.encode(), "$"),
    ],
    ids=lambda value: value[:30] if isinstance(value, bytes) else value,
)
def test_refuses_what_is_malformed(body: bytes, path: str) -> None:
    """The error names where, and why in words."""
    with pytest.raises(MalformedBody) as caught:
        decode_args(body)
    assert caught.value.path == path
    assert caught.value.reason


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("filter", '{"Pod":{"metadata":{"uid":"u"}},"Nodes":null,"NodeNames":["a"],"NodeNames":["b"]}'),
        ("filter", '{"NodeNames":["a"],"Pod":{"metadata":{"uid":"u"}},"NodeNames":["b"]}'),
        ("filter", '{"Pod":{"metadata":{"uid":"u"}},"NodeNames":["a"],"Pod":{"metadata":{"uid":"v"}}}'),
        ("filter", '{"Pod":{"metadata":{"uid":"u"}},"Pod":{"metadata":{"uid":"v"}},"NodeNames":["a"]}'),
        ("prioritize", '{"Pod":{"metadata":{"uid":"u","uid":"v"}},"NodeNames":["a"]}'),
        ("prioritize", '{"Pod":{"metadata":{"uid":"u"},"x":{"a":1,"a":2}} , "NodeNames":["a"]}'),
        ("filter", '{"Pod":{"metadata":{"uid":"u"}},"NodeNames":null,"\\u004eodeNames":["a"]}'),
        ("bind", '{"PodName":"p","PodNamespace":"n","PodUID":"u","Node":"w","Node":"v"}'),
        ("preempt", '{"Pod":{},"NodeNameToMetaVictims":{"n1":{},"n1":{"Pods":[]}}}'),
    ],
)
def test_the_same_key_twice_is_refused(verb: str, body: str) -> None:
    """I2: which of the two counts is every reader's own choice."""
    with pytest.raises(MalformedBody, match="same key twice"):
        DECODERS[verb](body.encode())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[(key, "") for key in ("PodName", "PodNamespace", "PodUID", "Node")],
        *[("PodName", value) for value in ("..", "a/b", "A", "a\n", "a" * 254, "-a", None)],
    ],
)
def test_a_binding_names_everything_by_real_names(key: str, value: str | None) -> None:
    """Binding by name alone could bind a namesake, and a path must not lead anywhere else."""
    body = {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "w", key: value}
    with pytest.raises(MalformedBody) as caught:
        decode_binding_args(json.dumps(body).encode())
    assert caught.value.path == f"$.{key}"


@pytest.mark.parametrize("path", sorted(RECORDED.rglob("*.json")), ids=lambda path: "/".join(path.parts[-3:]))
def test_decodes_every_recorded_body(path: Path) -> None:
    """Bodies that a real kube-scheduler sent, one file per verb; none of them loses what it is about."""
    args = DECODERS[path.stem](path.read_bytes())
    assert args.pod_uid if isinstance(args, ExtenderBindingArgs) else args.pod.metadata.uid
