"""How the words and numbers of annotations are read: exactly, and nothing unreadable is passed over.

Every reader takes the key and its text, and raises `RequestError` that names the key.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from topology.errors import RequestError
from topology.node.links import Affinity
from topology.request.domains import Level
from topology.request.shares import MAX_COMPUTE_PERCENT

_COUNT = re.compile(r"[0-9]{1,9}")
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_DURATION = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,9})s)?")
_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}")
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(Ki|Mi|Gi|Ti|k|M|G|T)?")
_SCALE = {"": 1} | {
    prefix + suffix: base**power
    for suffix, base, prefixes in (("", 1000, "kMGT"), ("i", 1024, "KMGT"))
    for power, prefix in enumerate(prefixes, start=1)
}
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def one_of(*words: str) -> Callable[[str, str], str]:
    """Return a reader of exactly these words."""

    def read(key: str, value: str) -> str:
        if value not in words:
            raise RequestError(key, f"{quoted(value)} is not one of {', '.join(words)}")
        return value

    return read


def affinity(key: str, value: str) -> Affinity:
    """Read how near GPUs are."""
    return Affinity(one_of(Affinity.NVLINK, Affinity.PCIE_SWITCH, Affinity.NUMA_NODE)(key, value))


def positive_decimal(key: str, value: str) -> float:
    """Read a decimal number above 0."""
    if not _DECIMAL.fullmatch(value) or not float(value):
        raise RequestError(key, f"{quoted(value)} is not a positive decimal number")
    return float(value)


def positive_count(key: str, value: str) -> int:
    """Read a whole number above 0."""
    if not _COUNT.fullmatch(value) or not int(value):
        raise RequestError(key, f"{quoted(value)} is not a positive whole number")
    return int(value)


def percent(key: str, value: str) -> int:
    """Read 1 to 100."""
    count = positive_count(key, value)
    if count > MAX_COMPUTE_PERCENT:
        raise RequestError(key, f"{quoted(value)} is more than {MAX_COMPUTE_PERCENT}")
    return count


def duration(key: str, value: str) -> float:
    """Read `90s`, `10m` or `1h30m` as seconds."""
    match = _DURATION.fullmatch(value)
    if match is None or not value:
        raise RequestError(key, f"{quoted(value)} is not a duration such as 90s, 10m or 1h30m")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(hours * 3600 + minutes * 60 + seconds)


def version(key: str, value: str) -> tuple[int, ...]:
    """Read `12.4` part by part."""
    if not _VERSION.fullmatch(value):
        raise RequestError(key, f"{quoted(value)} is not a version such as 12.4")
    return tuple(int(part) for part in value.split("."))


def capability(key: str, value: str) -> tuple[int, int]:
    """Read a compute capability, `8.0` or `8`."""
    parts = version(key, value)
    if len(parts) > 2:
        raise RequestError(key, f"{quoted(value)} is not a compute capability such as 8.0")
    return (parts[0], parts[1] if len(parts) == 2 else 0)


def quantity(key: str, value: str) -> int:
    """Read bytes as Kubernetes writes them."""
    match = _QUANTITY.fullmatch(value)
    if match is None:
        raise RequestError(key, f"{quoted(value)} is not a quantity such as 40Gi")
    return int(Fraction(match[1]) * _SCALE[match[2] or ""])


def globs(key: str, value: str) -> tuple[str, ...]:
    """Read a list of patterns, lower case."""
    patterns = tuple(part.strip().lower() for part in value.split(","))
    if not all(patterns) or len(value) > 256:
        raise RequestError(key, f"{quoted(value)} is not a list of model names such as *a100*,*h100*")
    return patterns


def group_affinity(key: str, value: str) -> tuple[Level, bool]:
    """Read `rack` or `preferred-rack` as a preference, `required-rack` as a condition."""
    demand, preference = (f"{word}-" for word in ("required", "preferred"))
    required = value.startswith(demand)
    return Level(one_of(*Level)(key, value.removeprefix(demand if required else preference))), required


def switch(key: str, value: str) -> bool:
    """Read `on` or `off`."""
    return one_of("on", "off")(key, value) == "on"


def name(key: str, value: str) -> str:
    """Read a name as Kubernetes' labels have them."""
    if not _NAME.fullmatch(value):
        raise RequestError(key, f"{quoted(value)} is not a name of at most 63 letters, digits, '-', '_' and '.'")
    return value


def quoted(value: str) -> str:
    """Return the text as a refusal shows it."""
    return repr(value if len(value) <= 40 else value[:37] + "...")
