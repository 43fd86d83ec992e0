"""`kubectl gputopo status` tells versions and policies: from the cluster, with an extender beside it, and from a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from benchmarks.simulated.fleet import SimulatedNode, agent_annotations, node_object
from extender.inspect.control_plane import GUARDS, ControlPlane, ExtenderInfo, PlannerInfo, PolicyInfo
from extender.kit.clock import Instant
from extender.kubectl.control_plane import control_plane
from extender.kubectl.snapshot import Snapshot
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request, Send
from tests.extender.plugin import invoke, plugin
from tests.extender.polling import eventually
from tests.extender.serving import serving
from topology.annotations import keys
from topology.annotations.status_codec import encode_status
from topology.node.status import DevicePluginStatus, Mode, NodeGpuStatus

VERSION, POLICIES, BINDINGS = "/version", "validatingadmissionpolicies", "validatingadmissionpolicybindings"
LEASES, NOW = "leases", Instant(monotonic=0.0, wall=1_000_000_000.0)
NAMES = ("gputopo-agent-own-node", "gputopo-pod-allocations")
ANSWERS: Mapping[str, tuple[int, object]] = {
    VERSION: (200, {"major": "1", "gitVersion": "v1.36.2"}),
    POLICIES: (200, {"items": [{"metadata": {"name": name}, "spec": {}} for name in NAMES]}),
    BINDINGS: (
        200,
        {
            "items": [
                {"spec": {"policyName": NAMES[1], "validationActions": ["Deny"]}},
                {"spec": {"policyName": NAMES[1], "validationActions": ["Audit"]}},
                {"spec": {"policyName": "somebody-else's", "validationActions": ["Deny"]}},
            ]
        },
    ),
    LEASES: (200, {"items": []}),
}


def api(**other: tuple[int, object] | None) -> Send:
    """Answer as an API server does, but for what is said of plurals; `None`: it does not answer."""
    answers = {**ANSWERS, **other}

    async def send(request: Request) -> tuple[int, bytes]:
        path = request.path.partition("?")[0]
        answer = answers[path if path == VERSION else path.rpartition("/")[2]]
        if answer is None:
            raise Unavailable("nobody answers")
        return answer[0], json.dumps(answer[1]).encode()

    return send


async def test_policies_are_listed_with_what_their_bindings_do() -> None:
    """Of all bindings together; a binding of somebody else's policy is none of ours."""
    told = await control_plane(api(), NOW)
    assert told.api_server == "v1.36.2"
    assert told.policies == (
        PolicyInfo(name=NAMES[0], actions=()),
        PolicyInfo(name=NAMES[1], actions=("Audit", "Deny")),
    )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((403, {"message": "secret"}), f"no right to list {BINDINGS}"),
        ((404, {}), f"the API server has no {BINDINGS}"),
        ((401, {}), f"the API server answers 401 about {BINDINGS}"),
        ((503, {}), f"the API server answers 503 about {BINDINGS}"),
        ((200, []), f"the API server's answer about {BINDINGS} cannot be read"),
        (None, f"the API server does not answer about {BINDINGS}"),
    ],
)
async def test_policies_that_cannot_be_listed_are_not_known(answer: tuple[int, object] | None, why: str) -> None:
    """They are not called missing, and the rest is told."""
    told = await control_plane(api(**{BINDINGS: answer}), NOW)
    assert (told.api_server, told.policies, told.policies_unknown) == ("v1.36.2", None, why)


async def test_an_api_server_that_does_not_say_its_version_has_its_policies_listed() -> None:
    """One question does not hang on another."""
    told = await control_plane(api(**{VERSION: (403, {})}), NOW)
    assert (told.api_server, len(told.policies or ())) == (None, 2)


def lease(namespace: str, holder: str | None, renewed: str | None, seconds: int = 15) -> Mapping[str, object]:
    """Return a Lease of a queue as the API server lists it."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed}
    return {"metadata": {"name": "gputopo-queue", "namespace": namespace}, "spec": spec}


async def test_the_holder_of_a_lease_that_is_renewed_plans() -> None:
    """A Lease that nobody holds, or has renewed for long, says that nobody plans; clocks may differ by a minute."""
    renewed, long_ago = "2001-09-09T01:46:10.000000Z", "2001-09-09T01:45:00.000000Z"
    leases = [
        lease("gputopo-system", "host:8888", renewed),
        lease("slow-clock", "host", "2001-09-09T01:45:30.000000Z"),
        lease("dead", "host", long_ago, seconds=100_000),
        lease("given-up", "", renewed),
        lease("never", None, None),
    ]
    plane = await control_plane(api(**{LEASES: (200, {"items": leases})}), NOW)
    assert plane.planners is not None
    assert plane.planners[0] == PlannerInfo(
        namespace="gputopo-system", holder="host:8888", silent_seconds=30.0, lease_seconds=15.0
    )
    assert [planner.namespace for planner in plane.at_work] == ["gputopo-system", "slow-clock", "dead"]
    later = await control_plane(api(**{LEASES: (200, {"items": leases})}), Instant(0.0, NOW.wall + 100))
    assert later.at_work == ()


async def test_who_may_not_list_leases_hears_that_the_planner_is_not_known() -> None:
    """The rest is told."""
    plane = await control_plane(api(**{LEASES: (403, {})}), NOW)
    assert (plane.planners, plane.planners_unknown) == (None, "no right to list leases")
    assert plane.policies is not None


def kept(folder: Path) -> Path:
    """Write a snapshot of two nodes: one agent is behind the other and the extender, and one policy is not bound."""
    items = []
    for name, version in (("n1", "0.2.0"), ("n2", "0.1.0")):
        here = node_object(SimulatedNode(name, "t4-4"))
        said = NodeGpuStatus(1, device_plugin=DevicePluginStatus(Mode.ENFORCE, ready=True), agent_version=version)
        here["metadata"]["annotations"] |= agent_annotations(SimulatedNode(name, "t4-4").topology) | {
            keys.STATUS: encode_status(said)
        }
        items.append({"kind": "Node", **here})
    (folder / "nodes.json").write_text(json.dumps({"kind": "List", "items": items}))
    actions = {guard: () if guard == "pod-allocations" else ("Deny",) for guard in GUARDS}
    plane = ControlPlane(
        api_server="v1.36.2",
        policies=tuple(PolicyInfo(name=f"gputopo-{guard}", actions=does) for guard, does in actions.items()),
        extender=ExtenderInfo(version="0.2.0", steers_queues=False, policies_in_force=True),
    )
    found = Snapshot.read(folder / "nodes.json")
    file = folder / "cluster.json.gz"
    Snapshot(found.nodes, found.pods, found.taken, control_plane=plane).write(file)
    return file


HEAD = """\
nodes: 2; GPUs: 8, 8 free; pods: 0, 0 waiting
modes: enforce on 2
agents: 0.1.0 on 1, 0.2.0 on 1
drivers: 570.124.06 on 2; CUDA: 12.8 on 2
extender: 0.2.0
API server: v1.36.2
policies: in force, as the extender tried; 4 of 5 bound

