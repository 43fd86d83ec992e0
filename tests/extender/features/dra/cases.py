"""Cases that Kubernetes' own code has answered, too: `reference.go` reads them as JSON, and wrote `reference.json`.

python -m tests.extender.features.dra.cases > cases.json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from extender.cluster.objects.devices import DRIVER
from extender.features.dra.claim_spec import OUR_CLASS
from tests.dra import Json, gpu, mig, resource_slice

NODE: Final = "node-1"
GPU = 'device.attributes["gpu.nvidia.com"]'
MEMORY = 'device.capacity["gpu.nvidia.com"].memory'

DEVICES: Final[tuple[Json, ...]] = (
    gpu(3, "GPU-3"),
    {
        "name": "odd",
        "attributes": {
            "index": {"int": 7},
            "example.com/ready": {"bool": True},
            "gpu.nvidia.com/uuid": {"string": "GPU-7"},
            "driverVersion": {"version": "535.1.2-rc.1"},
        },
        "capacity": {"memory": {"value": "1500m"}, "example.com/slots": {"value": "7"}},
    },
    {"name": "bare"},
)
EXPRESSIONS: Final[tuple[str, ...]] = (
    "true",
    "false",
    "1",
    "device.driver",
    'device.driver == "gpu.nvidia.com"',
    'device.driver.startsWith("gpu.") && !device.driver.endsWith(".org")',
    "device.allowMultipleAllocations",
    "device.nothing",
    f'{GPU}.productName == "NVIDIA A100-SXM4-40GB"',
    f'{GPU}["productName"].contains("A100")',
    f'{GPU}.productName.matches("^NVIDIA (A100|H100)-SXM[0-9]-[0-9]+GB$")',
    f'{GPU}.productName.lowerAscii().contains("a100")',
    f'{GPU}.productName.matches("(")',
    f"{GPU}.index == 7",
    f"{GPU}.index > 6 && {GPU}.index < 8",
    f'{GPU}.index == "7"',
    f"{GPU}.index + 1 == 8 || {GPU}.index / 0 == 1",
    f"{GPU}.index in [5, 6, 7]",
    f'has({GPU}.index) ? {GPU}.index == 7 : {GPU}.architecture == "Ampere"',
    f"{GPU}.index == 7 || true",
    f"{GPU}.index == 7 && false",
    'device.attributes["example.com"].ready',
    'has(device.attributes["example.com"].ready)',
    'has(device.attributes["unknown.org"].ready)',
    'device.attributes["unknown.org"].ready',
    '"example.com" in device.attributes',
    '"example.com" in device.attributes && device.attributes["example.com"].ready',
    '"uuid" in device.attributes["gpu.nvidia.com"]',
    'device.attributes["gpu.nvidia.com"].exists(name, name == "uuid")',
    f'{GPU}.uuid in ["GPU-3", "GPU-7"]',
    f'["A100", "H100"].exists(model, {GPU}.productName.contains(model))',
    f'["A100", "H100"].all(model, {GPU}.productName.contains(model))',
    f'["A100", "H100"].exists_one(model, {GPU}.productName.contains(model))',
    f'["A100", "H100"].filter(model, {GPU}.productName.contains(model)).size() == 1',
    f'["A", "H"].map(letter, letter + "100") == ["A100", "H100"] && {GPU}.architecture == "Ampere"',
    'cel.bind(gpu, device.attributes["gpu.nvidia.com"], gpu.architecture == "Ampere" && gpu.brand == "Nvidia")',
    'cel.bind(a, device.attributes["gpu.nvidia.com"], cel.bind(b, a.architecture, b == "Ampere" || b == "a, b"))',
    f'{GPU}.driverVersion.compareTo(semver("580.95.5")) == 0',
    f'{GPU}.driverVersion.isGreaterThan(semver("535.1.2-rc.1"))',
    f'{GPU}.driverVersion.isLessThan(semver("535.1.2"))',
    f'{GPU}.driverVersion.isLessThan(semver("535.1.2-rc.a"))',
    f"{GPU}.driverVersion.major() >= 535 && {GPU}.driverVersion.minor() < 100 && {GPU}.driverVersion.patch() > 1",
    f'{GPU}.driverVersion == semver("580.95.5")',
    'semver("1.2.3+build.5") == semver("1.2.3")',
    'semver("1.2.3-alpha.2").isLessThan(semver("1.2.3-alpha.10"))',
    'semver("1.2.3-alpha").isLessThan(semver("1.2.3-alpha.1"))',
    'semver("1.2") == semver("1.2.0")',
    'semver("v01.2", true) == semver("1.2.0")',
    'isSemver("1.2.3") && !isSemver("1.2") && isSemver("v1", true) && !isSemver("1.2.3-", true)',
    f'{MEMORY}.compareTo(quantity("40Gi")) == 0',
    f'{MEMORY}.isGreaterThan(quantity("10Gi"))',
    f'{MEMORY}.isLessThan(quantity("1.6"))',
    f"{MEMORY}.isInteger() && {MEMORY}.asInteger() == 42949672960",
    f"{MEMORY}.asApproximateFloat() == 1.5",
    f"sign({MEMORY}) == 1",
    f'{MEMORY}.add(quantity("500m")).compareTo(quantity("2")) == 0',
    f'{MEMORY}.sub(1).compareTo(quantity("0.5")) == 0',
    'quantity("1Ki") == quantity("1024") && quantity("-1k") == quantity("-1000") && quantity("+1") == quantity("1")',
    'sign(quantity("much")) == 1',
    'isQuantity("5Gi") && !isQuantity("five")',
    'device.capacity["example.com"].slots.compareTo(quantity("7")) >= 0',
    'device.capacity["unknown.org"].slots.compareTo(quantity("7")) >= 0',
    'has(device.capacity["example.com"].slots)',
    '"  a ".trim() == "a" && "GPU-7".substring(4) == "7" && "GPU-7".substring(0, 3) == "GPU"',
    'int("7") == 7 && string(7) == "7" && double("1.5") == 1.5 && size("é") == 1 && "abc".size() == 3',
    'r"\\d" == "\\\\d" && \'it\' == "it" && """x""" == \'x\'  // a comment',
    "device.driver ==",
    "unknown == 1",
    '"a" < 1',
    'device.attributes["gpu.nvidia.com"].?index.orValue(7) == 7',
    '"a-b".split("-") == ["a", "b"]',
    'ip("10.0.0.1").family() == 4',
)


def claim(name: str, *requests: Json, **devices: Any) -> Json:
    """Return a claim with these requests, and what else `spec.devices` has."""
    metadata = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": "7"}
    spec = {"devices": {"requests": [*requests], **devices}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def exactly(count: int = 1, name: str = "gpus", *selectors: str, **more: Any) -> Json:
    """Return a request for devices of our class, with the defaults that the API server adds."""
    return {"name": name, "exactly": _way(count, selectors, more)}


def alternative(count: int, name: str, *selectors: str, **more: Any) -> Json:
    """Return one of several requests of which one is met."""
    return {"name": name, **_way(count, selectors, more)}


def first_available(name: str, *counts: tuple[str, int]) -> Json:
    """Return a request for the first of these counts of devices for which there is room."""
    return {"name": name, "firstAvailable": [alternative(count, way) for way, count in counts]}


def device_class(*selectors: str, config: Sequence[Json] = ()) -> Json:
    """Return our class, with further selectors."""
    spec: Json = {"selectors": [{"cel": {"expression": expression}} for expression in ("false", *selectors)]}
    return {"metadata": {"name": OUR_CLASS}, "spec": spec | ({"config": [*config]} if config else {})}


def opaque(**parameters: Any) -> Json:
    """Return configuration for NVIDIA's driver."""
    return {"opaque": {"driver": DRIVER, "parameters": {"kind": "GpuConfig", **parameters}}}


