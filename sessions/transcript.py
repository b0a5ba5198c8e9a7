"""The only writer of Event: a session's transcript, append-only, numbered from 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from sessions.models import AgentSession, Event
from sessions.reads import Read
from sessions.script import Script
from sessions.secrecy import mask
from sessions.states import EventType
from sessions.text import storable


@dataclass(frozen=True)
class Entry:
    """One line to append."""

    session_id: UUID
    type: EventType
    payload: dict[str, Any] = field(default_factory=dict)


_LOCK = Read(AgentSession, "SELECT s.* FROM rewake_session s WHERE s.id IN ({ids}) ORDER BY s.id {lock:s}")


def lock(session_ids: Iterable[UUID]) -> dict[UUID, AgentSession]:
    """Lock sessions until the transaction ends, in an order that all share, so that none deadlock.

    Whoever locks a session and anything that belongs to it (trigger, turn, wake) locks the
    session first. Unknown ids are absent from the answer.
    """
    return {session.pk: session for session in _LOCK(ids=set(session_ids))}


@transaction.atomic(savepoint=False)  # two statements fewer, and nobody goes on after half an append
def append(entries: Sequence[Entry], *, now: datetime) -> None:
    """Append lines to their sessions' transcripts, in the order given, secrets masked."""
    if entries:
        script = Script()
        write(entries, lock(entry.session_id for entry in entries), script, now=now)
        script.run()


def write(entries: Sequence[Entry], sessions: Mapping[UUID, AgentSession], script: Script, *, now: datetime) -> None:
    """Do the same as part of a script, for sessions that are locked and as they are in the database."""
    script.insert(_number(entries, sessions, script, now=now))


def _number(
    entries: Sequence[Entry], sessions: Mapping[UUID, AgentSession], script: Script, *, now: datetime
) -> list[Event]:
    """Return lines as rows, numbered on from where their sessions are, and move those on."""
    events = []
    for entry in entries:
        session = sessions[entry.session_id]
        session.last_seq += 1
        payload = mask(storable(entry.payload))
        events.append(Event(session_id=session.pk, seq=session.last_seq, type=entry.type, at=now, payload=payload))
    for session_id in dict.fromkeys(entry.session_id for entry in entries):
        script.update(sessions[session_id], "last_seq")
    return events
