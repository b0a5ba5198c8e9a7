"""Posts that wait at the same moment: written together, each with its own answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client

from sessions.models import Event, Wake
from tests.triggers.api.posting import Hook, hooked
from triggers import engine, posts
from triggers.audit import audit
from triggers.engine import Fired
from triggers.ledger import Occurrence
from triggers.models import Fire, Trigger
from triggers.states import TriggerStatus

pytestmark = pytest.mark.django_db(transaction=True)
PATIENCE = 20.0
expected = [0]  # how many post at once


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have the first post waited for by all others, which then go together; note how many were written at a time."""
    sizes: list[int] = []
    fire_all = engine.fire_all

    def waiting(items: Sequence[tuple[UUID, Occurrence]], *, now: datetime) -> list[Fired]:
        if not sizes:
            sizes.append(len(items))
            _until(lambda: len(posts._fire._waiting) == expected[0] - 1)
        else:
            sizes.append(len(items))
        return fire_all(items, now=now)

    monkeypatch.setattr(engine, "fire_all", waiting)
    return sizes


def _at_once(*hooks: Hook, headers: dict[str, str] | None = None) -> list[int]:
    """Post to all at the same moment, and return the statuses."""
    expected[0] = len(hooks)

    def post(hook: Hook) -> int:
        try:  # a client that raises would raise what another thread's request has raised
            client = Client(raise_request_exception=False)
            return client.generic("POST", hook.path, b"{}", "application/json", headers=headers).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(len(hooks)) as pool:
        return list(pool.map(post, hooks))


def _until(holds: Any) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("not in time")


def test_ten_posts_are_ten_fires_in_two_transactions(now: datetime, batches: list[int]) -> None:
    hook = hooked(now)

    assert _at_once(*[hook] * 10) == [202] * 10

    assert batches == [1, 9]
    fires = hook.fires()
    assert [fire.number for fire in fires] == list(range(1, 11))
    assert Trigger.objects.get(pk=hook.trigger.pk).fires == 10
    told = Event.objects.filter(session=hook.trigger.session_id, type="trigger_fired").order_by("seq")
    assert [event.payload["fires"] for event in told] == list(range(1, 11))
    assert [wake.heading["fire"] for wake in Wake.objects.filter(source="trigger").order_by("pk")] == list(range(1, 11))
    assert audit(now=now).clean


def test_a_trigger_that_may_fire_three_times_accepts_three(now: datetime, batches: list[int]) -> None:
    hook = hooked(now, max_fires=3)

    assert sorted(_at_once(*[hook] * 8)) == [202] * 3 + [404] * 5

    trigger = Trigger.objects.get(pk=hook.trigger.pk)
    assert (trigger.status, trigger.fires, len(hook.fires())) == (TriggerStatus.COMPLETED, 3, 3)
    assert audit(now=now).clean


def test_one_delivery_fires_once_and_all_its_posts_are_accepted(now: datetime, batches: list[int]) -> None:
    hook = hooked(now, max_fires=1)

    assert _at_once(*[hook] * 8, headers={"X-GitHub-Delivery": "d1"}) == [202] * 8

    assert len(hook.fires()) == 1


def test_posts_to_many_triggers_are_written_together(now: datetime, batches: list[int]) -> None:
    hooks = [hooked(now) for _ in range(6)]

    assert _at_once(*hooks) == [202] * 6

    assert batches == [1, 5]
    assert Fire.objects.count() == 6
    assert audit(now=now).clean


def test_a_bad_trigger_fails_alone(now: datetime, batches: list[int]) -> None:
    good = [hooked(now) for _ in range(5)]
    bad = hooked(now)
    Trigger.objects.filter(pk=bad.trigger.pk).update(args={"hmac_header": None, "gone": "in the next version"})

    assert _at_once(good[0], bad, *good[1:]) == [202, 500, 202, 202, 202, 202]

    assert bad.fires() == []
    assert Fire.objects.count() == 5
    assert audit(now=now).clean
