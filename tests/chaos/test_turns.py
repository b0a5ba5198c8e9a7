"""Turns that are long, late, or deadly, in the running product."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests import drive, stack
from tests.drive import Event
from tests.stack import Stack

pytestmark = pytest.mark.own_stack


@pytest.fixture(scope="module")
def product(postgres_url: str, redis_url: str) -> Iterator[Stack]:
    """The product with leases of two seconds and turns of at most fifteen."""
    limits = {"AGENT_TURN_LEASE_SECONDS": "2", "AGENT_TURN_TIMEOUT_SECONDS": "15", "AGENT_WAKE_MAX_ATTEMPTS": "3"}
    with stack.distributed(postgres_url, redis_url, **limits) as running:
        for role in ("web", "short", "long", "beat"):
            running.start(role)
        running.wait_until_ready()
        yield running


def test_a_turn_that_outlasts_its_lease_runs_once(product: Stack) -> None:
    with product.client() as client:
        session_id = drive.open_session(client)
        drive.say(client, session_id, "sleep 5s")
        events = drive.events_until(client, session_id, drive.ended(1))

    assert _count(events, "turn_started") == 1
    assert events[-1]["payload"]["status"] == "completed"


def test_a_turn_that_outlasts_its_timeout_is_interrupted_and_says_why(product: Stack) -> None:
    with product.client() as client:
        session_id = drive.open_session(client)
        drive.say(client, session_id, "sleep 60s")
        events = drive.events_until(client, session_id, drive.ended(1))

    assert events[-1]["payload"]["status"] == "interrupted"
    assert events[-1]["payload"]["reason"] == "timeout: the turn ran for 15 s, its limit"


def test_a_person_can_interrupt_a_turn(product: Stack) -> None:
    with product.client() as client:
        session_id = drive.open_session(client)
        drive.say(client, session_id, "sleep 60s")
        drive.events_until(client, session_id, partial(_has, "turn_started", 1))
        answer = client.post(f"/api/sessions/{session_id}/interrupt")
        events = drive.events_until(client, session_id, drive.ended(1))

    assert answer.json() == {"interrupted": True}
    assert events[-1]["payload"]["reason"] == "interrupted by a person"


def test_a_wake_that_kills_its_worker_each_time_is_quarantined_and_the_session_goes_on(product: Stack) -> None:
    with product.client() as client:
        session_id = drive.open_session(client)
        drive.say(client, session_id, "sleep 7s")
        for attempt in (1, 2, 3):
            drive.events_until(client, session_id, partial(_has, "turn_started", attempt))
            product.of("long")[0].restart()
        events = drive.events_until(client, session_id, partial(_has, "wake_quarantined", 1))
        drive.say(client, session_id, "are you there?")
        events = drive.events_until(client, session_id, partial(_has, "assistant", 1))

    ends = [event["payload"]["status"] for event in events if event["type"] == "turn_ended"]
    redelivered = [bool(event["payload"]["redelivered"]) for event in events if event["type"] == "turn_started"]
    assert ends[:3] == ["lost"] * 3
    assert redelivered[:3] == [False, True, True]
    assert "3 lost turns" in next(e["payload"]["reason"] for e in events if e["type"] == "wake_quarantined")
    assert next(e["payload"]["text"] for e in events if e["type"] == "assistant") == "are you there?"


def test_a_worker_that_is_asked_to_stop_gives_its_turn_back_at_once(product: Stack) -> None:
    with product.client() as client:
        session_id = drive.open_session(client)
        drive.say(client, session_id, "sleep 6s")
        drive.events_until(client, session_id, partial(_has, "turn_started", 1))
        worker = product.of("long")[0]
        code = worker.stop()
        events = drive.events_until(client, session_id, drive.ended(1))
        worker.start()
        again = drive.events_until(client, session_id, drive.ended(2))

    assert code == 0
    assert events[-1]["payload"]["reason"] == "the process that ran it was stopped"
    assert again[-1]["payload"]["status"] == "completed"


def _has(type_: str, count: int, events: list[Event]) -> bool:
    return _count(events, type_) == count


def _count(events: list[Event], type_: str) -> int:
    return sum(event["type"] == type_ for event in events)
