"""Limits of moves hold across restarts, changes of the planner, and planners that do not know of each other."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from benchmarks.simulated.double.resources import LEASES
from extender.config.defaults import QUEUE_LEASE
from extender.features.moves.feature import Moves
from extender.features.moves.limits import HOUR_SECONDS, RecordedMove
from extender.features.moves.record import EVICTS_WITHIN_SECONDS, MoveRecord, MoveRecordRefused, decode, encode
from extender.features.moves.settings import MOST_PER_HOUR
from extender.kit.clock import Instant
from extender.kubernetes.reflector import Unavailable
from extender.kubernetes.rest import Request
from tests.extender.features.moves.site import AT_ONCE, INSTALLED_IN, MoveSite
from tests.extender.features.moves.test_limits import limits
from tests.extender.features.moves.test_moves import evicted, fragmented, until_begun
from topology.annotations import keys

ONE_AN_HOUR = AT_ONCE.model_copy(update={"namespace_per_hour": 1})
ANNOTATION_BYTES = 256 << 10
"""That the API server allows for all annotations of an object."""
MOVE = RecordedMove("uid", "owner", "ml", "greedy", 50.0)


def record(site: MoveSite, text: str | None) -> None:
    site.world.patch(LEASES, QUEUE_LEASE, {"metadata": {"annotations": {keys.MOVES: text}}})


def recorded(site: MoveSite) -> list[RecordedMove]:
    lease = site.world.store.get(LEASES, INSTALLED_IN, QUEUE_LEASE)
    text = (lease["metadata"].get("annotations") or {}).get(keys.MOVES)
    return decode(text, site.moves.clock()) if text else []


async def test_a_planner_that_starts_again_moves_no_more_pods_than_its_limits_allow() -> None:
    """After an hour it may."""
    site = fragmented(ONE_AN_HOUR)
    await site.settle()
    assert evicted(site) == ["moves-0"]
    site.started_anew()
    await site.tick()
    assert not site.moves.limits.may_ask("default", site.seconds)
    assert site.moves.limits.moved_lately(site.seconds) == 1
    site.pass_time(HOUR_SECONDS)
    assert site.moves.limits.may_ask("default", site.seconds)


@pytest.mark.parametrize("requests", [3, 4, 5])
async def test_a_move_counts_wherever_its_planner_dies(requests: int) -> None:
    """It is recorded before its eviction: whenever a pod has been evicted, the next planner counts it."""
    site = fragmented(ONE_AN_HOUR)
    await until_begun(site)
    await site.tick(dies_after=requests)
    await site.tick()
    assert site.deaths == (requests < 5)
    assert len(evicted(site)) == (requests > 4)
    assert len(recorded(site)) == site.moves.limits.moved_lately(site.seconds) == (requests > 3)


async def test_moves_of_another_planner_count_before_the_next_eviction() -> None:
    """Two replicas may take themselves for the planner for a moment."""
    site = fragmented(ONE_AN_HOUR)
    await until_begun(site)
    now = site.moves.clock()
    record(site, encode([replace(MOVE, for_namespace="default", at=now.monotonic)], now))
    await site.moves.round()
    assert (evicted(site), site.outcomes["move_plans refused"], site.reservations()) == ([], 1, {})


async def test_no_pod_is_evicted_while_another_writes_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next round reads it again."""
    site = fragmented()
    await until_begun(site)
    read = MoveRecord.read

    async def outrun(moves: MoveRecord) -> bool:
        answer = await read(moves)
        site.world.patch(LEASES, QUEUE_LEASE, {"spec": {"holderIdentity": "another"}})
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(MoveRecord, "read", outrun)
        await site.moves.round()
    assert (evicted(site), len(site.moves.plans)) == ([], 1)
    await site.moves.round()
    assert evicted(site) == ["moves-0"]


