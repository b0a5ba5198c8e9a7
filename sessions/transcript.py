"""The only writer of Event: a session's transcript, append-only, numbered from 1."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet

from sessions.models import AgentSession, Event
from sessions.secrecy import mask
from sessions.states import EventType
from sessions.text import storable


@dataclass(frozen=True)
class Entry:
    """One line to append."""

    session_id: UUID
    type: EventType
    payload: dict[str, Any] = field(default_factory=dict)


def lock(session_ids: Iterable[UUID] | QuerySet[Any, Any]) -> dict[UUID, AgentSession]:
    """Lock sessions until the transaction ends, in an order that all share, so that none deadlock.

    Whoever locks a session and anything that belongs to it (trigger, turn, wake) locks the
    session first. Unknown ids are absent from the answer. The ids may be a query for them.
    """
    ids = session_ids if isinstance(session_ids, QuerySet) else set(session_ids)
    rows = AgentSession.objects.select_for_update().filter(pk__in=ids).order_by("pk")
    return {session.pk: session for session in rows}


@transaction.atomic(savepoint=False)  # two statements fewer, and nobody goes on after half an append
def append(entries: Sequence[Entry], *, now: datetime) -> list[Event]:
    """Append lines to their sessions' transcripts, in the order given, secrets masked."""
    if not entries:
        return []
    added = Counter(entry.session_id for entry in entries)
    by_growth: dict[int, list[UUID]] = defaultdict(list)
    for session_id, growth in added.items():
        by_growth[growth].append(session_id)
    for growth, session_ids in by_growth.items():  # the UPDATE locks the row: numbers never collide
        AgentSession.objects.filter(pk__in=session_ids).update(last_seq=F("last_seq") + growth)
    last = dict(AgentSession.objects.filter(pk__in=added).values_list("pk", "last_seq"))
    following = {session_id: last[session_id] - growth + 1 for session_id, growth in added.items()}
    events = []
    for entry in entries:
        payload = mask(storable(entry.payload))
        events.append(
            Event(
                session_id=entry.session_id, seq=following[entry.session_id], type=entry.type, at=now, payload=payload
            )
        )
        following[entry.session_id] += 1
    return Event.objects.bulk_create(events)