def gpus(count: int = 4) -> Json:
    """Return the slice of a node with so many GPUs."""
    return resource_slice(NODE, [gpu(number, f"GPU-{number}") for number in range(count)])


def _way(count: int, selectors: Sequence[str], more: Json) -> Json:
    listed = [{"cel": {"expression": expression}} for expression in selectors]
    way = {"deviceClassName": OUR_CLASS, "allocationMode": "ExactCount", "count": count}
    return way | ({"selectors": listed} if listed else {}) | more


TOLERATION: Final[Json] = {
    "key": "gpu.nvidia.com/xid",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 60,
}
TAINT: Final[Json] = {"key": "gpu.nvidia.com/xid", "value": "48", "effect": "NoExecute"}


def _partitioned() -> list[Json]:
    """Return slices of a GPU and its MIG devices, which share counters, and of a second GPU."""
    whole, part, second = gpu(0, "GPU-0"), mig(0, "GPU-0", 0), gpu(1, "GPU-1")
    for device, used in ((whole, "8"), (part, "1")):
        device["consumesCounters"] = [{"counterSet": "gpu-0", "counters": {"memory-slices": {"value": used}}}]
    counters = resource_slice(NODE, [], name="counters", slices=2)
    counters["spec"]["sharedCounters"] = [{"name": "gpu-0", "counters": {"memory-slices": {"value": "8"}}}]
    return [resource_slice(NODE, [whole, part, second], slices=2), counters]


