"""Who a reader is and sees: asked of the API server, remembered for a minute, bounded whatever strangers send."""

from __future__ import annotations

import asyncio

import pytest

from extender.features.view import reviews
from extender.features.view.pod_events import AT_ONCE as EVENTS_AT_ONCE
from extender.features.view.pod_events import PodEvents
from extender.features.view.reviews import (
    AT_ONCE,
    MAX_TOKEN_CHARACTERS,
    MAX_VIEWER_BYTES,
    NEW_AT_ONCE,
    REMEMBERED_SECONDS,
    RIGHTS_A_REQUEST,
    TOKENS,
    TOKENS_PER_SECOND,
    Reviews,
    ReviewsUnavailable,
    TooManyReviews,
    Unauthenticated,
)
from extender.inspect.sight import EVERYTHING, Sight
from tests.extender.features.view.api import EVERYWHERE, Reviewing

NAMESPACES = ("ml", "ops", "web")


class Time:
    """Stands still until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def asking(api: Reviewing, time: Time | None = None, audiences: tuple[str, ...] = ()) -> Reviews:
    """Return what asks this API server."""
    return Reviews(api.send, time or Time(), audiences=audiences)


def people() -> Reviewing:
    """Return an API server with a researcher, her second token, and an administrator."""
    users = {"t-ann": "ann", "t-ann-2": "ann", "t-root": "root"}
    return Reviewing(users, {"ann": ("ml",), "root": (EVERYWHERE,)})


async def test_a_reader_sees_the_namespaces_whose_pods_she_may_list() -> None:
    """The administrator sees all, also those to come, after one question."""
    api = people()
    asked = asking(api)
    assert await asked.sight(await asked.viewer("t-ann"), NAMESPACES) == Sight(frozenset({"ml"}))
    api.asked.clear()
    assert await asked.sight(await asked.viewer("t-root"), NAMESPACES) == EVERYTHING
    assert api.asked == {"token": 1, "*": 1}


async def test_answers_are_remembered_for_a_minute_by_user_and_not_by_token() -> None:
    """A second token of the same user costs one question; a right that is withdrawn counts no longer than that."""
    api, time = people(), Time()
    asked = asking(api, time)
    for token in ("t-ann", "t-ann", "t-ann-2"):
        await asked.sight(await asked.viewer(token), NAMESPACES)
    assert api.asked == {"token": 2, "*": 1, "ml": 1, "ops": 1, "web": 1}
    api.may = {}
    time.now += REMEMBERED_SECONDS
    assert await asked.sight(await asked.viewer("t-ann"), NAMESPACES) == Sight(frozenset())


@pytest.mark.parametrize("token", ["", "x" * (MAX_TOKEN_CHARACTERS + 1), "line\nbreak", "ü"])
async def test_what_cannot_be_a_token_is_asked_of_nobody(token: str) -> None:
    """Its length is bounded."""
    api = people()
    with pytest.raises(Unauthenticated):
        await asking(api).viewer(token)
    assert api.asked == {}


async def test_a_token_that_is_nobodys_is_asked_about_once_and_pushes_out_no_reader() -> None:
    """Strangers have a table of their own, however many they are."""
    api, time = people(), Time()
    asked = asking(api, time)
    await asked.viewer("t-ann")
    for number in range(TOKENS + 10):
        time.now += 1 / TOKENS_PER_SECOND / 100  # REMEMBERED_SECONDS is far longer
        asked._tokens_rate._left = 1.0
        with pytest.raises(Unauthenticated):
            await asked.viewer(f"stranger-{number}")
    before = api.asked["token"]
    with pytest.raises(Unauthenticated):
        await asked.viewer(f"stranger-{TOKENS + 9}")
    assert (await asked.viewer("t-ann")).user["user"] == "ann"
    assert api.asked["token"] == before == TOKENS + 11


async def test_a_user_who_is_too_large_is_asked_about_once() -> None:
    """Else her requests would use up the questions about the tokens of others."""
    api = Reviewing({"t": "x" * MAX_VIEWER_BYTES}, {})
    asked = asking(api)
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            await asked.viewer("t")
    assert api.asked == {"token": 1}


async def test_new_tokens_are_asked_about_at_a_bounded_rate() -> None:
    """Those that come faster may come again; readers who are known are served meanwhile."""
    api, time = people(), Time()
    asked = asking(api, time)
    await asked.viewer("t-ann")
    outcomes = await asyncio.gather(*(asked.viewer(f"s{number}") for number in range(100)), return_exceptions=True)
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds.count(TooManyReviews) == 100 - (2 * TOKENS_PER_SECOND - 1)
    assert api.most_at_once <= NEW_AT_ONCE
    await asked.viewer("t-ann")
    time.now += 1
    with pytest.raises(Unauthenticated):
        await asked.viewer("s100")


async def test_a_crowd_of_new_tokens_keeps_no_reader_waiting_whose_token_was_valid() -> None:
    """Also once the answer about that token is old: such tokens have questions of their own."""
    api, time = people(), Time()
    asked = asking(api, time)
    await asked.viewer("t-ann")
    time.now += REMEMBERED_SECONDS
    crowd = asyncio.gather(*(asked.viewer(f"s{number}") for number in range(100)), return_exceptions=True)
    await asyncio.sleep(0)
    assert (await asked.viewer("t-ann")).user["user"] == "ann"
    assert not crowd.done()
    assert sum(isinstance(outcome, TooManyReviews) for outcome in await crowd) > 50


async def test_a_token_that_is_withdrawn_is_new_again() -> None:
    """It counts among those of strangers from then on."""
    api, time = people(), Time()
    asked = asking(api, time)
    await asked.viewer("t-ann")
    assert asked.user_of("t-ann")
    api.users = {}
    time.now += REMEMBERED_SECONDS
    with pytest.raises(Unauthenticated):
        await asked.viewer("t-ann")
    assert asked.user_of("t-ann") is None


async def test_what_a_reader_sees_is_worked_out_once_as_long_as_nothing_changes() -> None:
    """A page about a namespace without pods changes nothing for others; a new namespace and an old answer do."""
    api, time = people(), Time()
    asked = asking(api, time)
    ann = await asked.viewer("t-ann")
    seen = await asked.sight(ann, NAMESPACES)
    assert await asked.sight(ann, NAMESPACES, "elsewhere") == seen
    assert await asked.sight(ann, NAMESPACES) is seen
    api.may = {"ann": ("ml", "new")}
    assert await asked.sight(ann, (*NAMESPACES, "new")) == Sight(frozenset({"ml", "new"}))
    api.may = {}
    time.now += REMEMBERED_SECONDS
    assert await asked.sight(ann, NAMESPACES) == Sight(frozenset())


async def test_of_many_namespaces_some_are_asked_about_each_time_and_that_of_the_page_first() -> None:
    """What is not answered yet is hidden and counted; the next page asks about the rest."""
    names = [f"ns-{number:03}" for number in range(RIGHTS_A_REQUEST + 6)]
    api = Reviewing({"t": "ann"}, {"ann": names})
    asked = asking(api)
    viewer = await asked.viewer("t")
    seen = await asked.sight(viewer, names, names[-1])
    assert (len(seen.namespaces or ()), seen.unasked, seen.sees(names[-1])) == (RIGHTS_A_REQUEST, 6, True)
    assert api.most_at_once <= AT_ONCE
    assert await asked.sight(viewer, names) == Sight(frozenset(names))


async def test_one_user_with_many_rights_pushes_out_no_answers_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is shared by user."""
    monkeypatch.setattr(reviews, "RIGHTS", 10)
    api = Reviewing({"t": "ann", "u": "bob"}, {"bob": ("ml",)})
    asked = asking(api)
    bob = await asked.viewer("u")
    await asked.sight(bob, ["ml"])
    await asked.sight(await asked.viewer("t"), [f"ns-{number}" for number in range(30)])
    api.asked.clear()
    assert await asked.sight(bob, ["ml"]) == Sight(frozenset({"ml"}))
    assert api.asked == {}