NODES   MACHINE
2       4 Tesla T4

"""
POLICY_TABLE = """\
POLICY                        DOES
gputopo-agent-own-node        Deny
gputopo-extender-ledger       Deny
gputopo-node-annotations      Deny
gputopo-pod-allocations       <none>
gputopo-binding-allocations   Deny

"""


def test_status_is_printed_in_every_form_from_a_file(tmp_path: Path) -> None:
    """Tables, wide with the policies one by one, documents with everything, and the nodes where something is wrong."""
    file = str(kept(tmp_path))
    answers = {
        form: invoke("status", "--snapshot", file, "-o", form) for form in ("table", "wide", "json", "yaml", "name")
    }
    assert {form: answer.exit_code for form, answer in answers.items()} == dict.fromkeys(answers, 1)
    assert answers["table"].stdout.startswith(HEAD + "NODES   WHAT")
    assert (
        "0       admission policies have no binding that acts, so they do nothing: gputopo-pod-"
        in answers["table"].stdout
    )
    assert "1       agents are 0.1.0, older than the extender, which is 0.2.0" in answers["table"].stdout
    head, machines = HEAD.split("NODES", 1)
    assert answers["wide"].stdout.startswith(f"{head}{POLICY_TABLE}NODES{machines}")
    document = json.loads(answers["json"].stdout)
    assert yaml.safe_load(answers["yaml"].stdout) == document
    assert document["control_plane"]["extender"] == {
        "version": "0.2.0",
        "steers_queues": False,
        "policies_in_force": True,
    }
    assert answers["name"].stdout == "node/n2\n"


def test_a_snapshot_that_does_not_hold_versions_says_so(tmp_path: Path) -> None:
    """As what `kubectl get nodes,pods` lists; the agents' versions are the nodes' own, and there."""
    kept(tmp_path)
    told = invoke("status", "--snapshot", str(tmp_path / "nodes.json")).stdout
    assert "agents: 0.1.0 on 1, 0.2.0 on 1\n" in told
    assert "policies: not known (the snapshot does not hold them); --extender auto asks an extender\n" in told


@pytest.mark.slow
async def test_status_and_snapshot_ask_the_extender_of_itself(tmp_path: Path) -> None:
    """Its version, and whether its own forbidden write was refused; the API double has no policies that would."""
    async with serving(tmp_path, SimulatedNode("n1", "t4-4")) as extender:
        here = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--extender", extender.url)

        async def has_tried() -> bool:
            return (
                ExtenderInfo.model_validate_json((await extender.get("/v1/inspect/extender"))[1]).policies_in_force
                is not None
            )

        await eventually(has_tried)
        info = ExtenderInfo.model_validate_json((await extender.get("/v1/inspect/extender"))[1])
        live = await asyncio.to_thread(invoke, "status", *here)
        await asyncio.to_thread(invoke, "snapshot", str(tmp_path / "file"), *here)
    later = await asyncio.to_thread(invoke, "status", "--snapshot", str(tmp_path / "file"))
    assert info.policies_in_force is False
    assert f"extender: {info.version}\n" in live.stdout
    assert "policies: not in force, as the extender tried; not listed (the API server has no " in live.stdout
    assert "the admission policies are not in force" in live.stdout
    assert (later.exit_code, later.stdout) == (live.exit_code, live.stdout)


async def test_an_extender_that_does_not_say_is_no_hindrance(tmp_path: Path) -> None:
    """One of an older release, or nobody: the rest is told, and on standard error why this is not."""
    result = await plugin(tmp_path, "status", "--extender", "http://127.0.0.1:9")
    assert "extender: not known (http://127.0.0.1:9 does not say)\n" in result.stdout
    assert result.stderr.startswith("the extender at http://127.0.0.1:9 does not answer: ")
