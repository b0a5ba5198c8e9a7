"""Public reports of what goes wrong in such systems (K15, K16, K18), each as a test that names its row.

The others stand beside what they are about: `grep -r "row_" tests`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from celery import current_app

from sessions import doorbell, services, turns
from sessions.models import Event, Turn, Wake
from sessions.states import EventType, TurnStatus, WakeStatus
from tests.factories import armed_session, end_turn, live_turn, open_session
from triggers import engine, recording, selectors
from triggers.ledger import Occurrence
from triggers.models import Fire
from triggers.states import Outcome

pytestmark = pytest.mark.django_db

IN_AN_HOUR = timedelta(hours=1)


def _alarm(now: datetime) -> dict[str, str]:
    return {"at": (now + IN_AN_HOUR).isoformat()}


def test_row_55_two_engines_that_tick_together_record_one_fire_and_one_wake(now: datetime) -> None:
    armed_session(now, "time.at", args=_alarm(now))

    fired = [engine.tick(now=now + IN_AN_HOUR).fired for _ in range(2)]

    assert fired == [1, 0]
    assert (Fire.objects.count(), Wake.objects.filter(source="trigger").count()) == (1, 1)


def test_row_56a_a_fire_that_was_committed_but_never_rung_for_is_delivered(now: datetime) -> None:
    trigger = armed_session(now, "time.at", args=_alarm(now))
    due = now + IN_AN_HOUR
    engine.tick(now=due)  # and here the process dies, before it could ring: no ring is sent in this test

    assert services.needs_rescue(now=due + timedelta(seconds=1))  # so the next beat rings
    [begun] = turns.begin([trigger.session_id], worker="w", now=due + timedelta(seconds=2))
    end_turn(begun.turn, due + timedelta(seconds=3))

    assert [selectors.receipt(fire).outcome for fire in selectors.fires(trigger.pk)] == [Outcome.DELIVERED]


def test_row_56b_a_schedule_cannot_have_fired_without_having_moved_on(
    now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = armed_session(now, "time.cron", args={"cron": "0 * * * *"})

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(recording, "_advance", die)
        with pytest.raises(KeyboardInterrupt):
            engine.tick(now=now + IN_AN_HOUR)
    assert not Fire.objects.exists()

    assert [engine.tick(now=now + IN_AN_HOUR).fired for _ in range(3)] == [1, 0, 0]
    trigger.refresh_from_db()
    assert trigger.next_fire_at == now + 2 * IN_AN_HOUR


def test_row_57_a_wake_whose_worker_was_killed_is_taken_up_after_the_lease_and_says_so(
    now: datetime, settings: Any
) -> None:
    begun = live_turn(open_session(now), now)  # and here its worker is killed
    later = now + timedelta(seconds=settings.AGENT_TURN_LEASE_SECONDS + 1)

    services.rescue(now=later)
    [again] = turns.begin([begun.session.pk], worker="w2", now=later)
    end_turn(again.turn, later)

    assert Turn.objects.get(pk=begun.turn.pk).status == TurnStatus.LOST
    assert "redelivery 1" in again.prompt.lower()
    assert (Wake.objects.get().status, Wake.objects.get().deliveries) == (WakeStatus.DONE, 2)
    requeued = Event.objects.get(type=EventType.WAKE_REQUEUED)
    assert "lease" in requeued.payload["reason"]


def test_row_59_no_message_waits_in_the_broker_for_its_time(now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(current_app, "send_task", lambda *_, **options: sent.append(options))

    armed_session(now, "time.at", args={"at": (now + timedelta(hours=6)).isoformat()})
    doorbell._send(["x"])

    assert not [options for options in sent if "eta" in options or "countdown" in options]


def test_row_66_a_wake_that_comes_in_the_middle_of_a_turn_is_delivered_once_after_it(now: datetime) -> None:
    trigger = armed_session(now)
    begun = live_turn_of(trigger.session_id, now)

    engine.fire(trigger.pk, Occurrence("d", now), now=now)
    assert turns.begin([trigger.session_id], worker="w2", now=now) == []
    assert Turn.objects.get(pk=begun.turn.pk).status == TurnStatus.RUNNING
    end_turn(begun.turn, now)
    [after] = turns.begin([trigger.session_id], worker="w2", now=now)
    end_turn(after.turn, now)

    assert turns.begin([trigger.session_id], worker="w2", now=now) == []
    assert Wake.objects.get(source="trigger").deliveries == 1


def test_row_67_what_no_retry_can_help_is_set_aside_and_parks_the_trigger(now: datetime, settings: Any) -> None:
    trigger = armed_session(now)
    for number in range(settings.TRIGGERS_MAX_CONSECUTIVE_FAILURES):
        engine.fire(trigger.pk, Occurrence(str(number), now), now=now)
        [begun] = turns.begin([trigger.session_id], worker="w", now=now)
        end_turn(begun.turn, now, status="failed", fate=turns.Fate.QUARANTINED, reason="no conversation with that id")

    trigger.refresh_from_db()
    assert trigger.status == "failed"
    assert trigger.last_error == "no conversation with that id"
    assert turns.begin([trigger.session_id], worker="w", now=now) == []  # no endless retry


def live_turn_of(session_id: Any, now: datetime) -> turns.Begun:
    services.say(session_id, "hello", now=now)
    [begun] = turns.begin([session_id], worker="w", now=now)
    return begun
