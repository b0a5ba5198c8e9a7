"""The only writer of Wake: what waits to re-engage a session, and what became of it.

Every function here is called inside a transaction that holds the session's lock
(`transcript.lock`); that lock, not luck, is what keeps two takers apart.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from sessions.exceptions import Conflict
from sessions.models import AgentSession, Turn, Wake
from sessions.reads import Read
from sessions.runtime.prompt import WakePart
from sessions.script import Script
from sessions.signals import wake_settled
from sessions.states import WAKES, Action, EventType, TurnStatus, WakeSource, WakeStatus
from sessions.text import cut, storable
from sessions.transcript import Entry, append

MAX_PER_TURN = 20  # wakes in one turn; the rest run in the next
MAX_CHARS_PER_TURN = 200_000  # of text and payload together, beyond the first wake: less than a prompt holds
RING_AGAIN = (1, 2, 4, 8, 16, 32, 60)  # seconds between rings for a wake that nobody takes


@dataclass(frozen=True)
class NewWake:
    """A wake to post. `payload` is text from outside, shown to the agent only inside a fence."""

    session_id: UUID
    source: WakeSource
    text: str
    action: Action = Action.MESSAGE
    heading: dict[str, Any] = field(default_factory=dict)
    payload: str = ""
    payload_source: str = ""
    content_type: str = ""
    payload_bytes: int = 0
    truncated: bool = False
    depth: int = 0
    idempotency_key: str | None = None


def post(wakes: Sequence[NewWake], *, now: datetime, script: Script | None = None) -> list[Wake]:
    """Add wakes to their sessions' inboxes, as pending, in the order given: at once, or as part of a script."""
    rows = [_row(wake, now) for wake in wakes]
    if script is None:
        return Wake.objects.bulk_create(rows)
    script.insert(rows)
    return rows


_PENDING = Read(
    Wake,
    "SELECT w.* FROM rewake_wake w WHERE w.session_id IN ({ids}) AND w.status = 'pending' ORDER BY w.created_at, w.id",
)
_TAKEN = Read(
    Wake,
    "SELECT w.id, w.session_id, w.status, w.source FROM rewake_wake w "
    "WHERE w.turn_id IN ({turns}) AND w.status = 'taken' ORDER BY w.id",
)


def pending(session_ids: Collection[UUID]) -> dict[UUID, list[Wake]]:
    """Return each session's pending wakes, in the order in which they were posted."""
    waiting: dict[UUID, list[Wake]] = {session_id: [] for session_id in session_ids}
    for wake in _PENDING(ids=session_ids):
        waiting[wake.session_id].append(wake)
    return waiting


def next_share(wakes: Sequence[Wake]) -> list[Wake]:
    """Choose which of a session's pending wakes one turn takes.

    1. They run in order, as many as fit, in one turn whose prompt holds all of them.
    2. A wake with action `start` has a turn of its own.
    3. So has one whose turn was lost before: if it is what kills turns, only it is quarantined.
    """
    share: list[Wake] = []
    size = 0
    for wake in wakes[:MAX_PER_TURN]:
        size += len(wake.text) + len(wake.payload)
        alone = wake.action == Action.START or wake.losses > 0
        if share and (alone or size > MAX_CHARS_PER_TURN):
            break
        share.append(wake)
        if alone:
            break
    return share


def take(turn: Turn, share: Sequence[Wake], script: Script) -> None:
    """Hand a session's share of pending wakes to its live turn, as part of a script."""
    for deliveries in {wake.deliveries for wake in share}:
        alike = [wake for wake in share if wake.deliveries == deliveries]
        script.move(WAKES, alike, WakeStatus.TAKEN, turn_id=turn.pk, deliveries=deliveries + 1)


def settle(turns: Collection[Turn], script: Script, *, now: datetime) -> None:
    """Acknowledge what turns took: their wakes are done. It goes with the script, which is run."""
    _end(_TAKEN(turns=[turn.pk for turn in turns]), WakeStatus.DONE, "", now=now, script=script)


def give_back(turn: Turn, reason: str, *, now: datetime) -> list[Wake]:
    """Make a turn's wakes pending again, with the reason in the transcript."""
    wakes = list(_taken_by(turn))
    WAKES.move(_taken_by(turn), WakeStatus.PENDING, turn=None, reason=cut(reason, 2000))
    append([_notice(EventType.WAKE_REQUEUED, wake, reason) for wake in wakes], now=now)
    return wakes


def lose(turn: Turn, reason: str, *, max_losses: int, now: datetime) -> None:
    """Give a lost turn's wakes back, but quarantine each that has now been lost `max_losses` times."""
    worn_out = [wake.pk for wake in _taken_by(turn) if wake.losses + 1 >= max_losses]
    _taken_by(turn).update(losses=F("losses") + 1)
    why = f"{reason}; given up after {max_losses} lost turns"
    quarantine(_taken_by(turn).filter(pk__in=worn_out), why, now=now)
    give_back(turn, reason, now=now)


def quarantine(wakes: QuerySet[Wake], reason: str, *, now: datetime) -> None:
    """Set wakes aside as failed, for an operator to retry."""
    ended = _end(_endable(wakes, WakeStatus.QUARANTINED), WakeStatus.QUARANTINED, reason, now=now)
    append([_notice(EventType.WAKE_QUARANTINED, wake, reason) for wake in ended], now=now)


