"""CEL selectors of devices, evaluated as kube-scheduler does, with bounds on their length and cost.

kube-scheduler gives up on a claim when an expression raises for a device that it tries. So here that device's whole node
is not allocated from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final, TypeVar

import msgspec

from extender.cluster.objects.devices import Attribute, Capacity, Device
from extender.features.dra.cel_functions import NAMES, Calls, quantity, semver
from extender.features.dra.cel_source import CelSource, Kind, Reads, read_source
from extender.kit.fair_table import FairTable
from topology.bandwidth.rings import Meter

MAX_EXPRESSION_BYTES: Final = 4 * 1024
"""Kubernetes allows 10 KiB, which take too long to compile on the event loop."""
PROGRAMS_KEPT: Final = 256
ANSWERS_KEPT: Final = 16_384
_COST_OF_STEP: Final = 5
"""What an expression may cost for one of the steps in which effort is counted."""
_STEPS_OF_LOOK: Final = 100
"""Of looking for an answer."""
_REASON_CHARACTERS: Final = 200
_OPERATORS: Final = frozenset(
    {
        *("!_", "-_", "_!=_", "_%_", "_&&_", "_*_", "_+_", "_-_", "_/_", "_<=_", "_<_", "_==_", "_>=_", "_>_"),
        *("_?_:_", "_[_]", "_||_", "@in", "@not_strictly_false"),
    }
)
_BUILT_IN: Final = frozenset({"contains", "double", "dyn", "endsWith", "has", "int", "startsWith", "string", "uint"})

_Field = TypeVar("_Field", Attribute, Capacity)


def load_library() -> None:
    """Import the library when the process starts with DRA enabled: 0.2 s of CPU and 30 MiB, which others need not spend."""
    import cel  # noqa: F401


class UnreadableSelector(Exception):
    """An expression that does not compile, that is too long, or that uses what is not known here."""


class SelectorFailed(Exception):
    """An expression that raised for a device; kube-scheduler gives up on the claim then."""


class _Program:
    """A compiled expression."""

    def __init__(self, expression: str, source: CelSource, program: Any) -> None:
        self.source = source
        self._expression = expression.encode()
        self._program = program
        self._functions = NAMES & {*program.functions()}

    def key(self, view: Mapping[str, Any]) -> bytes:
        """Return what is equal of devices for which the answer is the same; equal for equal expressions only."""
        encoded = msgspec.json.encode(view, order="sorted")
        return blake2b(b"%d:%b%b" % (len(self._expression), self._expression, encoded), digest_size=16).digest()

    def evaluate(self, view: Mapping[str, Any]) -> bool | str:
        """Return the answer, or why there is none."""
        import cel

        calls = Calls()
        try:
            answer = self._program.execute(cel.Context({"device": view}, calls.functions(self._functions)))
        except Exception as error:  # the library has no base class of its own
            return f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
        if calls.failure is not None:
            return calls.failure[:_REASON_CHARACTERS]
        return answer if isinstance(answer, bool) else "it is not true or false"


class Selectors:
    """Evaluates expressions; remembers answers by expression and by what it reads of a device.

    Namespaces share what is remembered: one with many expressions has its own evaluated again.
    """

    def __init__(self) -> None:
        self._programs = FairTable[str, _Program | str](PROGRAMS_KEPT)
        """With the reasons why expressions cannot be read."""
        self._answers = FairTable[bytes, bool | str](ANSWERS_KEPT)
        self.meter = Meter()
        """Counts the steps of all evaluations."""

    def read(self, expression: str, namespace: str) -> CelSource:
        """Return what is known of an expression of a namespace from its text; raises `UnreadableSelector`."""
        return self._program(expression, namespace).source

    def matches(self, expression: str, driver: str, device: Device, namespace: str) -> bool:
        """Evaluate one expression of a namespace for one device.

        Raises `UnreadableSelector` or `SelectorFailed`.
        """
        program = self._program(expression, namespace)
        try:
            view = _view(program.source, driver, device)
        except ValueError as error:
            raise SelectorFailed(f"device {device.name}: {error}") from None
        key = program.key(view)
        answer = self._answers.get(key)
        self.meter.steps += _STEPS_OF_LOOK
        if answer is None:
            self.meter.steps += program.source.cost // _COST_OF_STEP
            answer = program.evaluate(view)
            self._answers.put(key, namespace, answer)
        if isinstance(answer, str):
            raise SelectorFailed(f"device {device.name}: {answer}")
        return answer

    def _program(self, expression: str, namespace: str) -> _Program:
        program = self._programs.get(expression)
        if program is None:
            program = _compile(expression)
            self._programs.put(expression, namespace, program)
        if isinstance(program, str):
            raise UnreadableSelector(program)
        return program


def _compile(expression: str) -> _Program | str:
    import cel

    if len(expression.encode()) > MAX_EXPRESSION_BYTES:
        return f"more than {MAX_EXPRESSION_BYTES} bytes"
    try:
        source = read_source(expression)
        program = cel.compile(source.text)
    except ValueError as error:
        return str(error)[:_REASON_CHARACTERS]
    if source.uses_maps:
        return "only values of a device are supported here, not the device or a map of it"
    unknown = sorted({*program.functions()} - _OPERATORS - _BUILT_IN - NAMES)
    if unknown:
        return f"{unknown[0]} is not supported"
    return _Program(expression, source, program)


def _view(source: CelSource, driver: str, device: Device) -> dict[str, Any]:
    """Return as much of a device as an expression can read; raises `ValueError` for a version that cannot be read."""
    return {
        "driver": driver,
        "allowMultipleAllocations": bool(device.allow_multiple_allocations),
        "attributes": _by_domain(source, "attributes", driver, device.attributes or {}, _attribute),
        "capacity": _by_domain(source, "capacity", driver, device.capacity or {}, _capacity),
    }


def _by_domain(
    source: CelSource, kind: Kind, driver: str, values: Mapping[str, _Field], read: Callable[[_Field], Any]
) -> dict[str, dict[str, Any]]:
    domains: dict[str, dict[str, Any]] = {domain: {} for domain in source.domains}
    for qualified, value in values.items():
        domain, _, name = qualified.rpartition("/")
        domain = domain or driver
        if source.reads is None or Reads(kind, domain, name) in source.reads:
            domains.setdefault(domain, {})[name] = read(value)
    return domains


def _attribute(attribute: Attribute) -> Any:
    """Return the one value that is set."""
    if attribute.version is not None:
        return semver(attribute.version)
    if attribute.versions is not None:
        return [semver(version) for version in attribute.versions]
    values = (
        attribute.string,
        attribute.integer,
        attribute.boolean,
        attribute.strings,
        attribute.ints,
        attribute.bools,
    )
    return next((value for value in values if value is not None), None)


def _capacity(capacity: Capacity) -> dict[str, str]:
    return quantity(str(capacity.value))
