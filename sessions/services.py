"""What can be done to sessions: open, query, say, interrupt, terminate, retry a wake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Q

from sessions import doorbell, inbox, turns
from sessions.exceptions import Conflict, Invalid, NotFound, SessionTerminated, TurnActive
from sessions.models import AgentSession, Event, Turn, Wake
from sessions.registry import Registry, UnknownName
from sessions.runtime.adapters.base import Adapter
from sessions.signals import session_terminated
from sessions.states import Action, EventType, SessionStatus, TurnStatus, WakeSource
from sessions.text import storable
from sessions.tools import BoundTool, SessionTool, enabled_tools
from sessions.transcript import Entry, append, lock

MAX_MESSAGE_CHARS = 100_000
RING_LIMIT = 1000  # sessions a rescue rings for; the rest follow at the next

ADAPTERS: Registry[Adapter] = Registry("sessions.runtime.adapters", "adapter")


@dataclass(frozen=True)
class Said:
    """A person's message, posted. `live` tells whether a turn was live, which it may be steered into."""

    wake: Wake
    live: bool


@dataclass(frozen=True)
class Terminated:
    """A terminated session; the same values however often it is asked for."""

    session: AgentSession
    terminated_at: datetime
    cancelled_triggers: int
    status: SessionStatus = SessionStatus.TERMINATED


def open_session(
    *, tag: str | None = None, title: str = "", adapter: str = "builtin", model: str = "", now: datetime
) -> tuple[AgentSession, bool]:
    """Open a session, or return the one that has this tag; the second value tells whether it is new.

    Raises `Invalid` for an unknown adapter.
    """
    _check_adapter(adapter)
    tag = storable(tag) or None
    if tag and (known := AgentSession.objects.filter(tag=tag).first()):
        return known, False
    row = AgentSession(
        tag=tag, title=storable(title), adapter=adapter, model=model or settings.AGENT_MODEL, created_at=now
    )
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:  # somebody opened it between our look and our insert
        return AgentSession.objects.get(tag=tag), False
    return row, True


def check_open(session_id: UUID) -> None:
    """Raise `NotFound`, or `SessionTerminated` where a session can only be read."""
    _refuse_terminated(_found(AgentSession.objects.filter(pk=session_id).first(), session_id))


@transaction.atomic
def query(session_id: UUID, text: str, *, now: datetime) -> Wake:
    """Post a person's question as the start of a turn. Raises `TurnActive` while one is live."""
    session = _mutable(session_id)
    if _is_live(session):
        raise TurnActive("the session is in a turn; send a message instead, or wait until it is idle")
    return _post_message(session, text, None, now)


@transaction.atomic
def say(session_id: UUID, text: str, *, idempotency_key: str | None = None, now: datetime) -> Said:
    """Post a person's message: steered into the live turn where that is possible, else the next turn.

    A known idempotency key returns what it did the first time, and posts nothing. Raises `Conflict`
    if that was made of another text.
    """
    session = _mutable(session_id)
    live = _is_live(session)
    if idempotency_key:
        known = Wake.objects.filter(session=session, idempotency_key=idempotency_key).first()
        if known and known.text != storable(text):
            raise Conflict("this idempotency key has been used for another text")
        if known:
            return Said(known, _was_live_at(known))
    return Said(_post_message(session, text, idempotency_key, now), live)


@transaction.atomic
def interrupt(session_id: UUID, *, now: datetime) -> bool:
    """Ask the session's live turn to stop; return whether there was one."""
    return turns.request_interrupt(_mutable(session_id), "interrupted by a person", now=now)


@transaction.atomic
def terminate(session_id: UUID, *, reason: str = "terminated by an operator", now: datetime) -> Terminated:
    """End a session for good: its turn stops, its wakes are withdrawn, its triggers cancelled. Idempotent."""
    session = _locked(session_id)
    if session.terminated_at:
        return _receipt(session)
    AgentSession.objects.filter(pk=session.pk).update(terminated_at=now, held_until=None, hold_reason="")
    session.terminated_at = now
    live = Turn.objects.filter(session=session, status=TurnStatus.RUNNING).first()
    withdrawn = inbox.withdraw(Wake.objects.filter(session=session), reason, now=now)
    if live:
        turns.end(live, turns.Ending(TurnStatus.INTERRUPTED, turns.Fate.DONE, reason), now=now)
    answers = session_terminated.send(AgentSession, session=session, reason=reason, now=now)
    ended = sum(int(count or 0) for _, count in answers)
    receipt = {"reason": reason, "cancelled_triggers": ended, "withdrawn_wakes": withdrawn}
    append([Entry(session.pk, EventType.SESSION_TERMINATED, receipt)], now=now)
    return Terminated(session, now, ended)


