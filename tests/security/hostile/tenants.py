"""What tenants and the holders of nodes' tokens do: each is drawn by chance, and then keeps to its habits.

A tenant writes pods as far as the admission policies let it, and who has a node's token writes what its agent and its kubelet do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, repeat
from random import Random
from typing import Any

from benchmarks.simulated.fleet import SimulatedNode, agent_annotations, gpu_pod, share_pod
from tests.security.hostile import values
from tests.security.hostile.values import Draw
from topology.annotations import keys
from topology.annotations.overrides import Override, Word, encode_overrides
from topology.annotations.records import Holder, Observed, encode_observed
from topology.annotations.status_codec import encode_status
from topology.node.sharing import Sharing
from topology.node.status import DevicePluginStatus, GpuStatus, LinkFault, Mode, NodeGpuStatus, Outlook

Json = dict[str, Any]
Put = Callable[[Json, str], None]
"""Writes a value into an object that nobody else has yet."""
Habit = Callable[[int], str | None]
"""What a field of the tenant's nth object is; `None`: it has none."""

Habits = Mapping[str, tuple["Field", Habit]]

GATE = "example.test/never"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an object."""

    draw: Draw
    put: Put
    is_word: bool = False
    """Whether a value that differs a little says nothing."""


def habits_of(random: Random, fields: Mapping[str, Field]) -> Habits:
    """Return how one tenant fills these fields: the first one always, and of the others the fewer the more there are."""
    absent = chain((0,), repeat(len(fields)))
    return {name: (field, _habit(random, field, next(absent))) for name, field in fields.items()}


def _habit(random: Random, field: Field, absent: int) -> Habit:
    """Return how one tenant fills a field: each time anew, each time a little differently, always alike, or not at all."""
    draw = field.draw
    first, step = draw(random), random.choice((1, 1, values.log_uniform(random, 1, 10**6)))
    habits: tuple[Habit, ...] = (
        lambda _: draw(random),
        lambda number: values.next_to(first, number * step),
        lambda _: first,
        lambda _: None,
    )
    return random.choices(habits, (3, 0 if field.is_word else 3, 3, absent))[0]


def _annotation(key: str) -> Put:
    return lambda written, value: written["metadata"].setdefault("annotations", {}).__setitem__(key, value)


def _label(key: str) -> Put:
    return lambda written, value: written["metadata"].setdefault("labels", {}).__setitem__(key, value)


def _spec(key: str, wrap: Callable[[str], object] = str) -> Put:
    return lambda written, value: written["spec"].__setitem__(key, wrap(value))


def _request(resource: str, *, limited: bool = False) -> Put:
    def put(pod: Json, value: str) -> None:
        resources = pod["spec"]["containers"][0]["resources"]
        for kind in ("requests", "limits") if limited else ("requests",):
            resources[kind] = resources[kind] | {resource: value}

    return put


def _share(pod: Json, value: str) -> None:
    for kind in ("requests", "limits"):
        resources = pod["spec"]["containers"][0]["resources"]
        rest = {key: amount for key, amount in resources[kind].items() if key != keys.GPU_RESOURCE}
        resources[kind] = rest | {keys.SHARE_RESOURCE: value}


def _containers(pod: Json, value: str) -> None:
    """Give a pod so many containers: at most 99, for a thousand pods of 999 each take 0.5 GiB of the extender's memory."""
    main = pod["spec"]["containers"][0]
    wanted = int(value) if value.isascii() and value.isdecimal() and len(value) < 3 else 1
    pod["spec"]["containers"] = [main, *({**main, "name": f"c{number}"} for number in range(wanted - 1))]


def _named(pod: Json, value: str) -> None:
    name = pod["metadata"]["name"]
    pod["metadata"]["name"] = f"{name}-{value[: values.LONGEST_NAME - 1 - len(name)]}"


def _container_named(pod: Json, value: str) -> None:
    pod["spec"]["containers"][0]["name"] = value[: values.LONGEST_LABEL]


