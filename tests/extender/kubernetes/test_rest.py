"""Every write names what it rests on, and every answer has one meaning."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.binding.intents import (
    AskForLook,
    BindPod,
    Conflict,
    Done,
    FencePod,
    GetNode,
    GetPod,
    GetPodVersion,
    Gone,
    NoAnswer,
    Refused,
    Reply,
    Single,
    SwapLedger,
)
from extender.cluster.objects.kinds import Node, ObjectMeta, Pod, PodSpec
from extender.kubernetes.rest import to_reply, to_request

SWAP = SwapLedger("n1", "uid-n1", "d1", "old", "new", "7", "s1")
CREATE = SwapLedger("n1", "uid-n1", "d1", None, "new", "7")
BIND = BindPod("ml", "p1", "uid-p1", "8", "n1", {"alloc.gputopo.dev/placement": "{}"})
ASK = AskForLook("n1", "uid-n1", "7")
KNOWN = Pod(ObjectMeta("p1", "ml", "uid-p1", "8"), PodSpec(priority=7))
FENCE = FencePod("ml", "p1", "uid-p1", "8", "mark", KNOWN)
LOOK = GetPodVersion("ml", "p1")
INTENTS: list[Single] = [GetPod("ml", "p1"), LOOK, GetNode("n1"), SWAP, CREATE, BIND, FENCE, ASK]


def test_swapping_a_ledger_tests_all_it_rests_on() -> None:
    """UID, old ledger, topology digest and status are compared by the server, in the write itself."""
    request = to_request(SWAP)
    assert (request.method, request.path) == ("PATCH", "/api/v1/nodes/n1?fieldManager=gputopo-extender")
    assert request.content_type == "application/json-patch+json"
    assert json.loads(request.body or b"") == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-n1"},
        {"op": "test", "path": "/metadata/annotations/alloc.gputopo.dev~1ledger", "value": "old"},
        {"op": "test", "path": "/metadata/annotations/topo.gputopo.dev~1digest", "value": "d1"},
        {"op": "test", "path": "/metadata/annotations/topo.gputopo.dev~1status", "value": "s1"},
        {"op": "replace", "path": "/metadata/annotations/alloc.gputopo.dev~1ledger", "value": "new"},
    ]


def test_a_ledger_without_a_digest_tests_the_rest() -> None:
    """A release does not depend on the topology."""
    patch = json.loads(to_request(SwapLedger("n1", "u", None, "old", "new", "7")).body or b"")
    assert [step["path"].rpartition("/")[2] for step in patch] == ["uid", *["alloc.gputopo.dev~1ledger"] * 2]


def test_an_agent_is_asked_on_its_own_node() -> None:
    """Not on another one that was made under its name."""
    request = to_request(ASK)
    assert (request.path, request.content_type) == (
        "/api/v1/nodes/n1?fieldManager=gputopo-extender",
        "application/merge-patch+json",
    )
    assert json.loads(request.body or b"")["metadata"] == {
        "uid": "uid-n1",
        "annotations": {"alloc.gputopo.dev/look": "7"},
    }


def test_the_first_ledger_rests_on_the_version_that_was_read() -> None:
    """There is nothing to compare yet, so nothing at all may have changed."""
    request = to_request(CREATE)
    assert request.content_type == "application/merge-patch+json"
    assert json.loads(request.body or b"")["metadata"] == {
        "uid": "uid-n1",
        "resourceVersion": "7",
        "annotations": {"alloc.gputopo.dev/ledger": "new"},
    }


def test_a_binding_carries_its_preconditions_and_the_placement() -> None:
    """UID and resourceVersion fence it; the annotations arrive with the node."""
    request = to_request(BIND)
    assert request.path == "/api/v1/namespaces/ml/pods/p1/binding?fieldManager=gputopo-extender"
    binding = json.loads(request.body or b"")
    assert binding["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    assert binding["metadata"] == {
        "namespace": "ml",
        "name": "p1",
        "uid": "uid-p1",
        "resourceVersion": "8",
        "annotations": {"alloc.gputopo.dev/placement": "{}"},
    }


def test_a_fence_touches_the_status_of_exactly_one_version() -> None:
    """It must fail where the pod has moved on."""
    request = to_request(FENCE)
    assert request.path == "/api/v1/namespaces/ml/pods/p1/status?fieldManager=gputopo-extender"
    metadata = json.loads(request.body or b"")["metadata"]
    assert (metadata["uid"], metadata["resourceVersion"]) == ("uid-p1", "8")


@pytest.mark.parametrize("intent", [FENCE, LOOK])
def test_of_a_large_pod_the_metadata_is_asked_for_alone(intent: Single) -> None:
    """Whoever fills a pod cannot make the answer to a fence, or to the look after it, too long to be read."""
    assert "as=PartialObjectMetadata" in to_request(intent).accept
    assert to_request(GetPod("ml", "p1")).accept == "application/json"


def test_a_fenced_pod_is_the_one_that_was_known_in_a_new_version() -> None:
    """Nothing else of it can have changed in that write; the answer says no more than its metadata."""
    body = b'{"kind":"PartialObjectMetadata","metadata":{"name":"p1","uid":"uid-p1","resourceVersion":"9"}}'
    reply = to_reply(FENCE, 200, body)
    assert isinstance(reply, Done)
    assert isinstance(reply.value, Pod)
    assert (reply.value.metadata.resource_version, reply.value.spec) == ("9", KNOWN.spec)


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("intent", [FENCE, LOOK])
def test_metadata_alone_is_read_however_deep_it_is(intent: Single, end: bytes) -> None:
    """Managed fields are the end of it, and may be nested at will; what cannot be read would count as not fenced."""
    fields = b'{"f:a":' * 9000 + b"{}" + b"}" * 9000
    entry = b'{"manager":"}]}}","fieldsV1":' + fields + b"}"
    metadata = b'{"name":"p1","uid":"uid-p1","resourceVersion":"9","managedFields":[' + entry + b"]}"
    reply = to_reply(intent, 200, b'{"kind":"PartialObjectMetadata","metadata":' + metadata + b"}" + end)
    assert isinstance(reply, Done)
    assert isinstance(reply.value, Pod)
    assert reply.value.metadata.resource_version == "9"


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_name_cannot_leave_its_place_in_the_path(namespace: str, name: str) -> None:
    """Slashes, question marks and percent signs are encoded."""
    path = to_request(GetPod(namespace, name)).path
    assert path.count("/") == 6
    assert not {"?", "#", " "} & set(path)


@pytest.mark.parametrize(
    ("intent", "status", "reply"),
    [
        *[(intent, 404, Gone()) for intent in INTENTS],
        *[(intent, 409, Conflict("409: why")) for intent in INTENTS],
        *[(intent, 403, Refused(403, "403: why")) for intent in INTENTS],
        *[(intent, status, NoAnswer(f"{status}: why")) for intent in INTENTS for status in (408, 429, 500, 503, 302)],
        (SWAP, 422, Refused(422, "422: why")),
        (BIND, 422, Refused(422, "422: why")),
        (FENCE, 400, Refused(400, "400: why")),
        (BIND, 201, Done(None)),
        *[(BIND, status, NoAnswer(f"{status}: why")) for status in (200, 202, 204, 206)],
        *[(intent, status, NoAnswer(f"{status}: why")) for intent in (SWAP, FENCE) for status in (201, 202, 204)],
    ],
)
def test_an_answer_has_one_meaning(intent: Single, status: int, reply: Reply) -> None:
    """Only what surely did not happen is a conflict or a refusal."""
    assert to_reply(intent, status, b'{"kind":"Status","message":"why"}') == reply


FAILED_TEST = "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (FAILED_TEST, Conflict),
        ("nodes \"n1\" is forbidden: ValidatingAdmissionPolicy 'all' denied request: not you", Refused),
        ('Node "n1" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes', Refused),
        (f"{FAILED_TEST}, says a webhook", Refused),
        ("", Refused),
    ],
)
def test_a_422_is_a_conflict_only_where_a_test_of_the_patch_failed(message: str, kind: type[Reply]) -> None:
    """Of a failed test the API server says nothing more; policies, webhooks and validation give a reason."""
    body = json.dumps({"kind": "Status", "reason": "Invalid", "message": message}).encode()
    assert isinstance(to_reply(SWAP, 422, body), kind)
    assert isinstance(to_reply(BIND, 422, body), Refused)


def test_a_success_carries_the_object_as_the_server_has_it() -> None:
    """The reply to a patch is the newest version that anybody knows."""
    body = b'{"metadata":{"name":"x","resourceVersion":"9"}}'
    for intent, kind in ((SWAP, Node), (GetNode("x"), Node), (FENCE, Pod), (LOOK, Pod), (GetPod("ml", "x"), Pod)):
        reply = to_reply(intent, 200, body)
        assert isinstance(reply, Done)
        assert isinstance(reply.value, kind)
        assert reply.value.metadata.resource_version == "9"


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"metadata":7}', b'{"metadata":{"uid":"\xff"}}', b"[" * 200_000])
def test_a_success_that_cannot_be_read_is_no_answer(body: bytes) -> None:
    """It may have happened; whoever asked must look again."""
    assert isinstance(to_reply(SWAP, 200, body), NoAnswer)


def test_a_refusal_is_quoted_in_bounds() -> None:
    """A policy's message ends up in logs and events."""
    reply = to_reply(BIND, 403, json.dumps({"message": "x" * 10_000}).encode())
    assert isinstance(reply, Refused)
    assert len(reply.message) < 300
