"""The beat and the task that it rings for: when it rings, and when the sessions are rung for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from celery import current_app
from django.db import OperationalError
from django.utils import timezone

from config.celery import app
from sessions import services as session_services
from tests.factories import armed_session
from triggers import beat, engine, selectors, tasks
from triggers.beat import RESCUE, DueScheduler
from triggers.models import Trigger
from triggers.tasks import TICK

pytestmark = pytest.mark.django_db

INTERVAL = 0.25


class Clock:
    """A beat whose waiting takes no time: it waits until an instant by going there, or until it is nudged."""

    def __init__(self, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = now
        self.rung: list[str] = []
        self.scheduler = DueScheduler(app=app)
        monkeypatch.setattr(timezone, "now", lambda: self.now)
        monkeypatch.setattr(self.scheduler, "_ring", self.rung.append)
        monkeypatch.setattr(self.scheduler._ear, "open", lambda: None)
        monkeypatch.setattr(self.scheduler._ear, "wait_until", self._go)

    def _go(self, until: datetime, _clock: Any) -> None:
        self.now = max(self.now, until)

    def until(self, instant: datetime) -> list[str]:
        """Let the beat work until an instant, and return what it rang for."""
        self.rung.clear()
        while self.now < instant:
            self.scheduler.tick()
        return list(self.rung)


@pytest.fixture
def clock(now: datetime, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Clock]:
    settings.TRIGGERS_TICK_INTERVAL_SECONDS = INTERVAL
    found = Clock(now, monkeypatch)
    yield found
    found.scheduler.close()


def _due(now: datetime, seconds: float) -> Trigger:
    return armed_session(now, "time.at", args={"at": (now + timedelta(seconds=seconds)).isoformat()})


def _after(now: datetime, seconds: float) -> datetime:
    return now + timedelta(seconds=seconds)


def test_the_beat_rings_at_the_instant_and_not_before(clock: Clock, now: datetime) -> None:
    _due(now, 2.1)

    assert TICK not in clock.until(_after(now, 2))
    clock.scheduler.tick()

    assert (clock.now, clock.rung[-1]) == (_after(now, 2.1), TICK)


def test_it_rings_once_for_what_is_then_recorded(clock: Clock, now: datetime) -> None:
    _due(now, 2)
    clock.until(_after(now, 2))
    engine.tick(now=clock.now)

    assert TICK not in clock.until(_after(now, 9))


def test_it_rings_again_for_what_nobody_recorded(clock: Clock, now: datetime) -> None:
    _due(now, 2)
    clock.until(_after(now, 2))

    assert clock.until(_after(now, 3)).count(TICK) == pytest.approx(1 / INTERVAL, abs=1)


def test_it_rings_for_what_comes_due_while_something_else_waits_to_be_recorded(clock: Clock, now: datetime) -> None:
    for seconds in (2, 2.1):
        _due(now, seconds)
    clock.until(_after(now, 2))
    clock.rung.clear()
    clock.scheduler.tick()

    assert (clock.now, clock.rung) == (_after(now, 2.1), [TICK])


def test_it_rings_at_an_expiry(clock: Clock, now: datetime) -> None:
    trigger = armed_session(now, "webhook", expires_at=_after(now, 3))

    assert clock.until(_after(now, 3))[-1] == TICK
    assert engine.tick(now=clock.now).expired == 1
    trigger.refresh_from_db()
    assert trigger.status == "expired"


def test_it_rings_for_a_rescue_once_a_second_but_less_often_while_rows_are_due(clock: Clock, now: datetime) -> None:
    trigger = _due(now, 20)
    session_services.say(trigger.session_id, "hello", now=now)
    clock.until(_after(now, 10))
    idle = clock.until(_after(now, 19.9)).count(RESCUE)
    clock.until(_after(now, 20))

    busy = clock.until(_after(now, 30)).count(RESCUE)

    assert 9 <= idle <= 11
    assert 1 <= busy <= 3


def test_it_rings_for_no_trigger_while_they_are_off(clock: Clock, now: datetime, settings: Any) -> None:
    _due(now, 2)
    settings.TRIGGERS_ENABLED = False

    assert TICK not in clock.until(_after(now, 4))


def test_it_lives_through_a_database_that_is_out_of_reach(
    clock: Clock, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    _due(now, 2)
    monkeypatch.setattr(clock.scheduler._ear, "pause", lambda _: False)
    with monkeypatch.context() as broken:
        broken.setattr(selectors, "next_instant", _raise)
        broken.setattr(beat, "connection", Mock())  # the test's own, which is not to be closed
        clock.scheduler.tick()

    assert TICK in clock.until(_after(now, 2))


def _raise(**_: Any) -> None:
    raise OperationalError("gone")


# --- what is rung for ---


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch, now: datetime, django_capture_on_commit_callbacks: Any) -> list[str]:
    """What the task did, in order: `recorded n` and `rung n`."""
    done: list[str] = []
    record = engine._record

    def recording(take: Any, now: datetime) -> Any:
        with django_capture_on_commit_callbacks(execute=True):
            taken, result = record(take, now)
        done.append(f"recorded {result.fired}")
        return taken, result

    monkeypatch.setattr(engine, "_record", recording)
    monkeypatch.setattr(current_app, "send_task", lambda _, *, args, **__: done.append(f"rung {len(args[0])}"))
    monkeypatch.setattr(timezone, "now", lambda: now + timedelta(seconds=60))
    return done


def test_the_first_sessions_are_rung_for_while_others_are_recorded(
    order: list[str], now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SLICE", 2)
    for _ in range(5):
        _due(now, 30)

    tasks.tick()

    assert order == ["recorded 2", "rung 2", "recorded 2", "rung 2", "recorded 1", "rung 1"]


def test_nobody_is_rung_for_while_full_batches_are_recorded(
    order: list[str], now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SLICE", 2)
    monkeypatch.setattr(engine, "tick", lambda tick=engine.tick, **given: tick(limit=3, **given))
    for _ in range(8):
        _due(now, 30)

    tasks.tick()

    assert order == ["recorded 3", "recorded 3", "recorded 2", "rung 8"]
