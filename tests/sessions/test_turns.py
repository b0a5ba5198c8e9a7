from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from sessions import inbox, services, turns
from sessions.models import AgentSession, Event, Turn, Wake
from sessions.runtime.prompt import instructions_in
from sessions.states import Action, EventType, TurnStatus, WakeSource, WakeStatus
from sessions.turns import Fate
from tests.factories import end_turn, history_of, live_turn, open_session

pytestmark = pytest.mark.django_db


def test_it_begins_one_turn_over_all_waiting_wakes_in_order(session: AgentSession, now: datetime) -> None:
    for text in ("one", "two", "three"):
        services.say(session.pk, text, now=now)

    [begun] = turns.begin([session.pk], worker="w", now=now)

    assert instructions_in(begun.prompt) == ["one", "two", "three"]
    assert {wake.turn_id for wake in Wake.objects.all()} == {begun.turn.pk}


def test_it_begins_nothing_where_a_turn_is_live(session: AgentSession, now: datetime) -> None:
    live_turn(session, now)
    services.say(session.pk, "more", now=now)

    assert turns.begin([session.pk], worker="w", now=now) == []
    assert Wake.objects.get(text="more").status == WakeStatus.PENDING


def test_it_begins_nothing_where_nothing_waits(session: AgentSession, now: datetime) -> None:
    assert turns.begin([session.pk], worker="w", now=now) == []


def test_it_begins_turns_of_several_sessions_at_once(now: datetime) -> None:
    sessions = [open_session(now) for _ in range(3)]
    for session in sessions:
        services.say(session.pk, "go", now=now)

    begun = turns.begin([session.pk for session in sessions], worker="w", now=now)

    assert {item.session.pk for item in begun} == {session.pk for session in sessions}


def test_the_database_allows_one_live_turn_a_session(session: AgentSession, now: datetime) -> None:
    begun = live_turn(session, now)
    again = Turn.objects.get(pk=begun.turn.pk)
    again.pk = None

    with pytest.raises(IntegrityError), transaction.atomic():
        again.save(force_insert=True)


def test_it_bounds_a_turn_and_leaves_the_rest_for_the_next(session: AgentSession, now: datetime) -> None:
    for number in range(inbox.MAX_PER_TURN + 5):
        services.say(session.pk, f"message {number}", now=now)

    [first] = turns.begin([session.pk], worker="w", now=now)
    end_turn(first.turn, now)
    [second] = turns.begin([session.pk], worker="w", now=now)

    assert (first.turn.wakes.count(), second.turn.wakes.count()) == (inbox.MAX_PER_TURN, 5)


def test_it_bounds_a_turn_by_size_but_never_starves_a_large_wake(session: AgentSession, now: datetime) -> None:
    for _ in range(2):
        inbox.post([_fired(session, payload="x" * (inbox.MAX_CHARS_PER_TURN + 1))], now=now)

    [begun] = turns.begin([session.pk], worker="w", now=now)

    assert begun.turn.wakes.count() == 1


def test_it_gives_a_start_wake_a_turn_of_its_own(session: AgentSession, now: datetime) -> None:
    services.say(session.pk, "before", now=now)
    inbox.post([_fired(session, action=Action.START)], now=now)
    services.say(session.pk, "after", now=now)

    counts = []
    for _ in range(3):
        [begun] = turns.begin([session.pk], worker="w", now=now)
        counts.append([wake.text for wake in begun.turn.wakes.order_by("pk")])
        end_turn(begun.turn, now)

    assert counts == [["before"], ["fired"], ["after"]]


def test_it_steers_waiting_messages_into_the_live_turn(session: AgentSession, now: datetime) -> None:
    begun = live_turn(session, now)
    services.say(session.pk, "by the way", now=now)

    assert turns.steer(begun.turn, now=now) == "by the way"
    assert turns.steer(begun.turn, now=now) == ""

    end_turn(begun.turn, now)
    assert Wake.objects.get(text="by the way").status == WakeStatus.DONE


def test_it_never_steers_a_start_wake_in(session: AgentSession, now: datetime) -> None:
    begun = live_turn(session, now)
    inbox.post([_fired(session, action=Action.START)], now=now)

    assert turns.steer(begun.turn, now=now) == ""


