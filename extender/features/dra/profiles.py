"""Which MIG profile the selectors of a request name: the planner counts devices of one profile, which no expression tells it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from extender.cluster.objects.devices import DRIVER
from extender.features.dra.claim_spec import MIG_CLASS, RefusedField
from extender.features.dra.inventory import PROFILE

_TEXT: Final = r"""(?:'([^'"\\]*)'|"([^'"\\]*)")"""
_DOMAIN: Final = rf"""\[(?:'{re.escape(DRIVER)}'|"{re.escape(DRIVER)}")\]"""
_ATTRIBUTE: Final = rf"""device\.attributes{_DOMAIN}(?:\.profile|\[(?:'profile'|"profile")\])"""
_EQUATION: Final = re.compile(rf"\s*(?:{_ATTRIBUTE}\s*==\s*{_TEXT}|{_TEXT}\s*==\s*{_ATTRIBUTE})\s*")
_NOT_PLAIN: Final = re.compile(r"\|\||[?(]|!(?!=)")
"""What may change the meaning of an equation beside it."""


def selector_of(profile: str) -> str:
    """Return the expression that devices of a profile match."""
    return f"device.attributes['{DRIVER}'].profile == '{profile}'"


def profile_in(field: str, expressions: Iterable[str]) -> str:
    """Return the one profile that all of these expressions together demand; raises `RefusedField`.

    Each device is compared with the whole expressions as well, so nothing else in them is lost.

    >>> profile_in("selectors", ["device.attributes['gpu.nvidia.com'].profile == '1g.10gb' && device.driver == 'x'"])
    '1g.10gb'
    """
    named = {profile for expression in expressions for profile in _profiles(expression)}
    if len(named) != 1:
        number = f"{len(named)} profiles" if named else "no profile"
        raise RefusedField(field, f"{number} for {MIG_CLASS}: request one, as by `{selector_of('1g.10gb')}`")
    (profile,) = named
    if not PROFILE.fullmatch(profile):
        raise RefusedField(field, f"{profile[:32]!r} is no MIG profile")
    return profile


def _profiles(expression: str) -> Iterable[str]:
    """Yield what the parts of an expression say that all have to hold; of one that is not plain nothing."""
    if _NOT_PLAIN.search(expression):
        return
    for part in expression.split("&&"):
        if match := _EQUATION.fullmatch(part):
            yield next(text for text in match.groups() if text is not None)