def _owner(pod: Json, value: str) -> None:
    owner = {"apiVersion": "v1", "kind": "Job", "name": value, "uid": value, "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]


def _condition(written: Json, value: str) -> None:
    written.setdefault("status", {}).setdefault("conditions", []).append(
        {"type": value, "status": "True", "reason": value, "message": value, "lastTransitionTime": value}
    )


def _long_name(random: Random) -> str:
    return values.label(random, values.LONGEST_NAME)


def _word(key: str, *words: str) -> Field:
    """Return an annotation that mostly is one of these words."""
    return Field(values.one_of(*words), _annotation(key), is_word=True)


PODS: Mapping[str, Mapping[str, Field]] = {
    "models": {"models": Field(values.globs, _annotation(keys.GPU_MODEL))},
    "quantities": {
        "cpu": Field(values.quantity, _request("cpu")),
        "memory": Field(values.quantity, _request("memory")),
        "disk": Field(values.quantity, _request("ephemeral-storage")),
        "gpus": Field(values.few, _request(keys.GPU_RESOURCE, limited=True)),
        "containers": Field(values.few, _containers),
    },
    "shares": {
        "name": Field(_long_name, _named),
        "share": Field(values.few, _share),
        "class": Field(values.label, _annotation(keys.SHARING_CLASS)),
        "percent": Field(values.few, _annotation(keys.COMPUTE_PERCENT)),
        "same": _word(keys.SAME_GPU, "preferred", "required", "never"),
        "container": Field(values.label, _container_named),
    },
    "groups": {
        "group": Field(values.label, _annotation(keys.GROUP)),
        "size": Field(values.count, _annotation(keys.GROUP_SIZE)),
        "scope": _word(keys.GROUP_SCOPE, "run", "namespace"),
        "gang": _word(keys.GANG, "required"),
        "least": Field(values.count, _annotation(keys.GROUP_MIN)),
        "near": _word(keys.GROUP_AFFINITY, "nvlink-domain", "rack", "block", "required-rack"),
        "set": Field(values.label, _label("leaderworkerset.sigs.k8s.io/name")),
        "set-size": Field(values.count, _annotation("leaderworkerset.sigs.k8s.io/size")),
        "owner": Field(values.label, _owner),
    },
    "needs": {
        "affinity": _word(keys.REQUIRED_AFFINITY, "nvlink", "pcie-switch", "numa-node"),
        "preferred": _word(keys.PREFERRED_AFFINITY, "nvlink", "pcie-switch", "numa-node"),
        "bandwidth": Field(values.count, _annotation(keys.MIN_BANDWIDTH)),
        "relax": Field(lambda random: f"{values.few(random)}s", _annotation(keys.RELAX_AFTER)),
        "communication": _word(keys.COMMUNICATION, "heavy", "light", "none"),
        "gpu-memory": Field(values.quantity, _annotation(keys.MIN_GPU_MEMORY)),
        "capability": Field(values.few, _annotation(keys.MIN_COMPUTE_CAPABILITY)),
        "driver": Field(values.few, _annotation(keys.MIN_DRIVER)),
        "cuda": Field(values.few, _annotation(keys.MIN_CUDA)),
        "ecc": _word(keys.ECC, "on", "off"),
        "nic": _word(keys.NIC_AFFINITY, "required", "preferred"),
        "gpus": Field(values.few, _request(keys.GPU_RESOURCE, limited=True)),
    },
    "objects": {
        "name": Field(_long_name, _named),
        "label": Field(values.label, _label("example.test/label")),
        "annotation": Field(values.text, _annotation("example.test/annotation")),
        "unknown": Field(values.text, _annotation("gputopo.dev/unknown")),
        "eviction": _word(keys.EVICT_WHEN_SICK, "true", "false"),
        "mismatch": _word(keys.DEVICE_MISMATCH, "adopt", "refuse"),
        "placeholder": Field(values.text, _annotation(keys.PLACEHOLDER_FOR)),
        "priority": Field(lambda random: str(values.number(random) % 2**31), _spec("priority", int)),
        "gate": Field(lambda _: GATE, _spec("schedulingGates", lambda value: [{"name": value}])),
        "selector": Field(values.label, _spec("nodeSelector", lambda value: {"example.test/label": value})),
        "toleration": Field(values.label, _spec("tolerations", lambda value: [{"key": value, "operator": "Exists"}])),
        "scheduler": Field(values.label, _spec("schedulerName")),
    },
}
"""Families of tenants, by the fields that they fill in ways of their own; the rest of their pods is as usual."""

USUAL: Mapping[str, Callable[[str], Json]] = {"shares": lambda name: share_pod(name, 1)}
"""The pods of families whose pods are no ordinary ones."""

OF_STATUS: Mapping[str, Field] = {
    "condition": Field(values.text, _condition),
    "time": Field(values.moment, lambda written, value: written["status"].__setitem__("startTime", value)),
    "phase": Field(
        values.one_of("Pending", "Running", "Succeeded", "Failed"),
        lambda written, value: written["status"].__setitem__("phase", value),
        is_word=True,
    ),
    "node": Field(values.label, lambda written, value: written["status"].__setitem__("nominatedNodeName", value)),
}
"""What a tenant's containers, or others in its name, have written into the status of its pods."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody who makes pods, one after the other."""

    name: str
    usual: Callable[[str], Json]
    habits: Habits
    changes: Habits
    pods: int
    """How many."""
    keeps: int
    """How many of its newest pods are there; 0: each is deleted at once."""
    asks: float
    """The share of its pods that kube-scheduler asks about."""
    binds: bool
    """Whether those of them that fit are bound."""
    place: str
    """Where they may go: `anywhere`, or on one node, the same one or `another` for each pod, or in one `rack`."""
    patches: float
    """The share of its pods whose status is written."""
    stays: bool
    """Whether its pods are still there when the next tenant comes."""

    @classmethod
    def drawn(cls, name: str, random: Random, family: str, most: int) -> Tenant:
        """Return one that makes at most so many pods."""
        fields = PODS.get(family) or _mixed(random)
        pods = min(most, values.log_uniform(random, 100, 2000))
        return cls(
            name,
            usual=USUAL.get(family, lambda name: gpu_pod(name, 1)),
            habits=habits_of(random, fields),
            changes=habits_of(random, OF_STATUS),
            pods=pods,
            keeps=random.choice((0, pods // 3, pods, pods, pods)),
            asks=random.choice((0.05, 1.0, 1.0, 1.0)),
            binds=random.random() < 0.9,
            place=random.choice(("anywhere", "rack", "node", "another")),
            patches=random.choice((0.0, 0.2)),
            stays=random.random() < 0.3,
        )

    def pod(self, number: int) -> Json:
        """Return its nth pod."""
        return _filled(self.usual(f"{self.name}-{number}"), self.habits, number)

    def status(self, number: int) -> Json:
        """Return what comes to stand in the status of that pod."""
        return _filled({"status": {}}, self.changes, number)

    def __str__(self) -> str:
        """Say what it does, with its first pod's values."""
        values_of_first = {name: value[:80] for name, (_, kept) in self.habits.items() if (value := kept(0))}
        lives = f"{self.pods} pods, {self.keeps} kept, {self.asks:.0%} asked about, bound: {self.binds}, {self.place}"
        return f"tenant {self.name}: {lives}, {self.patches:.0%} patched, like {values_of_first}"


def _mixed(random: Random) -> dict[str, Field]:
    """Return some fields of all families."""
    every = list(chain.from_iterable(fields.items() for fields in PODS.values()))
    return dict(random.sample(every, len(every) // 4))


def _filled(written: Json, habits: Habits, number: int) -> Json:
    for field, kept in habits.values():
        if (value := kept(number)) is not None:
            field.put(written, value)
    return written


def payloads(random: Random, node: SimulatedNode, honest: Sequence[SimulatedNode]) -> Iterator[Json]:
    """Yield patches of a node, each with what its agent says, damaged; some of it is what others' agents say."""
    documents = _documents(node)
    others = tuple(text for donor in random.sample(honest, 2) for text in _documents(donor).values())
    for _ in count():
        chosen = random.sample(sorted(documents), random.choice((1, 1, 2, len(documents))))
        annotations = {key: values.damaged(random, documents[key], others) for key in chosen}
        yield {"metadata": {"annotations": {**documents, **annotations}}}


def _documents(node: SimulatedNode) -> dict[str, str]:
    """Return what the agent of a node says on a bad day: all that it can say is there to be damaged."""
    topology, since = node.topology, 1_800_000_000
    sick = Outlook("it opens by itself", since + 600, "replace it")
    first, *rest = (gpu.uuid for gpu in topology.gpus)
    said = [GpuStatus(uuid, reasons=("xid 63",), memory_used_gib=1, share_gib=8, doubtful=True) for uuid in rest]
    status = NodeGpuStatus(
        1,
        (GpuStatus(first, healthy=False, reasons=("xid 79",), sick_since=since, outlook=sick), *said),
        (LinkFault(first, 1, "down", since, since + 600),),
        ("slow",),
        DevicePluginStatus(Mode.OBSERVE, ready=True, session="s", reasons=("late",), sharing=Sharing(1)),
        "0.1.0",
    )
    observed = Observed({first: Holder("evil", "e0", "main")}, 1, {first: 3}, "1")
    written = agent_annotations(topology)
    health = encode_overrides({first: Override(Word.CORDONED, "why", "somebody", since + 600, since)})
    return {
        keys.TOPOLOGY: written[keys.TOPOLOGY],
        keys.STATUS: encode_status(status),
        keys.OBSERVED: encode_observed(observed),
        keys.GPU_HEALTH: health,
    }


NODE_FIELDS: Mapping[str, Field] = {
    "label": Field(values.label, _label("example.test/label")),
    "rack": Field(values.label, _label("topology.kubernetes.io/rack")),
    "clique": Field(values.label, _label("nvidia.com/gpu.clique")),
    "annotation": Field(values.text, _annotation("example.test/annotation")),
    "pause": Field(values.text, _annotation(keys.PAUSE)),
    "digest": Field(values.text, _annotation(keys.TOPOLOGY_DIGEST)),
    "taint": Field(
        values.label,
        lambda written, value: written["spec"].__setitem__("taints", [{"key": value, "effect": "NoSchedule"}]),
    ),
    "condition": Field(values.text, _condition),
    "ready": Field(values.moment, _condition),
    "gpus": Field(
        values.quantity, lambda written, value: written["status"].__setitem__("allocatable", {keys.GPU_RESOURCE: value})
    ),
}


def node_objects(random: Random) -> Iterator[Json]:
    """Yield patches of a node, each with what its kubelet says, or anything that it may."""
    habits = habits_of(random, NODE_FIELDS)
    for number in count():
        yield _filled({"metadata": {}, "spec": {}, "status": {}}, habits, number)
