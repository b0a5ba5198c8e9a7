from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from unittest.mock import Mock, patch

import pytest
from django.db import OperationalError, connection, connections
from django.test.utils import CaptureQueriesContext

from sessions.models import AgentSession
from sessions.reads import Read
from tests.factories import open_session

pytestmark = pytest.mark.django_db

BY_ID = Read(AgentSession, "SELECT s.* FROM rewake_session s WHERE s.id IN ({ids}) ORDER BY s.title {lock:s}")
BEFORE = Read(AgentSession, "SELECT s.id, 7 AS seven FROM rewake_session s WHERE s.created_at < {now} AND title = {it}")


def test_it_reads_rows_as_the_orm_would(session: AgentSession, now: datetime) -> None:
    other = open_session(now, title="100 % of it; 'all' — ☕")

    rows = BY_ID(ids={session.pk, other.pk})

    of_the_orm = AgentSession.objects.filter(pk__in=[session.pk, other.pk]).order_by("title")
    kept = [{field.attname: getattr(row, field.attname) for field in AgentSession._meta.fields} for row in rows]
    assert kept == list(of_the_orm.values())


def test_it_compares_with_instants_and_texts_and_adds_columns(now: datetime) -> None:
    title = "%s {now} '; --"
    row = open_session(now, title=title)

    assert BEFORE(now=now, it=title) == []
    [found] = BEFORE(now=now + timedelta(microseconds=1), it=title)
    assert (found.pk, found.seven, found.title) == (row.pk, 7, title)


def test_it_finds_nothing_for_no_ids(session: AgentSession) -> None:
    assert BY_ID(ids=[]) == []


def test_it_locks_where_there_are_row_locks(session: AgentSession) -> None:
    with CaptureQueriesContext(connection) as sent:
        BY_ID(ids=[session.pk])

    assert ("FOR UPDATE OF s" in sent[0]["sql"]) == (connection.vendor == "postgresql")


# --- the connection ---


@pytest.fixture
def kept(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that an earlier request or task has left, and that nobody has asked since whether it lives."""
    connection.ensure_connection()
    monkeypatch.setattr(connections["default"], "health_check_enabled", True)
    monkeypatch.setattr(connections["default"], "health_check_done", False)


def test_it_asks_no_connection_first_whether_it_lives(kept: None, now: datetime) -> None:
    with patch.object(connections["default"], "is_usable") as asked:
        BEFORE(now=now, it="")

    assert not asked.called


def test_it_asks_again_on_another_connection_if_the_one_it_had_has_died(kept: None, now: datetime) -> None:
    row = open_session(now)
    default: Any = connections["default"]
    if connection.vendor == "postgresql":
        other = connection.copy()
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [default.connection.info.backend_pid])
        other.close()
    default.health_check_done = False

    assert [found.pk for found in BY_ID(ids=[row.pk])] == [row.pk]


def test_it_tells_of_a_fault_of_a_connection_that_lives(kept: None, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Mock(side_effect=OperationalError("the database is locked"))
    monkeypatch.setattr(BY_ID, "_rows", refusing)

    with pytest.raises(OperationalError, match="locked"):
        BY_ID(ids=[])

    assert refusing.call_count == 1


def test_it_takes_part_in_a_transaction_as_it_is(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Mock(side_effect=OperationalError("gone"))
    monkeypatch.setattr(connections["default"], "health_check_done", False)
    monkeypatch.setattr(BY_ID, "_rows", refusing)
    monkeypatch.setattr(connections["default"], "is_usable", lambda: False)

    with pytest.raises(OperationalError, match="gone"):
        BY_ID(ids=[])

    assert refusing.call_count == 1
