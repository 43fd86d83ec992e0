"""How a device plugin offers a GPU to pods: whole, shared, cut into slices, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DRA_DRIVER: Final = "gpu.nvidia.com"
"""NVIDIA's DRA driver for GPUs and their MIG devices; others of its drivers hand out no GPUs."""


class OfferForm(StrEnum):
    """What a pod gets of a GPU."""

    WHOLE = "whole"
    """The GPU, and nobody else has any of it."""
    SHARED = "shared"
    """A replica: the same GPU as others have, by turns (time slicing) or at once (MPS)."""
    SLICED = "sliced"
    """A MIG device."""


@dataclass(frozen=True, slots=True)
class ResourceOffer:
    """One resource under which pods can ask for a GPU, or for a part of it."""

    resource: str
    form: OfferForm
    parts: int = 1
    """How many there are of it, in use or not."""


def in_words(offers: Sequence[ResourceOffer]) -> str:
    """Say it to people.

    >>> in_words([ResourceOffer("nvidia.com/gpu", OfferForm.WHOLE)]), in_words([])
    ('whole as nvidia.com/gpu', 'not offered')
    >>> in_words([ResourceOffer("nvidia.com/gpu.shared", OfferForm.SHARED, 4)])
    'shared 4 ways as nvidia.com/gpu.shared'
    """
    return " and ".join(map(_words, offers)) or "not offered"


def _words(offer: ResourceOffer) -> str:
    match offer.form:
        case OfferForm.WHOLE:
            return f"whole as {offer.resource}"
        case OfferForm.SHARED:
            return f"shared {offer.parts} ways as {offer.resource}"
        case OfferForm.SLICED:
            return f"in {offer.parts} slices as {offer.resource}"
