"""The names of a call answer as a list and a set of them would, whatever was asked before."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.verbs import names as module
from extender.verbs.names import WHOLE_SEARCHES, Names, Written
from extender.verbs.wire import ExtenderArgs, MalformedBody, decode_args, decode_filter_args

PLAIN = st.lists(st.text("ab-.1", max_size=3), min_size=1, max_size=12)
ANY = st.lists(st.text('ab," \\]é', max_size=3), max_size=12)
PIECES = st.lists(st.sampled_from(["[", "]", '"', ",", "a", "b1", "1", " ", "\\", "null", "{", "}", ":"]), max_size=12)


def written(*names: str) -> Written:
    """Return the names as they come from kube-scheduler."""
    found = Written.read(msgspec.json.encode(names))
    assert found is not None
    return found


@given(listed=PLAIN, before=PLAIN, asked=PLAIN | ANY, reach=st.sampled_from([0, 3, 1000]))
def test_names_in_a_text_are_those_that_reading_it_gives(
    listed: list[str], before: list[str], asked: list[str], reach: int
) -> None:
    """Names may come twice, or stand elsewhere than in the call before, and anything may be asked about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_NEAR", reach)
        patch.setattr(module, "_WIDE", 2 * reach)
        assert all(name in written(*before) for name in before)
        names = written(*listed)
        assert [name in names for name in asked] == [name in listed for name in asked]
    assert ([*names], len(names)) == (listed, len(listed))


@given(names=PLAIN.map(msgspec.json.encode) | ANY.map(msgspec.json.encode) | PIECES.map("".join).map(str.encode))
def test_a_body_says_the_same_whether_its_names_are_read_or_not(names: bytes) -> None:
    """Or it is refused for the same reason."""
    body = b'{"Pod":{"metadata":{"uid":"u"}},"Nodes":null,"NodeNames":' + names + b"}"
    assert said(decode_filter_args, body) == said(decode_args, body)


def said(decode: Callable[[bytes], ExtenderArgs], body: bytes) -> object:
    """Return pod and names, or what is wrong."""
    try:
        asked = decode(body)
    except MalformedBody as wrong:
        return str(wrong)
    return asked.pod, [*asked.names]


@pytest.mark.parametrize("text", [b"null", b"[]", b'["a" ,"b"]', b'["A"]', rb'["\u0061"]', b'[["a"],"b"]', b'["a",1]'])
def test_what_kube_scheduler_would_not_write_is_read_at_once(text: bytes) -> None:
    """Then it is somebody else's, and may be anything."""
    assert Written.read(text) is None


def test_those_that_are_asked_about_need_no_list_of_all() -> None:
    """That is what costs, with thousands."""
    names = written(*(f"n{number}" for number in range(5000)))
    assert ("n7" in names, "other" in names, "n4999" in names) == (True, False, True)
    assert names._listed is None


def test_searches_in_vain_come_to_an_end() -> None:
    """Where few nodes are left, the best ones are not among them, and each search goes through the whole text."""
    names = written("n1", "n2")
    assert not any(f"other-{number}" in names for number in range(WHOLE_SEARCHES))
    assert names._listed is None
    assert ("n1" in names, "other-99" in names) == (True, False)
    assert names._listed == ["n1", "n2"]


@given(listed=PLAIN, without=st.lists(PLAIN, max_size=3), asked=PLAIN, is_written=st.booleans())
def test_some_may_be_left_out(listed: list[str], without: list[list[str]], asked: list[str], is_written: bool) -> None:
    """Those that step back, or refused the pod before."""
    names, left = Names(written(*listed) if is_written else listed), set(listed)
    for some in without:
        names, left = names.without(some), left.difference(some)
    assert [name in names for name in asked] == [name in left for name in asked]
    assert names.all == left