def quarantine_taken(turn: Turn, reason: str, *, now: datetime) -> None:
    """Quarantine all that a turn took."""
    quarantine(_taken_by(turn), reason, now=now)


def withdraw(wakes: QuerySet[Wake], reason: str, *, now: datetime) -> int:
    """End wakes that have not ended, since nobody should run them any more; return how many."""
    return len(_end(_endable(wakes, WakeStatus.WITHDRAWN), WakeStatus.WITHDRAWN, reason, now=now))


def retry(wake: Wake, *, now: datetime) -> None:
    """Make a quarantined wake pending again, its losses forgotten. Raises `Conflict` for any other."""
    rows = Wake.objects.filter(pk=wake.pk, status=WakeStatus.QUARANTINED)
    if not WAKES.move(rows, WakeStatus.PENDING, turn=None, losses=0, settled_at=None, reason="retried by an operator"):
        raise Conflict(f"only a quarantined wake can be retried; this one is {wake.status}")
    append([_notice(EventType.WAKE_REQUEUED, wake, "retried by an operator")], now=now)


def waiting(*, now: datetime) -> QuerySet[AgentSession]:
    """Return the sessions that could begin a turn now but for which nobody has come: ring for these.

    A wake's own ring is given a second; then `RING_AGAIN` tells how often the beat rings, so
    that a backlog behind busy workers does not flood the broker.
    """
    moment_ago = now - timedelta(seconds=RING_AGAIN[0])
    unheard = Wake.objects.filter(session=OuterRef("pk"), status=WakeStatus.PENDING, created_at__lte=moment_ago)
    live = Turn.objects.filter(session=OuterRef("pk"), status=TurnStatus.RUNNING)
    due = Q(rung_at=None)
    for rings, seconds in enumerate(RING_AGAIN):
        count = Q(rings__gte=rings) if seconds == RING_AGAIN[-1] else Q(rings=rings)
        due |= count & Q(rung_at__lte=now - timedelta(seconds=seconds))
    sessions = AgentSession.objects.filter(due, terminated_at=None)
    return sessions.filter(Q(held_until=None) | Q(held_until__lte=now), Exists(unheard), ~Exists(live))


def oldest_pending() -> datetime | None:
    """Return when the wake that has waited longest was posted."""
    waiting = Wake.objects.filter(status=WakeStatus.PENDING).order_by("created_at")
    return waiting.values_list("created_at", flat=True).first()


def outstanding() -> QuerySet[Wake]:
    """Return the wakes that wait, and those set aside that can be retried: none of a terminated session's can be."""
    return Wake.objects.filter(status__in=[WakeStatus.PENDING, WakeStatus.QUARANTINED], session__terminated_at=None)


def may_join(share: Sequence[Wake]) -> bool:
    """Return whether these wakes may be steered into a turn that already runs."""
    return all(wake.action == Action.MESSAGE and wake.losses == 0 for wake in share)


def part_of(wake: Wake) -> WakePart:
    """Return a wake that a turn has taken, or is about to, as its part of the turn's prompt."""
    return WakePart(
        wake_id=str(wake.pk),
        source=wake.source,
        text=wake.text,
        heading=wake.heading,
        payload=wake.payload,
        payload_source=wake.payload_source,
        content_type=wake.content_type,
        payload_bytes=wake.payload_bytes,
        truncated=wake.truncated,
        redelivery=wake.deliveries - (wake.status == WakeStatus.TAKEN),
    )


def _row(wake: NewWake, now: datetime) -> Wake:
    return Wake(
        session_id=wake.session_id,
        source=wake.source,
        action=wake.action,
        text=storable(wake.text),
        heading=storable(wake.heading),
        payload=storable(wake.payload),
        payload_source=cut(storable(wake.payload_source), 200),
        content_type=cut(storable(wake.content_type), 200),
        payload_bytes=wake.payload_bytes,
        truncated=wake.truncated,
        depth=wake.depth,
        idempotency_key=wake.idempotency_key,
        created_at=now,
    )


def _taken_by(turn: Turn) -> QuerySet[Wake]:
    return Wake.objects.filter(turn=turn, status=WakeStatus.TAKEN)


def _endable(rows: QuerySet[Wake], status: WakeStatus) -> list[Wake]:
    return list(rows.filter(status__in=WAKES.sources(status)).defer("payload"))


def _end(
    wakes: Sequence[Wake], status: WakeStatus, reason: str, *, now: datetime, script: Script | None = None
) -> Sequence[Wake]:
    script = script or Script()
    script.move(WAKES, wakes, status, settled_at=now, reason=cut(reason, 2000))
    script.run()
    if wakes:
        wake_settled.send(Wake, wakes=wakes, now=now)
    return wakes


def _notice(type_: EventType, wake: Wake, reason: str) -> Entry:
    payload = {"wake_id": str(wake.pk), "source": wake.source, "reason": reason, "deliveries": wake.deliveries}
    trigger_id = wake.heading.get("trigger_id")
    return Entry(wake.session_id, type_, payload | ({"trigger_id": trigger_id} if trigger_id else {}))