async def test_without_an_answer_nothing_is_shown() -> None:
    """Neither to a new reader nor, once the minute is over, to one who was known."""
    api, time = people(), Time()
    asked = asking(api, time)
    viewer = await asked.viewer("t-root")
    await asked.sight(viewer, NAMESPACES)
    api.is_gone = True
    assert await asked.sight(viewer, NAMESPACES) == EVERYTHING
    with pytest.raises(ReviewsUnavailable):
        await asked.viewer("t-ann")
    time.now += REMEMBERED_SECONDS
    with pytest.raises(ReviewsUnavailable):
        await asked.sight(viewer, NAMESPACES)


@pytest.mark.parametrize(("audience", "is_let_in"), [("gputopo", True), ("somebody-else", False)])
async def test_a_token_must_be_for_one_of_our_audiences(audience: str, is_let_in: bool) -> None:
    """Also where the API server does not know audiences and says nothing of them."""
    api = people()
    api.audiences = (audience,)
    asked = asking(api, audiences=("gputopo",))
    if is_let_in:
        assert (await asked.viewer("t-ann")).user["user"] == "ann"
    else:
        with pytest.raises(Unauthenticated):
            await asked.viewer("t-ann")


async def test_a_slow_api_server_is_asked_for_few_events_at_once() -> None:
    """Others get none, and are not kept waiting; binds need the connections."""
    api = people()
    pods = PodEvents(api.send, Time())
    lists = await asyncio.gather(*(pods.of("ml", str(number)) for number in range(9)))
    assert (sum(events is not None for events in lists), api.most_at_once) == (EVENTS_AT_ONCE, EVENTS_AT_ONCE)
    assert await pods.of("ml", "later") is not None


async def test_a_user_with_many_tokens_pushes_out_none_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server adds an identifier of its own to each token of a service account."""
    monkeypatch.setattr(reviews, "TOKENS", 4)
    api, time = people(), Time()
    api.users = {**api.users, **{f"t-bot-{number}": "bot" for number in range(8)}}
    asked = asking(api, time)
    await asked.viewer("t-ann")
    for number in range(8):
        time.now += 1
        await asked.viewer(f"t-bot-{number}")
    assert asked.user_of("t-ann")
    assert asked.user_of("t-bot-0") is None
    assert asked.user_of("t-bot-6") == asked.user_of("t-bot-7")
