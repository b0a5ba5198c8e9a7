from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from sessions.models import AgentSession, Event, Wake
from sessions.script import Script
from sessions.states import WAKES, WakeStatus

pytestmark = pytest.mark.django_db


def _wake(session: AgentSession, now: datetime, **fields: object) -> Wake:
    return Wake(session=session, source="person", text="100 % of it; 'all' — ☕", created_at=now, **fields)


def test_it_stores_rows_as_the_orm_would(session: AgentSession, now: datetime) -> None:
    given = {"heading": {"a": [1, None, "'\\\"; --"]}, "payload": "%s", "truncated": True, "payload_bytes": 2**40}
    ours, theirs = _wake(session, now, **given), _wake(session, now, **given)
    script = Script()

    script.insert([ours])
    script.run()
    theirs.save(force_insert=True)

    one, other = (Wake.objects.filter(pk=wake.pk).values().get() for wake in (ours, theirs))
    assert one | {"id": other["id"]} == other
    ours.save()  # an UPDATE, as for any row that is stored


def test_it_lets_the_database_give_an_id(session: AgentSession, now: datetime) -> None:
    script = Script()

    script.insert([Event(session=session, seq=seq, type="user", at=now) for seq in (1001, 1002)])
    script.run()

    assert Event.objects.filter(session=session, seq__gt=1000).count() == 2


def test_it_updates_the_columns_that_were_named_only(session: AgentSession, now: datetime) -> None:
    AgentSession.objects.filter(pk=session.pk).update(title="meanwhile")
    session.last_seq, session.held_until = 7, now + timedelta(hours=1)
    script = Script()

    script.update(session, "last_seq", "held_until")
    script.run()

    row = AgentSession.objects.get(pk=session.pk)
    assert (row.title, row.last_seq, row.held_until) == ("meanwhile", 7, now + timedelta(hours=1))


def test_it_sends_nothing_twice_and_nothing_for_nothing(session: AgentSession, now: datetime) -> None:
    script = Script()
    script.insert([])
    script.insert([_wake(session, now)])
    script.run()

    with CaptureQueriesContext(connection) as sent:
        script.run()

    assert not sent.captured_queries


def test_it_writes_all_or_nothing_in_a_transaction(session: AgentSession, now: datetime) -> None:
    script = Script()
    script.insert([_wake(session, now)])
    script.insert([Event(session=session, seq=1001, type="user", at=now) for _ in range(2)])

    with pytest.raises(IntegrityError), transaction.atomic():
        script.run()

    assert not Wake.objects.filter(session=session).exists()


def test_it_takes_one_journey_to_postgresql(session: AgentSession, now: datetime) -> None:
    script = Script()
    script.insert([_wake(session, now)])
    script.insert([Event(session=session, seq=1001, type="user", at=now)])
    script.update(session, "title")

    with CaptureQueriesContext(connection) as sent:
        script.run()

    assert len(sent.captured_queries) == (1 if connection.vendor == "postgresql" else 3)


def test_it_moves_rows_that_may_go_there_and_no_others(session: AgentSession, now: datetime) -> None:
    pending, done = _wake(session, now), _wake(session, now, status="done")
    Wake.objects.bulk_create([pending, done])
    script = Script()

    script.move(WAKES, [], WakeStatus.WITHDRAWN)
    script.move(WAKES, [pending, done], WakeStatus.WITHDRAWN, reason="no longer wanted", settled_at=now)
    script.run()

    assert (pending.status, pending.reason) == (WakeStatus.WITHDRAWN, "no longer wanted")
    rows = Wake.objects.values_list("status", "reason", "settled_at")
    assert set(rows) == {("withdrawn", "no longer wanted", now), ("done", "", None)}
