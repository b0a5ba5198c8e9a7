from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection
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
