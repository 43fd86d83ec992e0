"""What pods ask for, as kube-scheduler counts it, in every spelling that Kubernetes has."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest

from extender.cluster.objects.kinds import Container, Pod, PodSpec, ResourceRequirements
from extender.cluster.objects.quantities import cpu_milli, memory_bytes, quantity, requested, requests
from tests.extender.builders import pod


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", Fraction(0)),
        (7, Fraction(7)),
        ("1.5", Fraction(3, 2)),
        ("2.", Fraction(2)),
        ("1n", Fraction(1, 10**9)),
        ("1u", Fraction(1, 10**6)),
        ("1m", Fraction(1, 1000)),
        ("1k", Fraction(1000)),
        ("1M", Fraction(10**6)),
        ("1G", Fraction(10**9)),
        ("1T", Fraction(10**12)),
        ("1P", Fraction(10**15)),
        ("1E", Fraction(10**18)),
        ("1Ki", Fraction(1024)),
        ("1Mi", Fraction(1024**2)),
        ("1Gi", Fraction(1024**3)),
        ("1Ti", Fraction(1024**4)),
        ("1Pi", Fraction(1024**5)),
        ("1Ei", Fraction(1024**6)),
        ("1e3", Fraction(1000)),
        ("1E3", Fraction(1000)),
        ("5e-1", Fraction(1, 2)),
        ("1e+2", Fraction(100)),
    ],
)
def test_every_spelling_of_a_quantity_is_read(text: str | int, value: Fraction) -> None:
    """Exactly."""
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "x", "-1", "1.2.3", "1mm", "1ki", "1e333", "9" * 19, "1." + "1" * 10, "1 ", "١"])
def test_what_is_no_quantity_or_would_take_long_is_refused(text: str) -> None:
    """Nobody needs nineteen digits."""
    with pytest.raises(ValueError, match="not a quantity"):
        quantity(text)
    assert quantity("9" * 18) == int("9" * 18)
    assert quantity("1." + "1" * 9) > 1


def container(name: str, policy: str | None = None, limits: str = "", **asked: str) -> Container:
    limited: dict[str, str | int] | None = {"cpu": limits} if limits else None
    return Container(name, ResourceRequirements(limited, dict(asked) or None), restart_policy=policy)


def of(*containers: Container, init: tuple[Container, ...] = (), whole: str = "", overhead: str = "") -> Pod:
    """Build a pod of these containers."""
    bare = pod("p")
    resources = ResourceRequirements(None, {"cpu": whole}) if whole else ResourceRequirements()
    spec = msgspec.structs.replace(
        bare.spec,
        containers=list(containers),
        init_containers=list(init) or None,
        resources=resources,
        overhead={"cpu": overhead} if overhead else None,
    )
    return msgspec.structs.replace(bare, spec=spec)


@pytest.mark.parametrize(
    ("item", "milli"),
    [
        (of(container("a", cpu="2"), container("b", cpu="500m")), 2500),
        (of(container("a", limits="3")), 3000),
        (of(container("a", limits="3", cpu="1")), 1000),
        (of(container("a"), container("b", cpu="1")), 1000),
        (of(container("a", cpu="1"), init=(container("i", cpu="3"),)), 3000),
        (of(container("a", cpu="1"), init=(container("i"), container("j", cpu="1500m"))), 1500),
        (of(container("a", cpu="1"), init=(container("s", "Always", cpu="1"),)), 2000),
        (of(container("a", cpu="1"), init=(container("s", "Always", cpu="1"), container("i", cpu="2"))), 3000),
        (of(container("a", cpu="1"), init=(container("i", cpu="2"), container("s", "Always", cpu="1"))), 2000),
        (of(container("a", cpu="1"), overhead="250m"), 1250),
        (of(container("a", cpu="1"), whole="4"), 4000),
        (of(container("a", cpu="5"), whole="4", overhead="1"), 5000),
        (of(), 0),
        (of(container("a", cpu="1u")), 1),
        (of(container("a", cpu="lots")), 0),
    ],
)
def test_a_pod_takes_what_its_containers_take_at_once(item: Pod, milli: int) -> None:
    """Init containers one after the other, sidecars from their start on; the pod's own word goes before; parts round up."""
    assert cpu_milli(item) == milli


def test_every_resource_that_is_named_anywhere_is_counted() -> None:
    """Of containers, of init containers, of the pod and of its runtime."""
    item = of(container("a", x="1"), init=(container("i", y="2"),), whole="3", overhead="1")
    assert requests(item) == {"cpu": 4, "x": 1, "y": 2}
    assert requests(of(container("a", x="1"), overhead="1")) == {"cpu": 1, "x": 1}
    assert requested(item, "nobody asks for it") == 0
    with pytest.raises(ValueError, match="not a quantity"):
        requests(of(container("a", x="lots")))


@pytest.mark.parametrize(
    ("memory", "expected"), [("1Gi", 1 << 30), ("1500m", 2), ("1Pi", 1 << 50), ("many", 0), ("-1Gi", 0)]
)
def test_memory_counts_in_whole_bytes(memory: str, expected: int) -> None:
    """What nobody can read is for the API server to refuse."""
    container = Container("main", ResourceRequirements(requests={"memory": memory}))
    assert memory_bytes(Pod(spec=PodSpec(containers=[container]))) == expected