def test_it_steers_nothing_into_a_turn_that_is_over(session: AgentSession, now: datetime) -> None:
    begun = live_turn(session, now)
    end_turn(begun.turn, now)
    services.say(session.pk, "late", now=now)

    assert turns.steer(begun.turn, now=now) == ""
    assert Wake.objects.get(text="late").status == WakeStatus.PENDING


def test_it_ends_once_and_the_second_ending_writes_nothing(session: AgentSession, now: datetime) -> None:
    begun = live_turn(session, now)
    assert end_turn(begun.turn, now)
    events = Event.objects.count()

    assert not end_turn(begun.turn, now, status=TurnStatus.FAILED, fate=Fate.QUARANTINED, reason="late")

    assert Event.objects.count() == events
    assert Turn.objects.get(pk=begun.turn.pk).status == TurnStatus.COMPLETED


def test_it_holds_the_session_after_a_transport_fault(session: AgentSession, now: datetime) -> None:
    _fired_wake(session, now)
    _fail_transport(session, now)
    inbox.post([_fired(session)], now=now)

    assert turns.begin([session.pk], worker="w", now=now + timedelta(seconds=4)) == []
    [again] = turns.begin([session.pk], worker="w", now=now + timedelta(seconds=5))

    assert again.turn.wakes.count() == 2  # what came meanwhile did not meet the fault on its own
    assert "redelivery 1" in again.prompt.lower()


def test_it_backs_off_further_each_time_and_starts_anew_after_a_success(session: AgentSession, now: datetime) -> None:
    _fired_wake(session, now)
    at, pauses = now, []
    for _ in range(8):
        until = _fail_transport(session, at)
        pauses.append(round((until - at).total_seconds()))
        at = until
    [begun] = turns.begin([session.pk], worker="w", now=at)
    end_turn(begun.turn, at)
    session.refresh_from_db()

    assert pauses == [5, 30, 120, 600, 1800, 7200, 7200, 7200]
    assert (session.failures, session.held_until, session.hold_reason) == (0, None, "")


def test_it_waits_as_long_as_the_provider_asks(session: AgentSession, now: datetime) -> None:
    _fired_wake(session, now)

    until = _fail_transport(session, now, retry_after=77.0)

    assert until == now + timedelta(seconds=77)


def test_it_lets_a_person_through_while_the_session_is_held(session: AgentSession, now: datetime) -> None:
    _fired_wake(session, now)
    _fail_transport(session, now)
    services.say(session.pk, "try now", now=now)

    [begun] = turns.begin([session.pk], worker="w", now=now)

    assert begun.prompt == "try now"


def test_it_spreads_retries_by_a_fifth(session: AgentSession, now: datetime) -> None:
    begun = live_turn(session, now)
    ranges = []

    def jitter(low: float, high: float) -> float:
        ranges.append((low, high))
        return low

    turns.end(begun.turn, turns.Ending(TurnStatus.FAILED, Fate.BACK, "down"), now=now, jitter=jitter)

    session.refresh_from_db()
    assert ranges == [(0.8, 1.2)]
    assert session.held_until == now + timedelta(seconds=4)


def test_it_quarantines_at_once_what_no_retry_can_help(session: AgentSession, now: datetime) -> None:
    begun = live_turn(session, now)

    end_turn(begun.turn, now, status=TurnStatus.FAILED, fate=Fate.QUARANTINED, reason="no key")

    wake = Wake.objects.get()
    assert (wake.status, wake.reason) == (WakeStatus.QUARANTINED, "no key")
    assert _types(session)[-2:] == [EventType.WAKE_QUARANTINED, EventType.TURN_ENDED]


def test_it_finds_a_turn_lost_when_its_lease_has_run_out(session: AgentSession, now: datetime, settings: Any) -> None:
    begun = live_turn(session, now)
    lease = timedelta(seconds=settings.AGENT_TURN_LEASE_SECONDS)

    assert turns.rescue(now=now + lease) == 0
    assert turns.rescue(now=now + lease + timedelta(seconds=1)) == 1

    assert Turn.objects.get(pk=begun.turn.pk).status == TurnStatus.LOST
    assert Wake.objects.get().status == WakeStatus.PENDING
    assert EventType.WAKE_REQUEUED in _types(session)


