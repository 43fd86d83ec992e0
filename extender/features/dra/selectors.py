"""CEL selectors of devices, evaluated as kube-scheduler does, with bounds on their length and cost."""

from __future__ import annotations

from typing import Final

from extender.cluster.objects.devices import Device

MAX_EXPRESSION_BYTES: Final = 10 * 1024
"""As Kubernetes has it."""


class UnreadableSelector(Exception):
    """An expression that does not compile, that is too long, or that uses what is not known here."""


class SelectorFailed(Exception):
    """An expression that raised for a device, or that was too expensive; kube-scheduler gives up on the claim then."""


def check_selector(expression: str) -> None:
    """Compile an expression; raises `UnreadableSelector`."""
    raise NotImplementedError


class Selectors:
    """Evaluates expressions; remembers answers by expression and what the device is."""

    def __init__(self) -> None:
        raise NotImplementedError

    def matches(self, expression: str, driver: str, device: Device) -> bool:
        """Evaluate one expression for one device.

        Raises `UnreadableSelector` or `SelectorFailed`.
        """
        raise NotImplementedError
