"""When rings may use an NVLink, and what people are told of it, whatever it does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.health.links import WELL, LinkChange, NodeLinks
from agent.health.memory import HealthMemory, decode_memory, encode_memory
from agent.health.policy import HealthPolicy

POLICY = HealthPolicy()
LOOKS = st.lists(st.tuples(st.booleans(), st.sampled_from((1.0, 60.0, 299.0, 300.0, 1000.0))), min_size=1, max_size=30)


def restarted(links: NodeLinks) -> NodeLinks:
    """Return what the next agent knows."""
    return NodeLinks(POLICY, decode_memory(encode_memory(HealthMemory(links=links.in_trouble))).links)


@pytest.mark.slow
@given(LOOKS, st.booleans())
def test_a_link_is_used_just_when_it_has_been_up_for_five_minutes_since_its_last_fall(
    looks: list[tuple[bool, float]], restarts: bool
) -> None:
    """With an agent that lives on, or a new one after each look."""
    links, now, came_up = NodeLinks(POLICY), 0.0, -POLICY.link_up
    links.looked_at("a", 0, now, is_down=False)
    was_down = False
    for is_down, wait in looks:
        now += wait
        came_up = now if was_down and not is_down else came_up
        used = links.looked_at("a", 0, now, is_down=is_down)
        assert used is (not is_down and now >= came_up + POLICY.link_up)
        links.changes(now)
        was_down, links = is_down, restarted(links) if restarts and not used else links


@pytest.mark.slow
@given(LOOKS, st.booleans())
def test_people_are_told_by_turns_that_it_is_gone_and_back(looks: list[tuple[bool, float]], restarts: bool) -> None:
    """And what they were told last is so."""
    links, now, told = NodeLinks(POLICY), 0.0, list[LinkChange]()
    links.looked_at("a", 0, now, is_down=False)
    for is_down, wait in looks:
        now += wait
        used = links.looked_at("a", 0, now, is_down=is_down)
        told += links.changes(now)
        links = restarted(links) if restarts and not used else links
        assert (told[-1].are_used if told else True) is used
    assert [each.are_used for each in told] == [bool(place % 2) for place in range(len(told))]


def test_what_is_well_is_not_kept() -> None:
    """Of a machine without faults nothing is written, and after one has passed nothing is left."""
    links = NodeLinks(POLICY)
    for link in range(18):
        links.looked_at("a", link, 0.0, is_down=False)
    assert links.in_trouble == {}
    links.looked_at("a", 3, 10.0, is_down=True)
    assert list(links.in_trouble["a"]) == [3]
    links.looked_at("a", 3, 20.0, is_down=False)
    links.changes(20.0 + POLICY.link_up)
    assert links.in_trouble == {}


def test_a_fault_that_was_never_told_is_not_told_to_be_over() -> None:
    """Where an agent was stopped between a look and the telling."""
    links = NodeLinks(POLICY)
    links.looked_at("a", 0, 0.0, is_down=False)
    links.looked_at("a", 0, 10.0, is_down=True)
    links.looked_at("a", 0, 20.0, is_down=False)
    assert links.changes(20.0 + POLICY.link_up) == []


def test_links_of_gpus_that_are_gone_are_forgotten() -> None:
    """Another GPU in its place has other links."""
    links = NodeLinks(POLICY)
    for gpu in "ab":
        links.should_be_up(gpu, 0, 0.0)
    links.has(["b"])
    assert list(links.in_trouble) == ["b"]


def test_what_the_siblings_tell_changes_nothing_that_is_known() -> None:
    """A link that has come up again goes on waiting, and does not fall anew."""
    links = NodeLinks(POLICY)
    links.should_be_up("a", 0, 0.0)
    links.looked_at("a", 0, 60.0, is_down=False)
    links.should_be_up("a", 0, 120.0)
    assert links.looked_at("a", 0, 60.0 + POLICY.link_up, is_down=False)


def test_a_link_that_never_fell_is_just_well() -> None:
    """Whenever somebody looks."""
    assert WELL.is_usable(POLICY, 0.0)
    assert WELL.told(is_down=False, now=5.0) == WELL