def test_it_never_takes_a_renewed_turn_for_lost(session: AgentSession, now: datetime, settings: Any) -> None:
    begun = live_turn(session, now)
    later = now + timedelta(seconds=settings.AGENT_TURN_LEASE_SECONDS)

    assert turns.renew([begun.turn.pk], now=later) == {begun.turn.pk: ""}
    assert turns.rescue(now=later + timedelta(seconds=1)) == 0


def test_it_quarantines_a_wake_after_its_third_lost_turn(session: AgentSession, now: datetime) -> None:
    services.say(session.pk, "poison", now=now)
    for attempt in range(3):
        [begun] = turns.begin([session.pk], worker="w", now=now)
        assert begun.turn.wakes.get().deliveries == attempt + 1
        end_turn(begun.turn, now, status=TurnStatus.LOST, fate=Fate.LOST, reason="killed")

    wake = Wake.objects.get()
    assert (wake.status, wake.losses) == (WakeStatus.QUARANTINED, 3)
    assert "3 lost turns" in wake.reason


def test_it_runs_a_lost_wake_alone_so_that_only_the_poison_is_quarantined(session: AgentSession, now: datetime) -> None:
    for text in ("poison", "innocent"):
        services.say(session.pk, text, now=now)
    [begun] = turns.begin([session.pk], worker="w", now=now)
    end_turn(begun.turn, now, status=TurnStatus.LOST, fate=Fate.LOST, reason="killed")

    [again] = turns.begin([session.pk], worker="w", now=now)

    assert [wake.text for wake in again.turn.wakes.all()] == ["poison"]


def test_it_does_not_count_a_turn_that_was_given_back_as_lost(session: AgentSession, now: datetime) -> None:
    begun = live_turn(session, now)

    end_turn(begun.turn, now, status=TurnStatus.LOST, fate=Fate.RETURNED, reason="stopped")

    wake = Wake.objects.get()
    assert (wake.status, wake.losses) == (WakeStatus.PENDING, 0)


def test_it_defers_triggered_turns_over_the_hourly_limit_and_says_why(
    session: AgentSession, now: datetime, settings: Any
) -> None:
    settings.AGENT_MAX_TRIGGERED_TURNS_PER_HOUR = 2
    for minutes in (0, 10):
        _run_triggered(session, now + timedelta(minutes=minutes))
    inbox.post([_fired(session)], now=now + timedelta(minutes=20))

    assert turns.begin([session.pk], worker="w", now=now + timedelta(minutes=20)) == []

    session.refresh_from_db()
    assert session.held_until == now + timedelta(hours=1)
    assert "limit is 2" in session.hold_reason
    assert _types(session)[-1] == EventType.WAKE_REQUEUED
    assert len(turns.begin([session.pk], worker="w", now=now + timedelta(hours=1))) == 1


def test_it_never_defers_a_person_for_the_hourly_limit(session: AgentSession, now: datetime, settings: Any) -> None:
    settings.AGENT_MAX_TRIGGERED_TURNS_PER_HOUR = 1
    _run_triggered(session, now)
    inbox.post([_fired(session)], now=now)
    turns.begin([session.pk], worker="w", now=now)
    services.say(session.pk, "hello?", now=now)

    [begun] = turns.begin([session.pk], worker="w", now=now)

    assert begun.prompt == "hello?"


def test_it_counts_how_deep_a_chain_of_wakes_is_and_a_person_starts_anew(session: AgentSession, now: datetime) -> None:
    inbox.post([_fired(session, depth=7)], now=now)
    [begun] = turns.begin([session.pk], worker="w", now=now)
    end_turn(begun.turn, now)
    person = live_turn(session, now)

    assert (begun.turn.depth, begun.turn.triggered) == (7, True)
    assert (person.turn.depth, person.turn.triggered) == (0, False)


def test_it_knows_a_turn_by_its_token_while_it_lives(session: AgentSession, now: datetime) -> None:
    begun = live_turn(session, now)
    other = live_turn(open_session(now), now)

    assert turns.of_token(begun.turn.pk, begun.token) == begun.turn
    assert turns.of_token(begun.turn.pk, other.token) is None
    assert turns.of_token(begun.turn.pk, "é\ud800") is None

    end_turn(begun.turn, now)
    assert turns.of_token(begun.turn.pk, begun.token) is None