def _islands(*islands: int) -> Json:
    """Return a slice of GPUs, each of an island."""
    devices = [
        {**gpu(number, f"GPU-{number}"), "attributes": {"uuid": {"string": f"GPU-{number}"}, "island": {"int": island}}}
        for number, island in enumerate(islands)
    ]
    return resource_slice(NODE, devices)


LARGE_OR_SMALL: Final = first_available("gpus", ("large", 4), ("small", 2))
THREE_OR_TWO_AND_TWO_OR_ONE: Final = (
    first_available("first", ("large", 3), ("small", 2)),
    first_available("second", ("large", 2), ("small", 1)),
)
ALLOCATIONS: Final[dict[str, Json]] = {
    "one request": {"claims": [claim("a", exactly(2))]},
    "two requests": {"claims": [claim("a", exactly(2, "first"), exactly(1, "second"))]},
    "two claims": {"claims": [claim("a", exactly(1)), claim("b", exactly(3))]},
    "selectors": {"claims": [claim("a", exactly(1, "gpus", f'{GPU}.uuid == "GPU-2"'))]},
    "selectors of the class": {
        "class": device_class(f'{GPU}.uuid != "GPU-0"'),
        "claims": [claim("a", exactly(1))],
    },
    "configuration": {
        "class": device_class(config=[opaque(of="class"), opaque(of="class, too")]),
        "claims": [
            claim(
                "a",
                exactly(1, "first"),
                exactly(1, "second"),
                config=[opaque(of="claim"), {"requests": ["second"], **opaque(of="one")}],
            )
        ],
    },
    "configuration of all requests by name": {
        "claims": [
            claim(
                "a",
                exactly(1, "first"),
                exactly(1, "second"),
                config=[{"requests": ["second", "first"], **opaque(of="both")}],
            )
        ],
    },
    "first available": {
        "claims": [
            claim(
                "a",
                {"name": "gpus", "firstAvailable": [alternative(2, "ampere", f'{GPU}.architecture == "Ampere"')]},
                config=[
                    {"requests": ["gpus/ampere"], **opaque(of="ampere")},
                    {"requests": ["gpus"], **opaque(of="any")},
                ],
            )
        ],
    },
    "first available, and there is room": {"claims": [claim("a", LARGE_OR_SMALL)]},
    "first available, and there is less room": {
        "claims": [claim("a", LARGE_OR_SMALL, config=[{"requests": ["gpus/large"], **opaque(of="large")}])],
        "taken": [{"driver": DRIVER, "pool": NODE, "device": "gpu-1"}],
    },
    "first available by selectors": {
        "claims": [
            claim(
                "a",
                {
                    "name": "gpus",
                    "firstAvailable": [
                        alternative(2, "hopper", f'{GPU}.architecture == "Hopper"'),
                        alternative(2, "ampere", f'{GPU}.architecture == "Ampere"'),
                        alternative(1, "any"),
                    ],
                },
                config=[
                    {"requests": ["gpus/hopper"], **opaque(of="hopper")},
                    {"requests": ["gpus/ampere"], **opaque(of="ampere")},
                ],
            )
        ],
    },
    "alternatives of two requests": {
        "claims": [claim("a", *THREE_OR_TWO_AND_TWO_OR_ONE)],
    },
    "alternatives of two claims": {
        "claims": [claim(name, request) for name, request in zip("ab", THREE_OR_TWO_AND_TWO_OR_ONE, strict=True)],
    },
    "an alternative with more than 32 devices": {
        "slices": [gpus(40)],
        "claims": [claim("a", first_available("gpus", ("large", 33), ("small", 2)))],
    },
    "match attribute of an alternative": {
        "slices": [_islands(1, 2, 1, 2)],
        "claims": [
            claim(
                "a",
                {"name": "gpus", "firstAvailable": [alternative(3, "same"), alternative(3, "any")]},
                constraints=[{"requests": ["gpus/same"], "matchAttribute": "gpu.nvidia.com/island"}],
            )
        ],
    },
    "tolerations": {
        "slices": [resource_slice(NODE, [gpu(0, "GPU-0", TAINT), gpu(1, "GPU-1")])],
        "claims": [claim("a", exactly(2, "gpus", tolerations=[TOLERATION]))],
    },
    "taints": {
        "slices": [resource_slice(NODE, [gpu(0, "GPU-0", TAINT), gpu(1, "GPU-1")])],
        "claims": [claim("a", exactly(1))],
    },
    "match attribute": {
        "slices": [_islands(1, 2, 1, 2, 2)],
        "claims": [claim("a", exactly(3), constraints=[{"matchAttribute": "gpu.nvidia.com/island"}])],
    },
    "taken": {
        "claims": [claim("a", exactly(2))],
        "taken": [
            {"driver": DRIVER, "pool": NODE, "device": "gpu-0"},
            {"driver": DRIVER, "pool": NODE, "device": "gpu-2"},
        ],
    },
    "the newest generation": {
        "slices": [
            resource_slice(NODE, [gpu(0, "GPU-0")], name="old"),
            resource_slice(NODE, [gpu(5, "GPU-5")], name="new", generation=2),
        ],
        "claims": [claim("a", exactly(1))],
    },
    "an incomplete pool": {
        "slices": [resource_slice(NODE, [gpu(0, "GPU-0")], slices=2)],
        "claims": [claim("a", exactly(1))],
    },
    "a part of the GPU is taken": {
        "slices": _partitioned(),
        "claims": [claim("a", exactly(1))],
        "taken": [{"driver": DRIVER, "pool": NODE, "device": mig(0, "GPU-0", 0)["name"]}],
    },
}


def allocation(name: str) -> Json:
    """Return a case with what it does not say."""
    usual = {"node": NODE, "class": device_class(), "slices": [gpus()], "taken": []}
    return usual | ALLOCATIONS[name]


def _for_kubernetes(case: Json) -> Json:
    """Return a case with a class that kube-scheduler can allocate from: whole GPUs."""
    whole = f'has({GPU}.type) ? {GPU}.type == "gpu" : true'
    selectors = [
        selector for selector in case["class"]["spec"]["selectors"] if selector["cel"]["expression"] != "false"
    ]
    spec = {**case["class"]["spec"], "selectors": [{"cel": {"expression": whole}}, *selectors]}
    return case | {"class": {**case["class"], "spec": spec}}


if __name__ == "__main__":
    selectors = [
        {"expression": expression, "driver": DRIVER, "device": device}
        for expression in EXPRESSIONS
        for device in DEVICES
    ]
    print(
        json.dumps({"selectors": selectors, "allocations": [_for_kubernetes(allocation(name)) for name in ALLOCATIONS]})
    )