async def test_no_pod_is_evicted_that_was_recorded_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would count no longer before its hour is over."""
    site = fragmented()
    await until_begun(site)
    check = Moves._holds_still

    async def slowly(moves: Moves, room: object) -> bool:
        site.replica.seconds += EVICTS_WITHIN_SECONDS + 1
        return await check(moves, room)  # type: ignore[arg-type]

    monkeypatch.setattr(Moves, "_holds_still", slowly)
    await site.moves.round()
    assert evicted(site) == []


async def test_no_pod_moves_where_the_record_is_unreadable() -> None:
    """The round fails, which is logged and counted."""
    site = fragmented()
    record(site, "nonsense")
    with pytest.raises(MoveRecordRefused, match=re.escape(keys.MOVES)):
        await site.moves.round()
    record(site, None)
    await site.settle()
    assert evicted(site) == ["moves-0"]


class Server:
    """Answers each request alike."""

    def __init__(self, status: int, body: bytes = b"{}") -> None:
        self.status, self.body = status, body

    async def send(self, request: Request) -> tuple[int, bytes]:
        if not self.status:
            raise Unavailable("nobody answers")
        return self.status, self.body

    def record(self) -> MoveRecord:
        return MoveRecord(self.send, lambda: Instant(0.0, 0.0), limits(), "gputopo", QUEUE_LEASE)


@pytest.mark.parametrize("status", [0, 404, 408, 409, 429, 500, 503])
async def test_without_an_answer_nothing_has_been_recorded_or_read(status: int) -> None:
    """The next round asks again."""
    moves = Server(status).record()
    assert (await moves.read(), await moves.write(), moves.is_read) == (False, False, False)


@pytest.mark.parametrize("server", [Server(403), Server(422), Server(200, b"[]"), Server(200, b'"\xff"')])
async def test_a_lease_that_may_not_be_used_or_is_none_is_a_failure(server: Server) -> None:
    """It does not pass by itself."""
    for attempt in (server.record().read(), server.record().write()):
        with pytest.raises(MoveRecordRefused, match="Lease gputopo/gputopo-queue"):
            await attempt


def test_a_record_keeps_ages_between_processes_and_believes_no_later_moment_than_it_can_have() -> None:
    """The monotonic clock of each process starts elsewhere."""
    text = encode([MOVE, replace(MOVE, at=1e6)], Instant(80.0, 1_000_080.0))
    assert [move.at for move in decode(text, Instant(7.0, 1_000_090.0))] == [-33.0, 7.0 + EVICTS_WITHIN_SECONDS]


@pytest.mark.parametrize("text", ["{}", "[[1]]", '[[-1,"","","",""]]', "[[" + "9" * 400 + ',"","","",""]]', "[" * 9999])
def test_what_is_no_record_is_refused(text: str) -> None:
    """Nobody knows then what has moved."""
    with pytest.raises(MoveRecordRefused):
        decode(text, Instant(0.0, 0.0))


def test_as_many_moves_as_an_hour_may_have_fit_into_an_annotation() -> None:
    """With the longest names that Kubernetes allows for namespaces."""
    counted = limits(perHour=MOST_PER_HOUR, betweenMoves="24h")
    for number in range(MOST_PER_HOUR + 10):
        owner, uid = f"{number:016x}", f"{number:036}"
        counted.moved(RecordedMove(uid, owner, "n" * 63, "f" * 63, number))
    moves = counted.to_record(HOUR_SECONDS + 100.0)
    assert (len(moves), moves[-1].at) == (MOST_PER_HOUR, MOST_PER_HOUR + 9)
    assert len(encode(moves, Instant(0.0, 1.8e9)).encode()) < ANNOTATION_BYTES


def test_a_pod_that_stayed_counts_no_more_although_the_record_names_it() -> None:
    """The record is written again with the next move."""
    counted = limits()
    counted.moved(replace(MOVE, uid="earlier", at=0.0))
    counted.moved(MOVE)
    counted.stayed("uid")
    counted.learn([MOVE], 60.0)
    assert counted.moved_lately(60.0) == 1
    assert [move.uid for move in counted.to_record(60.0)] == ["earlier"]
    counted.recorded()
    counted.learn([MOVE], 60.0)
    assert counted.moved_lately(60.0) == 2


def test_the_later_of_two_moments_of_one_move_counts() -> None:
    """And a move of an owner keeps its others where they are also after the hour, if that is configured."""
    counted = limits(betweenMoves="2h")
    counted.moved(MOVE)
    counted.learn([replace(MOVE, at=40.0), replace(MOVE, uid="old", owner="rests", at=50.0 - HOUR_SECONDS)], 60.0)
    assert [(move.uid, move.at) for move in counted.to_record(60.0)] == [("old", 50.0 - HOUR_SECONDS), ("uid", 50.0)]
    assert counted.moved_lately(60.0) == 1