@transaction.atomic
def retry_wake(wake_id: UUID, *, now: datetime) -> Wake:
    """Make a quarantined wake pending again. Raises `NotFound`, `Conflict`, `SessionTerminated`."""
    wake = Wake.objects.filter(pk=wake_id).first()
    if wake is None:
        raise NotFound(f"there is no wake {wake_id}")
    session = _mutable(wake.session_id)
    wake.refresh_from_db()
    inbox.retry(wake, now=now)
    AgentSession.objects.filter(pk=session.pk).update(held_until=None, hold_reason="")
    wake.refresh_from_db()
    doorbell.ring([session.pk])
    return wake


def rescue(*, now: datetime) -> int:
    """End turns whose worker is gone, and ring again for wakes that nobody has taken; return how many were lost."""
    lost = turns.rescue(now=now)
    with transaction.atomic():
        unheard = list(inbox.waiting(now=now).values_list("pk", flat=True)[:RING_LIMIT])
        AgentSession.objects.filter(pk__in=unheard).update(rung_at=now, rings=F("rings") + 1)
        doorbell.ring(unheard)
    return lost


def recover(*, now: datetime) -> int:
    """Take up after a stop: for the one process that runs everything, at its start, before it begins a turn.

    Whatever turn still counts as live was cut off with the process before, however fresh its lease.
    """
    lost = turns.rescue(now=now, whatever_lease=True)
    AgentSession.objects.filter(rings__gt=0).update(rung_at=None, rings=0)
    return lost


def needs_rescue(*, now: datetime) -> bool:
    """Return whether `rescue` would find anything to do."""
    return turns.expired_leases(now=now).exists() or inbox.waiting(now=now).exists()


def bind_tools(turn: Turn, *, clock: Callable[[], datetime]) -> list[BoundTool]:
    """Return the session tools on offer, bound to this turn."""
    return [
        BoundTool(tool.name, tool.description, tool.schema(), partial(_call_bound, turn, tool, clock))
        for tool in enabled_tools()
    ]


def call_tool(turn: Turn, tool: SessionTool, args: dict[str, Any], *, now: datetime) -> dict[str, Any]:
    """Call a session tool from within a live turn, with the call and its result in the transcript."""
    if not turns.record(turn, EventType.TOOL_CALL, {"tool": tool.name, "args": args}, now=now):
        return {"error": {"code": "not_found", "message": "this turn is over; nothing was done"}}
    result = tool.call(turns.context_of(turn), args, now=now)
    turns.record(turn, EventType.TOOL_RESULT, {"tool": tool.name, "result": result}, now=now)
    return result


def _call_bound(turn: Turn, tool: SessionTool, clock: Callable[[], datetime], args: dict[str, Any]) -> dict[str, Any]:
    return call_tool(turn, tool, args, now=clock())


def _check_adapter(name: str) -> None:
    try:
        ADAPTERS.get(name)
    except UnknownName as error:
        raise Invalid(str(error), fields={"adapter": str(error)}) from error


def _locked(session_id: UUID) -> AgentSession:
    return _found(lock([session_id]).get(session_id), session_id)


def _found(session: AgentSession | None, session_id: UUID) -> AgentSession:
    if session is None:
        raise NotFound(f"there is no session {session_id}")
    return session


def _mutable(session_id: UUID) -> AgentSession:
    session = _locked(session_id)
    _refuse_terminated(session)
    return session


def _refuse_terminated(session: AgentSession) -> None:
    if session.terminated_at:
        raise SessionTerminated("the session has been terminated; it can only be read")


def _is_live(session: AgentSession) -> bool:
    return Turn.objects.filter(session=session, status=TurnStatus.RUNNING).exists()


def _was_live_at(wake: Wake) -> bool:
    """Return whether a turn was live when a wake was posted. Ids are made under the session's lock, in their order."""
    begun_before = Turn.objects.filter(session=wake.session_id, pk__lt=wake.pk)
    return begun_before.filter(Q(ended_at=None) | Q(ended_at__gt=wake.created_at)).exists()


def _post_message(session: AgentSession, text: str, idempotency_key: str | None, now: datetime) -> Wake:
    wake = inbox.NewWake(
        session_id=session.pk,
        source=WakeSource.PERSON,
        text=_checked(text),
        action=Action.MESSAGE,
        idempotency_key=idempotency_key,
    )
    doorbell.ring([session.pk])
    return inbox.post([wake], now=now)[0]


def _checked(text: str) -> str:
    if not text.strip():
        raise Invalid("the text is empty", fields={"text": "must not be blank"})
    if len(text) > MAX_MESSAGE_CHARS:
        limit = f"at most {MAX_MESSAGE_CHARS} characters, this one has {len(text)}"
        raise Invalid(f"the text is too long: {limit}", fields={"text": limit})
    return text


def _receipt(session: AgentSession) -> Terminated:
    last = Event.objects.filter(session=session, type=EventType.SESSION_TERMINATED).latest("seq")
    assert session.terminated_at
    return Terminated(session, session.terminated_at, last.payload["cancelled_triggers"])
