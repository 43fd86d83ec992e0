"""Whether the invariants of `tests.world` hold of a cluster that serves."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.cluster.api import Api
from tests.cluster.objects import ALL_PODS, NODES
from tests.cluster.polling import TimedOut, eventually
from tests.world.invariants import broken_promises, violations


def assert_invariants(api: Api, told: Sequence[Mapping[str, Any]] = ()) -> None:
    """Fail unless all holds, or comes to hold within the seconds that releases and reports take.

    Args:
        api: where to look.
        told: what callers of bind were told when it went well: `uid`, `node` and `gpus` of each.

    """

    def nothing_is_wrong() -> bool:
        wrong[:] = [*violations(api.list(NODES), api.list(ALL_PODS)), *broken_promises(told, api.list(ALL_PODS))]
        return not wrong

    wrong: list[str] = []
    try:
        eventually(nothing_is_wrong)
    except TimedOut:
        raise AssertionError("\n".join(wrong)) from None
