"""Reads of sessions: for the doors, the console and the runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from sessions import inbox
from sessions.exceptions import NotFound
from sessions.facts import facts_of
from sessions.models import AgentSession, Event, Turn, Wake
from sessions.secrecy import decrypt
from sessions.states import EventType, SessionStatus, TurnStatus, WakeStatus


@dataclass(frozen=True)
class SessionView:
    """A session with what is derived for showing it."""

    session: AgentSession
    status: SessionStatus
    pending_wakes: int
    quarantined_wakes: int
    last_event: Event | None
    facts: dict[str, Any]


@dataclass(frozen=True)
class TranscriptPage:
    """A stretch of a transcript. `done_reason` is why the last turn ended, empty while one runs."""

    events: list[Event]
    status: SessionStatus
    done_reason: str

    @property
    def running(self) -> bool:
        return self.status == SessionStatus.RUNNING


def session(session_id: UUID) -> AgentSession:
    """Return a session. Raises `NotFound`."""
    found = sessions().filter(pk=session_id).first()
    if found is None:
        raise NotFound(f"there is no session {session_id}")
    return found


def sessions(*, status: SessionStatus | None = None) -> QuerySet[AgentSession]:
    """Return sessions, newest first, each with `live`: whether it has a live turn."""
    live = Exists(Turn.objects.filter(session=OuterRef("pk"), status=TurnStatus.RUNNING))
    rows = AgentSession.objects.annotate(live=live).order_by("-pk")
    if status == SessionStatus.TERMINATED:
        return rows.exclude(terminated_at=None)
    if status:
        return rows.filter(terminated_at=None, live=status == SessionStatus.RUNNING)
    return rows


def status_of(row: AgentSession) -> SessionStatus:
    """Return the status of a session that came from `sessions`."""
    if row.terminated_at:
        return SessionStatus.TERMINATED
    return SessionStatus.RUNNING if row.live else SessionStatus.IDLE  # type: ignore[attr-defined]


def views(rows: Sequence[AgentSession]) -> list[SessionView]:
    """Return sessions with what is derived for showing them, in a fixed number of queries."""
    ids = [row.pk for row in rows]
    counts = _wake_counts(ids)
    last = _last_events(rows)
    facts = facts_of(ids)
    return [
        SessionView(
            session=row,
            status=status_of(row),
            pending_wakes=counts.get(row.pk, (0, 0))[0],
            quarantined_wakes=counts.get(row.pk, (0, 0))[1],
            last_event=last.get(row.pk),
            facts=facts[row.pk],
        )
        for row in rows
    ]


def transcript(session_id: UUID, *, after: int = 0, limit: int = 200) -> TranscriptPage:
    """Return the events after a sequence number, oldest first. Raises `NotFound`."""
    row = session(session_id)
    events = list(Event.objects.filter(session_id=session_id, seq__gt=after).order_by("seq")[:limit])
    status = status_of(row)
    return TranscriptPage(events, status, "" if status == SessionStatus.RUNNING else _done_reason(session_id))


def has_events_after(session_id: UUID, after: int) -> bool:
    """Return whether a transcript goes on after a sequence number."""
    return AgentSession.objects.filter(pk=session_id, last_seq__gt=after).exists()


def seq_of_turn(session_id: UUID, turn_id: UUID) -> int | None:
    """Return where in a session's transcript a turn begins, None if it has no such turn."""
    starts = Event.objects.filter(session_id=session_id, type=EventType.TURN_STARTED, payload__turn_id=str(turn_id))
    return starts.values_list("seq", flat=True).first()


def state(row: AgentSession) -> dict[str, Any]:
    """Return the adapter's own state of a session."""
    return decrypt(row.state) if row.state else {}


def quarantined(session_id: UUID) -> list[Wake]:
    """Return a session's quarantined wakes that can be retried, oldest first."""
    return list(inbox.outstanding().filter(session_id=session_id, status=WakeStatus.QUARANTINED).order_by("pk"))


def _wake_counts(ids: Sequence[UUID]) -> dict[UUID, tuple[int, int]]:
    counted = (
        inbox.outstanding()
        .filter(session_id__in=ids)
        .values("session_id")
        .annotate(
            pending=Count("pk", filter=Q(status=WakeStatus.PENDING)),
            quarantined=Count("pk", filter=Q(status=WakeStatus.QUARANTINED)),
        )
    )
    return {row["session_id"]: (row["pending"], row["quarantined"]) for row in counted}


def _last_events(rows: Sequence[AgentSession]) -> dict[UUID, Event]:
    wanted = Q()
    for row in rows:
        wanted |= Q(session_id=row.pk, seq=row.last_seq)
    return {event.session_id: event for event in Event.objects.filter(wanted)} if rows else {}


def _done_reason(session_id: UUID) -> str:
    ends = (EventType.TURN_ENDED, EventType.SESSION_TERMINATED)
    last = Event.objects.filter(session_id=session_id, type__in=ends).order_by("-seq").first()
    if last is None:
        return ""
    return str(last.payload.get("status") or SessionStatus.TERMINATED)
