"""Ticks beside others that hold what is due: on PostgreSQL, where each row has its own lock; SQLite has one writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest
from django.db import connection

from tests.factories import armed_session
from triggers import engine
from triggers.audit import audit
from triggers.models import Fire, Trigger

pytestmark = pytest.mark.django_db(transaction=True)

LOCKS = connection.features.has_select_for_update


@contextmanager
def held(triggers: Sequence[Trigger]) -> Iterator[Callable[[], object]]:
    """Hold the sessions of triggers, as a turn that begins does, until the function that is yielded is called."""
    other = connection.copy()
    other.set_autocommit(False)
    try:
        if LOCKS:
            with other.cursor() as cursor:
                ids = [trigger.session_id for trigger in triggers]
                cursor.execute("SELECT id FROM rewake_session WHERE id = ANY(%s) FOR UPDATE", [ids])
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '5s'")  # who waits here would wait for ever
        yield other.rollback
    finally:
        other.close()
        connection.close()


def due(now: datetime, count: int) -> list[Trigger]:
    """Arm triggers for instants a second apart."""
    instants = [(now + timedelta(seconds=number + 1)).isoformat() for number in range(count)]
    return [armed_session(now, "time.at", args={"at": instant}) for instant in instants]


def fired() -> set[object]:
    return set(Fire.objects.values_list("trigger_id", flat=True))


@pytest.fixture
def later(now: datetime) -> datetime:
    return now + timedelta(seconds=60)


def test_what_another_holds_keeps_nobody_waiting_and_is_recorded_in_the_same_tick(
    now: datetime, later: datetime
) -> None:
    triggers = due(now, 5)
    seen: list[set[object]] = []
    with held(triggers[:2]) as let_go:

        def recorded() -> None:
            seen.append(fired())
            let_go()

        result = engine.tick(now=later, recorded=recorded)

    everyone = {trigger.pk for trigger in triggers}
    free = {trigger.pk for trigger in triggers[2:]}
    assert seen == ([free, everyone] if LOCKS else [everyone])
    assert (result.fired, result.more) == (5, False)
    assert audit(now=later).clean


def test_a_full_batch_takes_what_is_free(now: datetime, later: datetime) -> None:
    triggers = due(now, 6)
    with held(triggers[:3]):
        result = engine.tick(now=later, limit=3)

    assert (result.fired, result.more) == (3, True)
    assert not LOCKS or fired() == {trigger.pk for trigger in triggers[3:]}


def test_a_full_batch_of_which_nothing_is_free_is_left_to_those_who_hold_it(now: datetime, later: datetime) -> None:
    with held(due(now, 3)):
        result = engine.tick(now=later, limit=3)

    assert (result.fired, result.more) == ((0, False) if LOCKS else (3, True))


def test_what_one_session_is_woken_for_is_in_the_order_of_its_instants(now: datetime, later: datetime) -> None:
    first = armed_session(now, "time.at", args={"at": (now + timedelta(seconds=2)).isoformat()})
    second = armed_session(now, "time.at", args={"at": (now + timedelta(seconds=1)).isoformat()})
    Trigger.objects.filter(pk=second.pk).update(session_id=first.session_id)

    engine.tick(now=later)

    assert list(Fire.objects.order_by("pk").values_list("trigger_id", flat=True)) == [second.pk, first.pk]
