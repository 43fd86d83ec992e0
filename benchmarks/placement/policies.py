"""All policies by the name that the command line and the reports use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from types import MappingProxyType
from typing import Final

from benchmarks.placement.baselines import stock
from benchmarks.placement.cluster import Cluster
from benchmarks.placement.policy import Policy, PolicyFactory
from benchmarks.placement.product import Gputopo
from topology.value import Weights

PRODUCT: Final = "gputopo"
"""`gputopo@0.3` is the same with a foresight (λ) of 0.3."""

BASELINES: Final[Mapping[str, PolicyFactory]] = MappingProxyType(
    {
        "stock-least": stock.stock_least,
        "stock-most": stock.stock_most,
        "stock-least-lowest": stock.stock_least_lowest,
        "stock-most-lowest": stock.stock_most_lowest,
    }
)


class UnknownPolicy(Exception):
    """A name that no policy has; the text says which there are."""


def policy_factory(name: str) -> PolicyFactory:
    """Return the policy of that name; raises `UnknownPolicy`."""
    if name in BASELINES:
        return BASELINES[name]
    weights = _weights(name)

    def product(cluster: Cluster, random: Random) -> Policy:
        return Gputopo(cluster, weights)

    return product


def _weights(name: str) -> Weights:
    word, at, number = name.partition("@")
    if word == PRODUCT and not at:
        return Weights()
    try:
        if word == PRODUCT and (foresight := float(number)) >= 0:
            return replace(Weights(), foresight=foresight)
    except ValueError:
        pass
    known = ", ".join([*BASELINES, PRODUCT])
    raise UnknownPolicy(f"no policy is called {name!r}; there are {known}, and {PRODUCT}@λ with a foresight of its own")
