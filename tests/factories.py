"""Makes what tests start from, through the same services that the product uses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from sessions import services as session_services
from sessions import turns
from sessions.models import AgentSession, Turn
from sessions.runtime.keeper import Watch
from sessions.secrecy import decrypt
from sessions.tools import ToolContext
from triggers import services
from triggers.models import Trigger

_numbers = itertools.count(1)


def open_session(now: datetime, **fields: Any) -> AgentSession:
    """Open a session; `fields` as `sessions.services.open_session` takes them."""
    session, _ = session_services.open_session(now=now, **fields)
    return session


def live_turn(session: AgentSession, now: datetime, text: str = "go on") -> turns.Begun:
    """Begin a turn that a person's message caused."""
    session_services.say(session.pk, text, now=now)
    [begun] = turns.begin([session.pk], worker="test", now=now)
    return begun


def end_turn(turn: Turn, now: datetime, **fields: Any) -> bool:
    """End a turn, as completed unless told otherwise."""
    defaults: dict[str, Any] = {"status": "completed", "fate": turns.Fate.DONE}
    ending = turns.Ending(**(defaults | fields))
    return turns.end(turn, ending, now=now, jitter=lambda low, high: 1.0)


def context_in(session: AgentSession, now: datetime) -> ToolContext:
    """Return the context of the session's live turn, begun here if there is none."""
    live = Turn.objects.filter(session=session, status="running").first()
    return turns.context_of(live or live_turn(session, now).turn)


def arm(
    session: AgentSession, now: datetime, kind: str = "webhook", *, context: ToolContext | None = None, **fields: Any
) -> services.Armed:
    """Arm a trigger from within the session's live turn, begun here if there is none.

    `args` holds the kind's own fields, the rest are those of `services.Order`.
    """
    order: dict[str, Any] = {"args": {}, "wake_prompt": f"prompt {next(_numbers)}"} | fields
    return services.arm(context or context_in(session, now), services.Order(kind=kind, **order), now=now)


def armed_session(now: datetime, kind: str = "webhook", **fields: Any) -> Trigger:
    """Arm a trigger in a new session whose turn has then ended; return the trigger."""
    session = open_session(now)
    trigger = arm(session, now, kind, **fields).trigger
    end_turn(Turn.objects.get(pk=trigger.turn_id), now)
    return trigger


def history_of(session: AgentSession) -> list[Any]:
    """Return what a session's turns have kept of their message history, oldest first."""
    kept = Turn.objects.filter(session=session).exclude(history="").order_by("started_at", "pk")
    return [message for part in kept.values_list("history", flat=True) for message in decrypt(part)]


class StillKeeper:
    """A keeper without a thread: a test stops a turn through `watches`."""

    stopping = False

    def __init__(self) -> None:
        self.watches: dict[UUID, Watch] = {}

    @contextmanager
    def watch(self, turn: Turn) -> Iterator[Watch]:
        self.watches[turn.pk] = Watch(turn)
        yield self.watches[turn.pk]


def clock_at(instant: datetime) -> Callable[[], datetime]:
    """Return a clock that stands still."""
    return lambda: instant
