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


class Batches:
    """Writes like the engine, but has the first post wait until all others do; they then go together."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.begun = threading.Event()
        self.others = 0
        self._fire_all = engine.fire_all

    def __call__(self, items: Sequence[tuple[UUID, Occurrence]], *, now: datetime) -> list[Fired]:
        self.sizes.append(len(items))
        if not self.begun.is_set():
            self.begun.set()
            _until(lambda: len(posts._fire._waiting) == self.others)
        return self._fire_all(items, now=now)

    def post(self, *hooks: Hook, headers: dict[str, str] | None = None) -> list[int]:
        """Post to the first, and to the others while it is being written; return the statuses."""
        self.others = len(hooks) - 1
        with ThreadPoolExecutor(len(hooks)) as pool:
            first = pool.submit(_post, hooks[0], headers)
            assert self.begun.wait(PATIENCE)
            others = [pool.submit(_post, hook, headers) for hook in hooks[1:]]
            return [first.result(), *(other.result() for other in others)]


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Batches:
    made = Batches()
    monkeypatch.setattr(engine, "fire_all", made)
    return made


def _post(hook: Hook, headers: dict[str, str] | None) -> int:
    try:  # a client that raises would raise what another thread's request has raised
        client = Client(raise_request_exception=False)
        return client.generic("POST", hook.path, b"{}", "application/json", headers=headers).status_code
    finally:
        connection.close()


def _until(holds: Any) -> None:
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("not in time")


def test_ten_posts_are_ten_fires_in_two_transactions(now: datetime, batches: Batches) -> None:
    hook = hooked(now)

    assert batches.post(*[hook] * 10) == [202] * 10

    assert batches.sizes == [1, 9]
    fires = hook.fires()
    assert [fire.number for fire in fires] == list(range(1, 11))
    assert Trigger.objects.get(pk=hook.trigger.pk).fires == 10
    told = Event.objects.filter(session=hook.trigger.session_id, type="trigger_fired").order_by("seq")
    assert [event.payload["fires"] for event in told] == list(range(1, 11))
    assert [wake.heading["fire"] for wake in Wake.objects.filter(source="trigger").order_by("pk")] == list(range(1, 11))
    assert audit(now=now).clean


def test_a_trigger_that_may_fire_three_times_accepts_three(now: datetime, batches: Batches) -> None:
    hook = hooked(now, max_fires=3)

    assert sorted(batches.post(*[hook] * 8)) == [202] * 3 + [404] * 5

    assert batches.sizes == [1, 7]  # not taken apart
    trigger = Trigger.objects.get(pk=hook.trigger.pk)
    assert (trigger.status, trigger.fires, len(hook.fires())) == (TriggerStatus.COMPLETED, 3, 3)
    assert audit(now=now).clean


def test_one_delivery_fires_once_and_all_its_posts_are_accepted(now: datetime, batches: Batches) -> None:
    hook = hooked(now, max_fires=1)

    assert batches.post(*[hook] * 8, headers={"X-GitHub-Delivery": "d1"}) == [202] * 8

    assert batches.sizes == [1, 7]  # not taken apart
    assert len(hook.fires()) == 1


def test_posts_to_many_triggers_are_written_together(now: datetime, batches: Batches) -> None:
    hooks = [hooked(now) for _ in range(6)]

    assert batches.post(*hooks) == [202] * 6

    assert batches.sizes == [1, 5]
    assert Fire.objects.count() == 6
    assert audit(now=now).clean


def test_a_bad_trigger_fails_alone(now: datetime, batches: Batches) -> None:
    good = [hooked(now) for _ in range(5)]
    bad = hooked(now)
    Trigger.objects.filter(pk=bad.trigger.pk).update(args={"hmac_header": None, "gone": "in the next version"})

    assert batches.post(good[0], bad, *good[1:]) == [202, 500, 202, 202, 202, 202]
    assert batches.sizes[:2] == [1, 5]

    assert bad.fires() == []
    assert Fire.objects.count() == 5
    assert audit(now=now).clean


def test_two_posts_of_one_delivery_in_one_batch_fire_once(now: datetime, batches: Batches) -> None:
    first, hook = hooked(now), hooked(now)

    assert batches.post(first, hook, hook, headers={"Idempotency-Key": "d1"}) == [202] * 3

    assert batches.sizes == [1, 2]
    assert len(hook.fires()) == 1
