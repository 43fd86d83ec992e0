"""Puts the broken functions and constants of a module in the place of those that everybody has imported already."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

_PLAIN = (int, float, str, tuple, frozenset, dict, type(None))


def transplant(module: ModuleType, broken: ast.Module) -> int:
    """Break a module in this process; returns how many functions and constants are others now.

    Functions keep their identity and get another code, so it does not matter who holds them.
    """
    fresh = ModuleType(module.__name__)
    vars(fresh).update(__file__=module.__file__, __package__=module.__package__, __spec__=module.__spec__)
    known = sys.modules[module.__name__]
    sys.modules[module.__name__] = fresh  # dataclasses look up their module
    try:
        exec(compile(broken, str(module.__file__), "exec"), vars(fresh))
    finally:
        sys.modules[module.__name__] = known
    there = dict(_functions(vars(module), module.__name__))
    changed = 0
    for name, function in _functions(vars(fresh), module.__name__):
        changed += name in there and _replace(there[name], function)
    for name, value in vars(fresh).items():
        old = vars(module).get(name)
        if isinstance(value, _PLAIN) and type(value) is type(old) and value != old and not name.startswith("__"):
            changed += _set_everywhere(name, old, value)
    return changed


def _functions(names: Mapping[str, Any], module: str) -> Iterator[tuple[str, FunctionType]]:
    for name, value in list(names.items()):
        if isinstance(value, type) and value.__module__ == module:
            yield from ((f"{name}.{inner}", found) for inner, found in _functions(vars(value), module))
        function = _bare(value)
        if isinstance(function, FunctionType) and function.__module__ == module:
            yield name, function


def _bare(value: Any) -> Any:
    for attribute in ("__func__", "fget", "func", "__wrapped__"):
        value = getattr(value, attribute, value)
    return value


def _replace(old: FunctionType, new: FunctionType) -> bool:
    changed = False
    if not _is_same_code(old.__code__, new.__code__):
        old.__code__, changed = new.__code__, True
    defaults = tuple(map(_newer, old.__defaults__ or (), new.__defaults__ or ()))
    if defaults != (old.__defaults__ or ()):
        old.__defaults__, changed = defaults, True
    named = old.__kwdefaults__ or {}
    for name, value in (new.__kwdefaults__ or {}).items():
        if _newer(named[name], value) != named[name]:
            named[name], changed = value, True
    return changed


def _newer(old: Any, new: Any) -> Any:
    """Return the new value of a constant; instances of classes stay, as there would be two of each class."""
    return new if isinstance(new, _PLAIN) and type(new) is type(old) else old


def _is_same_code(old: CodeType, new: CodeType) -> bool:
    """Whether two codes do the same; where they stand does not count."""
    if (old.co_code, old.co_names, len(old.co_consts)) != (new.co_code, new.co_names, len(new.co_consts)):
        return False
    return all(
        _is_same_code(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else (type(a), a) == (type(b), b)
        for a, b in zip(old.co_consts, new.co_consts, strict=True)
    )


def _set_everywhere(name: str, old: Any, value: Any) -> bool:
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is old:
            setattr(module, name, value)
    return True
