"""Reads of triggers: for the doors, the console and the clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from sessions.reads import Read
from sessions.states import WakeStatus
from triggers.exceptions import NotFound
from triggers.models import Beat, Fire, Trigger
from triggers.registry import KINDS
from triggers.states import OUTCOMES, Outcome, TriggerStatus


@dataclass(frozen=True)
class TriggerView:
    """A trigger with what is derived for showing it."""

    trigger: Trigger
    describe: str


@dataclass(frozen=True)
class Receipt:
    """A fire with what became of it."""

    fire: Fire
    outcome: Outcome
    payload: str
    payload_bytes: int
    truncated: bool
    reason: str
    turn_id: UUID | None
    turn_started_at: datetime | None
    turn_ended_at: datetime | None
    attempts: int


def trigger(trigger_id: UUID) -> Trigger:
    """Return a trigger. Raises `NotFound`."""
    found = Trigger.objects.filter(pk=trigger_id).first()
    if found is None:
        raise NotFound(f"there is no trigger {trigger_id}")
    return found


def triggers(
    *, session_id: UUID | None = None, kind: str | None = None, status: str | None = None
) -> QuerySet[Trigger]:
    """Return triggers, newest first, of a session, a kind, a status."""
    wanted = {"session_id": session_id, "kind": kind, "status": status}
    return Trigger.objects.filter(**{name: value for name, value in wanted.items() if value}).order_by("-pk")


def in_sessions(rows: QuerySet[Trigger], text: str) -> QuerySet[Trigger]:
    """Return those of `rows` whose session has this id, or this text in its title or tag."""
    like = Q(session__title__icontains=text) | Q(session__tag__icontains=text)
    try:
        return rows.filter(like | Q(session_id=UUID(text)))
    except ValueError:
        return rows.filter(like)


def views(rows: Iterable[Trigger], *, now: datetime) -> list[TriggerView]:
    """Return triggers with what is derived for showing them."""
    return [TriggerView(row, describe(row, now=now)) for row in rows]


def fires(trigger_id: UUID) -> QuerySet[Fire]:
    """Return a trigger's fires, newest first, each with its wake and that wake's turn."""
    return Fire.objects.filter(trigger_id=trigger_id).select_related("wake__turn").order_by("-pk")


def receipt(fire: Fire) -> Receipt:
    """Return a fire that came from `fires` with what became of it."""
    wake = fire.wake
    if wake is None:
        outcome = Outcome.SKIPPED if fire.skipped else Outcome.WITHDRAWN
        return Receipt(fire, outcome, "", 0, False, fire.reason, None, None, None, 0)
    turn = wake.turn
    return Receipt(
        fire=fire,
        outcome=OUTCOMES[WakeStatus(wake.status)],
        payload=wake.payload,
        payload_bytes=wake.payload_bytes,
        truncated=wake.truncated,
        reason="; ".join(part for part in (fire.reason, wake.reason) if part),
        turn_id=turn.pk if turn else None,
        turn_started_at=turn.started_at if turn else None,
        turn_ended_at=turn.ended_at if turn else None,
        attempts=wake.deliveries,
    )


def describe(row: Trigger, *, now: datetime) -> str:
    """Return a trigger's one line for people; a row that cannot be read says why instead."""
    try:
        kind = KINDS.get(row.kind)
        line = kind.describe(kind.read(row.args), now=now)
        return line if row.status == TriggerStatus.ARMED else line.partition("; next ")[0]
    except (LookupError, ValueError) as error:
        return f"cannot be read: {error}"


def armed_counts(session_ids: Sequence[UUID]) -> dict[UUID, Any]:
    """Return how many armed triggers each of the sessions has, those without any left out."""
    armed = Trigger.objects.filter(session_id__in=session_ids, status=TriggerStatus.ARMED)
    counted = armed.values("session_id").annotate(count=Count("pk"))
    return {row["session_id"]: row["count"] for row in counted}


def last_beat() -> datetime | None:
    """Return when the beat was last seen alive."""
    return Beat.objects.order_by("-at").values_list("at", flat=True).first()


_NEXT_DUE = Read(
    Trigger,
    "SELECT t.id, t.next_fire_at FROM rewake_trigger t WHERE t.status = 'armed' AND t.next_fire_at > {after} "
    "ORDER BY t.next_fire_at LIMIT 1",
)
_NEXT_EXPIRY = Read(
    Trigger,
    "SELECT t.id, t.expires_at FROM rewake_trigger t WHERE t.status = 'armed' AND t.expires_at > {after} "
    "ORDER BY t.expires_at LIMIT 1",
)
_EVER = datetime(1, 1, 1, tzinfo=UTC)  # before any instant


def next_instant(*, after: datetime | None = None) -> datetime | None:
    """Return the next instant at which the clock has something to do, strictly after `after` if given."""
    dues = [row.next_fire_at for row in _NEXT_DUE(after=after or _EVER)]
    expiries = [row.expires_at for row in _NEXT_EXPIRY(after=after or _EVER)]
    return min(dues + expiries, default=None)
