from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from sessions.models import AgentSession, Event, Wake
from sessions.script import Script
from sessions.states import EventType, WakeStatus
from tests.factories import arm, armed_session, end_turn, open_session
from triggers import engine, ledger, recording, selectors, services
from triggers.engine import Fired
from triggers.ledger import Occurrence
from triggers.models import Fire, Trigger
from triggers.states import Outcome, TriggerStatus

pytestmark = pytest.mark.django_db

HOURLY = {"cron": "0 * * * *"}


def _tick(now: datetime) -> engine.Tick:
    total = engine.Tick()
    while True:
        part = engine.tick(now=now)
        total.fired += part.fired
        total.skipped += part.skipped
        total.expired += part.expired
        total.marked += part.marked
        if not part.more:
            return total


def _at(now: datetime, seconds: float) -> dict[str, str]:
    return {"at": (now + timedelta(seconds=seconds)).isoformat()}


def _post(trigger: Trigger, now: datetime, key: str = "d1", **fields: Any) -> Fired:
    return engine.fire(trigger.pk, Occurrence(key, now, **fields), now=now)


# --- time ---


def test_it_fires_an_instant_once_and_completes(now: datetime) -> None:
    trigger = armed_session(now, "time.at", args=_at(now, 5))
    assert _tick(now + timedelta(seconds=4)).fired == 0

    assert _tick(now + timedelta(seconds=5)).fired == 1
    assert _tick(now + timedelta(seconds=6)).fired == 0

    trigger.refresh_from_db()
    assert (trigger.status, trigger.fires, trigger.next_fire_at) == (TriggerStatus.COMPLETED, 1, None)
    fire = Fire.objects.get()
    assert (fire.due_at, fire.number) == (now + timedelta(seconds=5), 1)
    assert fire.wake.status == WakeStatus.PENDING  # type: ignore[union-attr]


def test_it_fires_a_schedule_again_and_again_until_its_count_is_full(now: datetime) -> None:
    trigger = armed_session(now, "time.cron", args=HOURLY, max_fires=3)

    fired = [_tick(now + timedelta(hours=hours)).fired for hours in range(6)]

    trigger.refresh_from_db()
    assert fired == [0, 1, 1, 1, 0, 0]
    assert (trigger.status, trigger.fires) == (TriggerStatus.COMPLETED, 3)


def test_row_1_it_fires_once_in_the_hour_that_comes_twice() -> None:
    now = datetime(2026, 10, 31, 16, tzinfo=UTC)
    armed_session(now, "time.cron", args={"cron": "30 1 * * *", "timezone": "America/New_York"})

    for minutes in range(0, 44 * 60, 10):
        _tick(now + timedelta(minutes=minutes))

    due = list(Fire.objects.order_by("due_at").values_list("due_at", flat=True))
    assert due == [datetime(2026, 11, 1, 5, 30, tzinfo=UTC), datetime(2026, 11, 2, 6, 30, tzinfo=UTC)]


def test_row_19_it_fires_once_after_downtime_and_says_what_was_missed(now: datetime) -> None:
    trigger = armed_session(now, "time.cron", args=HOURLY)
    up_again = now + timedelta(hours=12, minutes=10)

    fired = [_tick(up_again + timedelta(minutes=minute)).fired for minute in range(5)]

    assert fired == [1, 0, 0, 0, 0]
    fire = Fire.objects.get()
    assert fire.due_at == now + timedelta(hours=12)
    assert "12 slots missed since 2026-12-01T10:00:00Z" in fire.reason
    told = Event.objects.get(type=EventType.TRIGGER_FIRED).payload
    assert (told["missed"], told["since"]) == (12, "2026-12-01T10:00:00Z")
    assert "not running" in fire.reason
    trigger.refresh_from_db()
    assert trigger.next_fire_at == now + timedelta(hours=13)


