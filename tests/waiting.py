"""What a wait that failed says: the condition that it waited for, and what this condition saw last."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 2000
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = 50


def account(condition: Callable[[], object], answer: object, seconds: float) -> str:
    """Describe a wait that failed: the condition's source, its last answer, and the variables that it reads."""
    try:
        source = " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        source = repr(condition)
    try:
        variables = inspect.getclosurevars(condition).nonlocals
    except TypeError:
        variables = {"self": getattr(condition, "__self__", None)}
    shown = "".join(f"\n  {name} = {_SHORT.repr(value)}" for name, value in variables.items())
    return f"after {seconds:g} s the answer is still {_SHORT.repr(answer)} for: {source}{shown}"
