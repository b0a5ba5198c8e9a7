from __future__ import annotations

from datetime import datetime

import pytest
from django.db import IntegrityError, transaction

from sessions.models import AgentSession, Event
from sessions.states import EventType
from sessions.transcript import Entry, append
from tests.factories import open_session

pytestmark = pytest.mark.django_db


def test_it_numbers_events_from_1_without_a_gap(session: AgentSession, now: datetime) -> None:
    append([Entry(session.pk, EventType.USER), Entry(session.pk, EventType.ASSISTANT)], now=now)
    append([Entry(session.pk, EventType.TURN_ENDED)], now=now)

    assert _seqs(session) == [1, 2, 3]


def test_it_numbers_each_session_for_itself_in_one_batch(session: AgentSession, now: datetime) -> None:
    other = open_session(now)
    entries = [Entry(row.pk, EventType.USER) for row in (session, other, session, session)]

    append(entries, now=now)

    assert (_seqs(session), _seqs(other)) == ([1, 2, 3], [1])


def test_it_refuses_a_number_twice(session: AgentSession, now: datetime) -> None:
    append([Entry(session.pk, EventType.USER)], now=now)

    with pytest.raises(IntegrityError), transaction.atomic():
        Event.objects.create(session=session, seq=1, type=EventType.USER, at=now)


def test_it_masks_secrets_at_any_depth(session: AgentSession, now: datetime) -> None:
    secret = "rwh_" + "a" * 43
    payload = {"result": {"hook_url": f"http://x/{secret}", "list": [secret]}, "text": f"say {secret}!"}

    append([Entry(session.pk, EventType.TOOL_RESULT, payload)], now=now)

    event = Event.objects.get()
    assert "aaaa" not in str(event.payload)
    assert event.payload["result"]["hook_url"] == "http://x/rwh_***"


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x\ud83dy"])
def test_it_stores_text_that_a_database_would_refuse(session: AgentSession, now: datetime, text: str) -> None:
    append([Entry(session.pk, EventType.USER, {text: [text, {"t": text}]})], now=now)

    event = Event.objects.get()
    assert "�" in str(event.payload)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_it_stores_numbers_that_json_does_not_have(session: AgentSession, now: datetime, number: float) -> None:
    append([Entry(session.pk, EventType.USER, {"n": number})], now=now)

    event = Event.objects.get()
    assert event.payload["n"] == str(number)


def _seqs(session: AgentSession) -> list[int]:
    return list(Event.objects.filter(session=session).order_by("seq").values_list("seq", flat=True))