def test_with_skip_it_records_what_was_missed_and_fires_nothing(now: datetime) -> None:
    trigger = armed_session(now, "time.cron", args=HOURLY | {"misfire": "skip"})

    result = _tick(now + timedelta(hours=12, minutes=10))

    assert (result.fired, result.skipped) == (0, 1)
    [row] = selectors.fires(trigger.pk)
    receipt = selectors.receipt(row)
    assert receipt.outcome == Outcome.SKIPPED
    assert "12 slots missed" in receipt.reason
    assert not Wake.objects.filter(source="trigger").exists()
    trigger.refresh_from_db()
    assert (trigger.fires, trigger.next_fire_at) == (0, now + timedelta(hours=13))


def test_with_skip_it_fires_the_slot_that_is_on_time_beside_those_it_skips(now: datetime) -> None:
    armed_session(now, "time.cron", args=HOURLY | {"misfire": "skip"})

    result = _tick(now + timedelta(hours=3, seconds=2))

    assert (result.fired, result.skipped) == (1, 1)


def test_a_pause_is_caught_up_with_like_downtime(now: datetime) -> None:
    trigger = armed_session(now, "time.cron", args=HOURLY)
    services.pause(trigger.pk, by="operator", now=now)
    for hours in range(1, 4):
        assert _tick(now + timedelta(hours=hours)).fired == 0
    resumed = now + timedelta(hours=3, minutes=30)
    services.resume(trigger.pk, by="operator", now=resumed)

    assert _tick(resumed).fired == 1

    reason = Fire.objects.get().reason
    assert "3 slots missed" in reason
    assert "paused until 2026-12-01T12:30:00Z" in reason


def test_row_18_with_skip_a_trigger_resumed_after_its_slot_waits_for_the_next(now: datetime) -> None:
    start = now.replace(hour=15)
    trigger = armed_session(start, "time.cron", args={"cron": "0 17 * * *", "misfire": "skip"})
    services.pause(trigger.pk, by="operator", now=start.replace(hour=16))
    services.resume(trigger.pk, by="operator", now=start.replace(hour=18))

    assert _tick(start.replace(hour=18)).fired == 0

    trigger.refresh_from_db()
    assert trigger.next_fire_at == start.replace(hour=17) + timedelta(days=1)


def test_a_clock_that_goes_back_fires_no_occurrence_twice(now: datetime) -> None:
    trigger = armed_session(now, "time.cron", args=HOURLY)
    assert _tick(now + timedelta(hours=1)).fired == 1
    services.pause(trigger.pk, by="operator", now=now)
    services.resume(trigger.pk, by="operator", now=now)  # anchors anew, an hour before what has fired
    trigger.refresh_from_db()
    assert trigger.next_fire_at == now + timedelta(hours=1)

    assert _tick(now + timedelta(hours=1)).fired == 0
    assert _tick(now + timedelta(hours=2)).fired == 1
    trigger.refresh_from_db()
    assert trigger.fires == 2


def test_it_records_ten_thousand_missed_slots_of_many_triggers_without_a_burst(now: datetime) -> None:
    session = open_session(now)
    for _ in range(10):
        arm(session, now, "time.cron", args={"cron": "* * * * *"}, expires_at=now + timedelta(days=4000))

    assert _tick(now + timedelta(days=3650)).fired == 10


# --- expiry ---


def test_it_expires_an_armed_trigger_and_says_so(now: datetime) -> None:
    trigger = armed_session(now, expires_at=now + timedelta(hours=1))

    assert _tick(now + timedelta(hours=1)).expired == 1

    trigger.refresh_from_db()
    event = Event.objects.latest("pk")
    assert trigger.status == TriggerStatus.EXPIRED
    assert (event.type, event.payload["from"], event.payload["to"]) == (EventType.TRIGGER_STATUS, "armed", "expired")


def test_it_never_expires_a_paused_trigger(now: datetime) -> None:
    trigger = armed_session(now, expires_at=now + timedelta(hours=1))
    services.pause(trigger.pk, by="operator", now=now)

    assert _tick(now + timedelta(days=1)).expired == 0


