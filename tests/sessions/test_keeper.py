from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError

from sessions import services, turns
from sessions.models import AgentSession, Turn
from sessions.runtime import keeper as module
from sessions.runtime.keeper import LOST, SHUTDOWN, Keeper
from tests.factories import end_turn, live_turn

pytestmark = pytest.mark.django_db


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock's reading, which a test moves by hand."""
    reading = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: reading[0])
    return reading


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], Keeper]:
    """Keepers without their thread: a test looks by hand."""
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    return lambda now: Keeper(lambda: now)


def test_it_renews_a_lease_after_a_third_of_it(
    make: Callable[..., Keeper], seconds: list[float], session: AgentSession, now: datetime, settings: Any
) -> None:
    turn = live_turn(session, now).turn
    later = now + timedelta(seconds=30)
    keeper = make(later)
    with keeper.watch(turn):
        seconds[0] += settings.AGENT_TURN_LEASE_SECONDS / 3 - 1
        keeper.look()
        assert Turn.objects.get().lease_expires_at == turn.lease_expires_at
        seconds[0] += 1
        keeper.look()

    assert Turn.objects.get().lease_expires_at == later + timedelta(seconds=settings.AGENT_TURN_LEASE_SECONDS)


def test_it_stops_a_turn_that_a_person_interrupts(
    make: Callable[..., Keeper], session: AgentSession, now: datetime
) -> None:
    keeper = make(now)
    with keeper.watch(live_turn(session, now).turn) as watch:
        keeper.look()
        assert not watch.interrupted()
        services.interrupt(session.pk, now=now)
        keeper.look()
        assert watch.reason == "interrupted by a person"


def test_it_stops_a_turn_that_is_out_of_time(
    make: Callable[..., Keeper], session: AgentSession, now: datetime, settings: Any
) -> None:
    turn = live_turn(session, now).turn
    keeper = make(now + timedelta(seconds=settings.AGENT_TURN_TIMEOUT_SECONDS))
    with keeper.watch(turn) as watch:
        keeper.look()

    assert watch.reason.startswith("timeout")


@pytest.mark.parametrize("end", ["rescue", "terminate"])
def test_it_stops_a_turn_that_has_been_ended_elsewhere(
    make: Callable[..., Keeper], session: AgentSession, now: datetime, end: str
) -> None:
    keeper = make(now)
    with keeper.watch(live_turn(session, now).turn) as watch:
        if end == "rescue":
            turns.rescue(now=now, whatever_lease=True)
        else:
            services.terminate(session.pk, now=now)
        keeper.look()

    assert watch.reason == LOST


def test_it_stops_a_turn_whose_lease_it_could_not_renew(
    make: Callable[..., Keeper],
    seconds: list[float],
    session: AgentSession,
    now: datetime,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeper = make(now)

    def unreachable(*_: Any, **__: Any) -> None:
        raise OperationalError("no route to host")

    monkeypatch.setattr(turns, "stop_requests", unreachable)
    monkeypatch.setattr(turns, "renew", unreachable)
    monkeypatch.setattr(module, "close_connection", lambda: None)
    with keeper.watch(live_turn(session, now).turn) as watch:
        keeper.look_safely()
        assert not watch.interrupted()
        seconds[0] += settings.AGENT_TURN_LEASE_SECONDS
        keeper.look_safely()

    assert watch.reason == LOST


def test_it_stops_all_turns_when_the_process_is_stopped_and_those_that_begin_later(
    make: Callable[..., Keeper], session: AgentSession, now: datetime
) -> None:
    keeper = make(now)
    turn = live_turn(session, now).turn
    with keeper.watch(turn) as first:
        keeper.stop_all()
    with keeper.watch(turn) as second:
        assert (first.reason, second.reason) == (SHUTDOWN, SHUTDOWN)


def test_it_forgets_a_turn_that_has_ended(make: Callable[..., Keeper], session: AgentSession, now: datetime) -> None:
    keeper = make(now)
    turn = live_turn(session, now).turn
    with keeper.watch(turn) as watch:
        pass
    end_turn(turn, now)
    keeper.look()

    assert not watch.interrupted()
    assert keeper.wait_until_idle(0)
