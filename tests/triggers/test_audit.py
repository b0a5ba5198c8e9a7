from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from sessions.models import AgentSession, Event, Wake
from sessions.states import EventType
from sessions.transcript import Entry, append
from tests.factories import armed_session, live_turn
from triggers import engine
from triggers.audit import audit
from triggers.ledger import Occurrence
from triggers.models import Fire, Trigger

pytestmark = pytest.mark.django_db


@pytest.fixture
def trigger(now: datetime) -> Trigger:
    trigger = armed_session(now)
    engine.fire(trigger.pk, Occurrence("d1", now), now=now)
    trigger.refresh_from_db()
    return trigger


def _faults(now: datetime) -> dict[str, int]:
    return {name: count for name, count in audit(now=now).faults.items() if count}


def test_it_finds_nothing_where_all_is_well(trigger: Trigger, now: datetime) -> None:
    found = audit(now=now)

    assert found.clean
    assert (found.triggers, found.fires, found.pending_wakes) == (1, 1, 1)


def test_it_finds_a_fire_without_a_wake(trigger: Trigger, now: datetime) -> None:
    Fire.objects.update(wake=None)

    assert _faults(now) == {"fires_without_a_wake": 1}


def test_it_finds_a_fire_that_was_not_counted(trigger: Trigger, now: datetime) -> None:
    Trigger.objects.update(fires=0)

    assert _faults(now) == {"triggers_whose_count_is_not_their_ledgers": 1}


def test_it_finds_what_is_long_due(now: datetime) -> None:
    armed_session(now, "time.cron", args={"cron": "0 * * * *"})

    assert _faults(now + timedelta(hours=1)) == {}
    assert _faults(now + timedelta(hours=1, minutes=2)) == {"triggers_overdue": 1}


def test_it_finds_a_wake_that_hangs(session: AgentSession, now: datetime) -> None:
    live_turn(session, now)
    Wake.objects.update(turn=None)

    assert _faults(now) == {"wakes_taken_by_no_live_turn": 1}


def test_it_finds_two_turns_side_by_side(session: AgentSession, now: datetime) -> None:
    live_turn(session, now)
    append([Entry(session.pk, EventType.TURN_STARTED)], now=now)

    assert _faults(now) == {"turns_that_ran_side_by_side": 1}


@pytest.mark.parametrize("which", ["first", "last"])
def test_it_finds_a_gap_in_a_transcript(session: AgentSession, now: datetime, which: str) -> None:
    live_turn(session, now)
    event = getattr(Event.objects.order_by("seq"), which)()
    if event.type in (EventType.TURN_STARTED, EventType.USER):
        Event.objects.filter(pk=event.pk).update(type=EventType.USER)
    Event.objects.filter(pk=event.pk).delete()

    assert _faults(now)["transcripts_with_a_gap"] == 1