def test_it_records_a_due_fire_before_the_expiry(now: datetime) -> None:
    trigger = armed_session(now, "time.cron", args=HOURLY, expires_at=now + timedelta(minutes=90))

    result = _tick(now + timedelta(days=2))

    assert (result.fired, result.expired) == (1, 1)
    assert Fire.objects.get().due_at == now + timedelta(hours=1)
    trigger.refresh_from_db()
    assert trigger.status == TriggerStatus.EXPIRED


def test_no_default_expiry_kills_a_far_alarm(now: datetime) -> None:
    armed_session(now, "time.at", args=_at(now, 86400 * 400))

    assert _tick(now + timedelta(days=399)).expired == 0
    assert _tick(now + timedelta(days=401)).fired == 1


# --- one bad row ---


@pytest.mark.parametrize(
    "broken",
    [
        {"args": {"cron": "* * * * *", "timezone": "America/New_Yrok"}},  # row 14
        {"args": {"cron": "0 0 30 2 *"}},
        {"args": {"cron": "* * * * *", "one_more": 1}},
        {"args": {}},
        {"args": [1]},
        {"kind": "moon.phase"},
        {"kind": "webhook"},
    ],
)
def test_row_14_it_marks_a_bad_row_and_fires_the_others(now: datetime, broken: dict[str, Any]) -> None:
    bad = armed_session(now, "time.cron", args=HOURLY)
    good = armed_session(now, "time.cron", args=HOURLY)
    Trigger.objects.filter(pk=bad.pk).update(**broken)

    result = _tick(now + timedelta(hours=1))

    bad.refresh_from_db()
    good.refresh_from_db()
    assert good.fires == 1
    if broken.get("args") != {"cron": "0 0 30 2 *"}:  # this one merely has no further slot
        assert result.marked == 1
        assert bad.last_error
        assert bad.consecutive_failures == 1
    assert selectors.describe(bad, now=now)


def test_row_14_a_row_that_stays_bad_ends_as_failed_with_its_reason(now: datetime) -> None:
    bad = armed_session(now, "time.cron", args=HOURLY)
    Trigger.objects.filter(pk=bad.pk).update(args={"cron": "0 * * * *", "timezone": "Nowhere/At_All"})

    marked = sum(_tick(now + timedelta(hours=1, minutes=minutes)).marked for minutes in range(30))

    bad.refresh_from_db()
    assert (marked, bad.status) == (5, TriggerStatus.FAILED)
    assert "5 failures in a row" in Event.objects.latest("pk").payload["reason"]