def test_it_asks_a_turn_to_stop_when_interrupted_or_out_of_time(
    session: AgentSession, now: datetime, settings: Any
) -> None:
    begun = live_turn(session, now)
    late = now + timedelta(seconds=settings.AGENT_TURN_TIMEOUT_SECONDS)

    assert turns.stop_requests([begun.turn.pk], now=now) == {begun.turn.pk: ""}
    assert "timeout" in turns.stop_requests([begun.turn.pk], now=late)[begun.turn.pk]
    services.interrupt(session.pk, now=now)
    assert turns.stop_requests([begun.turn.pk], now=now) == {begun.turn.pk: "interrupted by a person"}


def test_it_records_no_event_of_a_turn_that_is_over(session: AgentSession, now: datetime) -> None:
    begun = live_turn(session, now)
    assert turns.record(begun.turn, EventType.ASSISTANT, {"text": "hi"}, now=now)
    end_turn(begun.turn, now)

    assert not turns.record(begun.turn, EventType.ASSISTANT, {"text": "ghost"}, now=now)
    assert _types(session)[-1] == EventType.TURN_ENDED


def _fired(session: AgentSession, **fields: Any) -> inbox.NewWake:
    defaults: dict[str, Any] = {
        "source": WakeSource.TRIGGER,
        "text": "fired",
        "heading": {"trigger_id": "t"},
        "depth": 1,
    }
    return inbox.NewWake(session_id=session.pk, **(defaults | fields))


def _fired_wake(session: AgentSession, now: datetime) -> Wake:
    return inbox.post([_fired(session)], now=now)[0]


def _run_triggered(session: AgentSession, at: datetime) -> None:
    inbox.post([_fired(session)], now=at)
    [begun] = turns.begin([session.pk], worker="w", now=at)
    end_turn(begun.turn, at)


def _fail_transport(session: AgentSession, at: datetime, retry_after: float | None = None) -> datetime:
    [begun] = turns.begin([session.pk], worker="w", now=at)
    end_turn(begun.turn, at, status=TurnStatus.FAILED, fate=Fate.BACK, reason="down", retry_after=retry_after)
    session.refresh_from_db()
    assert session.held_until
    return session.held_until


def _types(session: AgentSession) -> list[str]:
    return list(Event.objects.filter(session=session).order_by("seq").values_list("type", flat=True))


# --- turns that end together ---


def test_turns_that_end_together_are_each_settled_as_they_ended(now: datetime) -> None:
    begun = [live_turn(open_session(now), now) for _ in range(4)]
    outlived = live_turn(open_session(now), now)
    end_turn(outlived.turn, now)
    fates = [
        turns.Ending(TurnStatus.COMPLETED, Fate.DONE, history=["a"], state={"n": 1}, usage={"requests": 1}),
        turns.Ending(TurnStatus.FAILED, Fate.BACK, "down"),
        turns.Ending(TurnStatus.FAILED, Fate.QUARANTINED, "refused"),
        turns.Ending(TurnStatus.COMPLETED, Fate.DONE, history=["b"]),
        turns.Ending(TurnStatus.COMPLETED, Fate.DONE),
    ]

    ended = turns.end_all(list(zip([item.turn for item in (*begun, outlived)], fates, strict=True)), now=now)

    assert ended == [True, True, True, True, False]
    assert [Wake.objects.get(session=item.session).status for item in begun] == [
        WakeStatus.DONE,
        WakeStatus.PENDING,
        WakeStatus.QUARANTINED,
        WakeStatus.DONE,
    ]
    assert [history_of(item.session) for item in begun] == [["a"], [], [], ["b"]]
    for item, ending in zip(begun, fates, strict=False):
        last = Event.objects.filter(session=item.session).latest("seq")
        assert (last.type, last.payload["status"]) == (EventType.TURN_ENDED, ending.status)
        assert list(_seqs(item.session)) == list(range(1, last.seq + 1))


def test_many_turns_end_by_as_many_statements_as_one(now: datetime) -> None:
    def statements(count: int) -> int:
        begun = [live_turn(open_session(now), now) for _ in range(count)]
        done = turns.Ending(TurnStatus.COMPLETED, Fate.DONE, history=["x"])
        with CaptureQueriesContext(connection) as sent:
            turns.end_all([(item.turn, done) for item in begun], now=now)
        return len([query for query in sent if not query["sql"].startswith(("UPDATE", "INSERT"))])

    assert statements(1) == statements(7)


def _seqs(session: AgentSession) -> Any:
    return Event.objects.filter(session=session).order_by("seq").values_list("seq", flat=True)
