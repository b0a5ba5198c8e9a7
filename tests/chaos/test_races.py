"""Many threads at once, each with a connection of its own, over what only one of them may win."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection

from sessions import services as session_services
from sessions import turns
from sessions.models import Event, Turn, Wake
from tests.factories import arm, armed_session, context_in, open_session
from triggers import engine, services
from triggers.audit import audit
from triggers.engine import Fired
from triggers.exceptions import PolicyRefused
from triggers.ledger import Occurrence
from triggers.models import Fire, Trigger
from triggers.states import TriggerStatus

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 6


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """Run all acts at the same moment, and return what each returned, or the error that it raised."""
    barrier = threading.Barrier(len(acts))

    def run(act: Callable[[], Any]) -> Any:
        barrier.wait(10)
        try:
            return act()
        except PolicyRefused as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def test_many_tickers_fire_each_due_row_once(now: datetime) -> None:
    rows = [armed_session(now, "time.at", args={"at": (now + timedelta(seconds=1)).isoformat()}) for _ in range(20)]
    due = now + timedelta(seconds=1)

    results = at_once(*[lambda: engine.tick(now=due).fired] * THREADS)

    assert sum(results) == Fire.objects.count() == Wake.objects.filter(source="trigger").count() == len(rows)
    assert audit(now=due).clean


def test_one_delivery_posted_by_many_fires_once(now: datetime) -> None:
    trigger = armed_session(now)

    results = at_once(*[lambda: engine.fire(trigger.pk, Occurrence("d1", now), now=now)] * THREADS)

    assert sorted(results) == sorted([Fired.FIRED] + [Fired.KNOWN] * (THREADS - 1))
    assert Fire.objects.count() == 1


def test_many_deliveries_at_once_all_fire(now: datetime) -> None:
    trigger = armed_session(now)
    posts = [lambda key=str(n): engine.fire(trigger.pk, Occurrence(key, now), now=now) for n in range(THREADS)]

    assert at_once(*posts) == [Fired.FIRED] * THREADS

    trigger.refresh_from_db()
    assert trigger.fires == Fire.objects.count() == THREADS
    assert audit(now=now).clean


def test_a_trigger_that_may_fire_once_fires_once(now: datetime) -> None:
    trigger = armed_session(now, max_fires=1)
    posts = [lambda key=str(n): engine.fire(trigger.pk, Occurrence(key, now), now=now) for n in range(THREADS)]

    assert sorted(at_once(*posts)) == sorted([Fired.FIRED] + [Fired.REFUSED] * (THREADS - 1))

    trigger.refresh_from_db()
    assert (trigger.status, trigger.fires) == (TriggerStatus.COMPLETED, 1)


def test_parallel_arms_never_pass_the_ceiling(now: datetime, settings: Any) -> None:
    settings.TRIGGERS_MAX_ARMED_PER_SESSION = 2
    session = open_session(now)
    context = context_in(session, now)

    results = at_once(*[lambda: arm(session, now, context=context)] * THREADS)

    assert sum(isinstance(result, PolicyRefused) for result in results) == THREADS - 2
    assert Trigger.objects.filter(status=TriggerStatus.ARMED).count() == 2


def test_parallel_resumes_never_pass_the_ceiling(now: datetime, settings: Any) -> None:
    session = open_session(now)
    paused = [arm(session, now).trigger.pk for _ in range(THREADS)]
    for trigger_id in paused:
        services.pause(trigger_id, by="operator", now=now)
    settings.TRIGGERS_MAX_ARMED_PER_SESSION = 2

    results = at_once(*[lambda pk=pk: services.resume(pk, by="operator", now=now) for pk in paused])

    assert sum(isinstance(result, PolicyRefused) for result in results) == THREADS - 2


def test_many_workers_begin_one_turn(now: datetime) -> None:
    session = open_session(now)
    session_services.say(session.pk, "hello", now=now)

    results = at_once(*[lambda: len(turns.begin([session.pk], worker="w", now=now))] * THREADS)

    assert sorted(results) == [0] * (THREADS - 1) + [1]
    assert Turn.objects.count() == 1


def test_workers_that_begin_many_sessions_in_any_order_do_not_deadlock(now: datetime) -> None:
    sessions = [open_session(now) for _ in range(12)]
    for session in sessions:
        session_services.say(session.pk, "hello", now=now)
    ids = [session.pk for session in sessions]
    orders = [ids, ids[::-1], ids[6:] + ids[:6], ids[::2] + ids[1::2]]

    results = at_once(*[lambda order=order: len(turns.begin(order, worker="w", now=now)) for order in orders])

    assert sum(results) == len(sessions)


def test_a_cancel_and_a_fire_leave_either_both_or_only_the_cancel(now: datetime) -> None:
    triggers = [armed_session(now) for _ in range(5)]
    for trigger in triggers:
        at_once(
            partial(engine.fire, trigger.pk, Occurrence("d", now), now=now),
            partial(services.cancel, trigger.pk, by="operator", now=now),
        )

    assert set(Trigger.objects.values_list("status", flat=True)) == {TriggerStatus.CANCELLED}
    assert not Wake.objects.filter(source="trigger", status="pending").exists()
    assert audit(now=now).clean


def test_the_end_of_a_session_and_a_fire_do_not_deadlock_and_the_end_is_final(now: datetime) -> None:
    trigger = armed_session(now)

    at_once(
        lambda: session_services.terminate(trigger.session_id, now=now),
        *[lambda key=str(n): engine.fire(trigger.pk, Occurrence(key, now), now=now) for n in range(4)],
    )

    assert Event.objects.filter(session=trigger.session_id).latest("seq").type == "session_terminated"
    assert not Wake.objects.filter(status__in=["pending", "taken"]).exists()
    assert audit(now=now).clean
