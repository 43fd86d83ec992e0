"""The cache's indexes say what a look at every pod would say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.caches.pod_cache import PodCache
from tests.extender.builders import pod
from topology.annotations import keys

NAMES, INCARNATIONS, NODES = ("a", "b", "c"), (1, 2), (None, "n1", "n2")
LIVES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(INCARNATIONS), st.sampled_from(NODES), st.booleans())
)


@pytest.mark.slow
@given(LIVES)
def test_pods_are_found_by_name_and_counted_while_they_wait(lives: list[tuple[str, int, str | None, bool]]) -> None:
    """Whoever comes, is bound, goes, or takes the name of another."""
    cache = PodCache(keys.GPU_RESOURCE, lambda uid, nodes: None)
    for version, (name, incarnation, node, is_gone) in enumerate(lives, start=1):
        event = cache.deleted if is_gone else cache.changed
        event(pod(name, uid=f"{name}{incarnation}", on=node, version=version))
        assert cache.waiting == sum(known.node is None for known in cache)
        assert all(cache.find(*known.key) is known for known in cache)
    assert cache.find("ml", "nobody") is None
