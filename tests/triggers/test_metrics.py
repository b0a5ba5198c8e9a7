"""What the metrics add up to."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from prometheus_client import CollectorRegistry

from sessions import services as session_services
from sessions import turns
from tests import factories
from triggers import engine
from triggers.ledger import Occurrence
from triggers.metrics import LEDGER, Database, Ledger
from triggers.models import Fire, Host, Trigger, Watch

pytestmark = pytest.mark.django_db


@pytest.fixture
def now() -> datetime:
    """The clock of the rows' own ids."""
    return timezone.now()  # noqa: TID251


@pytest.fixture(autouse=True)
def _forget() -> None:
    LEDGER.forget()


def _fire(trigger: Trigger, now: datetime, late: float = 0.0) -> None:
    key = str(Fire.objects.count())
    engine.fire(trigger.pk, Occurrence(key, now - timedelta(seconds=late)), now=now)


def _value(now: datetime, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(Database(now=now))
    return registry.get_sample_value(name, labels)


def test_it_counts_fires_by_kind_and_lag(now: datetime) -> None:
    trigger = factories.armed_session(now)
    for late in (0.0, 0.02, 3.0, 100_000.0):
        _fire(trigger, now, late)

    assert _value(now, "rewake_fires_total", kind="webhook") == 4
    within = {
        le: _value(now, "rewake_fire_lag_seconds_bucket", kind="webhook", le=le) for le in ("0.01", "1.0", "+Inf")
    }
    assert within == {"0.01": 1, "1.0": 2, "+Inf": 4}
    assert _value(now, "rewake_fire_lag_seconds_sum", kind="webhook") == pytest.approx(100_003.02)


def test_it_counts_what_was_skipped_apart(now: datetime) -> None:
    trigger = factories.armed_session(now, "time.cron", args={"cron": "* * * * *", "misfire": "skip"})
    Trigger.objects.filter(pk=trigger.pk).update(next_fire_at=now - timedelta(hours=1))
    engine.tick(now=now)

    assert _value(now, "rewake_fires_skipped_total", kind="time.cron") == 1


def test_it_adds_each_row_of_the_ledger_once(now: datetime, django_assert_num_queries: Any) -> None:
    trigger, ledger = factories.armed_session(now), Ledger()
    _fire(trigger, now)
    first = ledger.totals(now=now + timedelta(hours=1))
    Fire.objects.all().delete()  # as they would not be: what was counted is not asked for again

    assert ledger.totals(now=now + timedelta(hours=2)) == first
    assert first.fires == {"webhook": 1}
    with django_assert_num_queries(2):
        ledger.totals(now=now + timedelta(hours=3))


def test_it_counts_a_row_that_appears_late(now: datetime) -> None:
    """A transaction that began before the last scrape may commit after it."""
    trigger, ledger = factories.armed_session(now), Ledger()
    ledger.totals(now=now)
    _fire(trigger, now)

    assert ledger.totals(now=now + timedelta(seconds=1)).fires == {"webhook": 1}


def test_it_shows_what_became_of_recent_fires(now: datetime) -> None:
    trigger = factories.armed_session(now)
    _fire(trigger, now)

    assert _value(now, "rewake_recent_fires", kind="webhook", outcome="pending") == 1
    assert _value(now + timedelta(hours=2), "rewake_recent_fires", kind="webhook", outcome="pending") is None


def test_it_shows_that_nothing_is_armed(now: datetime) -> None:
    before = _value(now, "rewake_triggers", kind="webhook", status="armed")
    factories.armed_session(now)

    assert (before, _value(now, "rewake_triggers", kind="webhook", status="armed")) == (0, 1)
    assert _value(now, "rewake_triggers", kind="forge.pr", status="paused") == 0


def test_it_shows_no_quarantined_wake_that_nobody_can_retry(now: datetime) -> None:
    session = factories.open_session(now)
    begun = factories.live_turn(session, now)
    factories.end_turn(begun.turn, now, status="failed", fate=turns.Fate.QUARANTINED)
    before = _value(now, "rewake_wakes", status="quarantined")
    session_services.terminate(session.pk, now=now)

    assert (before, _value(now, "rewake_wakes", status="quarantined")) == (1, 0)


def test_it_shows_what_came_of_the_last_question_to_each_forge(now: datetime) -> None:
    slow = Host.objects.create(name="slow.example", forge="gitea", base_url="x", blocked_until=now + timedelta(hours=1))
    host = Host.objects.create(name="git.example", forge="gitea", base_url="x")
    fields: list[dict[str, Any]] = [
        {"host": host},
        {"host": host, "polled_at": now},
        {"host": host, "polled_at": now, "failures": 2},
        {"host": host, "polled_at": now, "failures": 1},
        {"host": slow, "polled_at": now},
        {"host": slow, "polled_at": now, "next_poll_at": None},
    ]
    for number, given in enumerate(fields):
        Watch.objects.create(**({"key": str(number), "next_poll_at": now} | given))

    def count(name: str, result: str) -> float | None:
        return _value(now, "rewake_watches", host=name, result=result)

    assert [count("git.example", result) for result in ("unasked", "answered", "failed")] == [1, 1, 2]
    assert (count("slow.example", "limited"), count("slow.example", "answered")) == (1, None)


def test_it_shows_what_waits_and_what_runs(now: datetime) -> None:
    trigger = factories.armed_session(now)
    _fire(trigger, now)
    other = factories.open_session(now)
    factories.live_turn(other, now)

    assert _value(now, "rewake_wakes", status="pending") == 1
    assert _value(now, "rewake_wakes", status="quarantined") == 0
    assert _value(now, "rewake_recent_turns", status="running") == 1
    assert _value(now, "rewake_recent_turns", status="completed") == 1
    assert _value(now + timedelta(seconds=5), "rewake_oldest_pending_wake_seconds") == pytest.approx(5)
    assert _value(now, "rewake_beat_age_seconds") == float("inf")