def test_it_takes_a_batch_apart_that_the_database_refuses(now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    poison, *_ = [armed_session(now, "time.at", args=_at(now, 5)) for _ in range(3)]
    record = ledger.record

    def refuse(rows: list[Fire], script: Script) -> None:
        if any(row.trigger_id == poison.pk for row in rows):
            raise IntegrityError("no such thing")
        record(rows, script)

    monkeypatch.setattr(ledger, "record", refuse)

    result = _tick(now + timedelta(seconds=5))

    assert (result.fired, result.marked) == (2, 1)
    poison.refresh_from_db()
    assert "no such thing" in poison.last_error


# --- events from outside ---


def test_it_fires_one_occurrence_once(now: datetime) -> None:
    trigger = armed_session(now)

    assert [_post(trigger, now), _post(trigger, now), _post(trigger, now, "d2")] == [
        Fired.FIRED,
        Fired.KNOWN,
        Fired.FIRED,
    ]
    trigger.refresh_from_db()
    assert trigger.fires == 2


def test_it_says_known_even_after_the_last_fire(now: datetime) -> None:
    trigger = armed_session(now, max_fires=1)

    assert [_post(trigger, now), _post(trigger, now), _post(trigger, now, "d2")] == [
        Fired.FIRED,
        Fired.KNOWN,
        Fired.REFUSED,
    ]


@pytest.mark.parametrize("end", ["pause", "cancel", "expire"])
def test_it_refuses_what_is_not_armed(now: datetime, end: str) -> None:
    trigger = armed_session(now, expires_at=now + timedelta(hours=1))
    at = now + timedelta(hours=1) if end == "expire" else now
    if end != "expire":
        getattr(services, end)(trigger.pk, by="operator", now=now)

    assert _post(trigger, at) == Fired.REFUSED
    assert not Fire.objects.exists()


def test_the_ledger_refuses_an_occurrence_twice(now: datetime) -> None:
    trigger = armed_session(now)
    _post(trigger, now)
    again = Fire.objects.get()
    again.pk, again.wake = None, None

    with pytest.raises(IntegrityError), transaction.atomic():
        again.save(force_insert=True)


def test_it_rolls_fire_wake_and_event_back_together(now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = armed_session(now)
    events = Event.objects.count()

    def crash(*_: Any) -> None:
        raise RuntimeError("cut off")

    monkeypatch.setattr(recording, "_advance", crash)
    with pytest.raises(RuntimeError):
        _post(trigger, now)

    assert (Fire.objects.count(), Wake.objects.filter(source="trigger").count()) == (0, 0)
    assert Event.objects.count() == events


def test_it_keeps_a_payload_that_no_database_would_take_raw(now: datetime) -> None:
    trigger = armed_session(now)

    assert _post(trigger, now, payload="a\0b\ud800") == Fired.FIRED

    assert Wake.objects.get(source="trigger").payload == "a�b�"


# --- what becomes of wakes ---


def test_a_delivery_forgets_failures_and_a_quarantine_counts_one(session: AgentSession, now: datetime) -> None:
    trigger = armed_session(now)
    for key, fate, failures in (("a", "quarantined", 1), ("b", "quarantined", 2), ("c", "done", 0)):
        _post(trigger, now, key)
        _run(trigger, now, fate)
        trigger.refresh_from_db()
        assert trigger.consecutive_failures == failures


def test_five_quarantined_wakes_in_a_row_end_the_trigger(now: datetime) -> None:
    trigger = armed_session(now)
    for number in range(5):
        _post(trigger, now, str(number))
        _run(trigger, now, "quarantined")

    trigger.refresh_from_db()
    assert (trigger.status, trigger.consecutive_failures) == (TriggerStatus.FAILED, 5)
    assert _post(trigger, now, "6") == Fired.REFUSED


def test_cancelling_withdraws_what_nobody_has_taken(now: datetime) -> None:
    trigger = armed_session(now)
    _post(trigger, now)

    services.cancel(trigger.pk, by="operator", now=now)

    receipt = selectors.receipt(selectors.fires(trigger.pk)[0])
    assert receipt.outcome == Outcome.WITHDRAWN
    assert "cancelled by operator" in receipt.reason


def _run(trigger: Trigger, now: datetime, fate: str) -> None:
    from sessions import turns

    [begun] = turns.begin([trigger.session_id], worker="w", now=now)
    status = "completed" if fate == "done" else "failed"
    end_turn(begun.turn, now, status=status, fate=turns.Fate(fate), reason="" if fate == "done" else "broken")


def test_it_says_when_a_trigger_is_next_due_only_while_it_is_armed(now: datetime) -> None:
    trigger = armed_session(now, "time.cron", args=HOURLY)
    assert "; next " in selectors.describe(trigger, now=now)

    cancelled, _ = services.cancel(trigger.pk, by="operator", now=now)

    assert selectors.describe(cancelled, now=now) == "every hour at :00, UTC"


# --- a burst ---


def test_a_full_batch_is_half_the_newest_so_that_a_burst_keeps_nobody_waiting(now: datetime) -> None:
    burst = [armed_session(now, "time.at", args=_at(now, 60)) for _ in range(6)]
    newcomer = armed_session(now, "time.at", args=_at(now, 61))

    result = engine.tick(now=now + timedelta(seconds=62), limit=4)

    assert (result.fired, result.more) == (4, True)
    assert Fire.objects.filter(trigger=newcomer).exists()
    assert Fire.objects.filter(trigger__in=burst).count() == 3
