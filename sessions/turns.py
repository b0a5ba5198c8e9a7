"""The only writer of Turn: begin, renew, end, rescue.

A session has at most one live turn: the database has a constraint for it, and everything here
works under the session's lock. A turn lives on a lease that its worker renews; a turn whose lease
has run out is lost, and its wakes run again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from hmac import compare_digest
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Count, F, Min

from sessions import doorbell, inbox
from sessions.instants import iso
from sessions.models import AgentSession, Turn, Wake
from sessions.runtime.prompt import compose
from sessions.secrecy import TURN, digest, encrypt, mint
from sessions.states import TURNS, EventType, TurnStatus, WakeSource
from sessions.text import cut
from sessions.tools import ToolContext
from sessions.transcript import Entry, append, lock

RETRY_AFTER = (5, 30, 120, 600, 1800, 7200)  # seconds after a transport fault; the last one repeats
RETRY_AFTER_CAP = 86_400  # seconds: no provider may ask for more
JITTER = 0.2
HOUR = timedelta(hours=1)
STALLED = "its worker stopped renewing the lease: killed, cut off or stalled"
STOPPED = "the process that ran it was stopped or killed"


class Fate(StrEnum):
    """What becomes of the wakes that a turn took."""

    DONE = "done"
    BACK = "back"  # to be tried again after a pause
    RETURNED = "returned"  # to be tried again at once: the turn was stopped, not failed
    LOST = "lost"
    QUARANTINED = "quarantined"


@dataclass(frozen=True)
class Begun:
    """A turn that has just begun, with all that its runner needs."""

    turn: Turn
    session: AgentSession
    prompt: str
    token: str

    @property
    def context(self) -> ToolContext:
        return context_of(self.turn)


@dataclass(frozen=True)
class Ending:
    """How a turn ended. `history` and `state` are kept only if the turn reached them."""

    status: TurnStatus
    fate: Fate
    reason: str = ""
    text: str = ""
    history: list[Any] = field(default_factory=list)
    state: dict[str, Any] | None = None
    usage: dict[str, int] = field(default_factory=dict)
    retry_after: float | None = None  # seconds, the provider's wish


@transaction.atomic
def begin(session_ids: Iterable[UUID], *, worker: str, now: datetime) -> list[Begun]:
    """Begin a turn in each session that has something to run, in one transaction.

    1. Lock the sessions; pass over those terminated or with a live turn.
    2. Choose each one's share of its pending wakes (`inbox.next_share`); hold back what may not run yet.
    3. Create the turns, hand them their wakes, write the transcript.

    Sessions with nothing to run are absent from the answer: they were rung for in vain, or somebody
    else came first.
    """
    sessions = {pk: session for pk, session in lock(session_ids).items() if not session.terminated_at}
    for busy in Turn.objects.filter(session_id__in=sessions, status=TurnStatus.RUNNING).values_list(
        "session_id", flat=True
    ):
        del sessions[busy]
    shares = _shares(sessions, now)
    begun = [_new(sessions[session_id], share, worker, now) for session_id, share in shares.items()]
    Turn.objects.bulk_create([item.turn for item in begun])
    inbox.take(shares)
    append([entry for item in begun for entry in _opening(item, shares[item.session.pk])], now=now)
    if rung_for := [item.session.pk for item in begun if item.session.rings]:
        AgentSession.objects.filter(pk__in=rung_for).update(rings=0, rung_at=None)
    return begun


@transaction.atomic
def steer(turn_id: UUID, *, now: datetime) -> str:
    """Take into a live turn the pending wakes that may join it; return their prompt, empty if none."""
    turn = Turn.objects.get(pk=turn_id)
    lock([turn.session_id])
    turn = Turn.objects.get(pk=turn_id)
    if turn.status != TurnStatus.RUNNING:
        return ""
    share = inbox.next_share(inbox.pending([turn.session_id])[turn.session_id])
    if not share or not inbox.may_join(share):
        return ""
    inbox.take({turn.session_id: share})
    prompt = compose([inbox.part_of(wake) for wake in share], now=now)
    append([_said(turn, prompt, share, steered=True)], now=now)
    return prompt


@transaction.atomic
def record(turn_id: UUID, type_: EventType, payload: dict[str, Any], *, now: datetime) -> bool:
    """Append an event of a live turn to the transcript; return false, writing nothing, if it is over."""
    session_id = Turn.objects.values_list("session_id", flat=True).get(pk=turn_id)
    lock([session_id])
    if not is_live(turn_id):
        return False
    append([Entry(session_id, type_, {"turn_id": str(turn_id), **payload})], now=now)
    return True


def is_live(turn_id: UUID) -> bool:
    """Return whether the turn still runs. Certain only under its session's lock."""
    return Turn.objects.filter(pk=turn_id, status=TurnStatus.RUNNING).exists()


def renew(turn_ids: Collection[UUID], *, now: datetime) -> dict[UUID, str]:
    """Renew the leases of turns; return, for each that is still live, why it should stop, or ""."""
    lease = now + timedelta(seconds=settings.AGENT_TURN_LEASE_SECONDS)
    live = Turn.objects.filter(pk__in=turn_ids, status=TurnStatus.RUNNING)
    live.update(lease_expires_at=lease)
    return stop_requests(turn_ids, now=now)


def stop_requests(turn_ids: Collection[UUID], *, now: datetime) -> dict[UUID, str]:
    """Return, for each of the turns that is still live, why it should stop, or ""."""
    live = Turn.objects.filter(pk__in=turn_ids, status=TurnStatus.RUNNING)
    return {turn.pk: _stop_reason(turn, now) for turn in live.only("interrupt_reason", "deadline", "started_at")}


def request_interrupt(session: AgentSession, reason: str, *, now: datetime) -> bool:
    """Ask the session's live turn to stop; return whether there is one."""
    live = Turn.objects.filter(session=session, status=TurnStatus.RUNNING)
    return bool(live.update(interrupt_requested_at=now, interrupt_reason=cut(reason, 200)))


@transaction.atomic
def end(
    turn_id: UUID, ending: Ending, *, now: datetime, jitter: Callable[[float, float], float] = random.uniform
) -> bool:
    """End a live turn, settle its wakes and close its part of the transcript, in one transaction.

    Returns false, and writes nothing, if the turn is no longer live: it was lost, or its session
    terminated, while its worker still ran.
    """
    [session] = lock(Turn.objects.filter(pk=turn_id).values("session_id")).values()
    turn = Turn(pk=turn_id, session=session)  # nothing more of it is read below
    moved = TURNS.move(
        Turn.objects.filter(pk=turn_id),
        ending.status,
        ended_at=now,
        reason=cut(ending.reason, 2000),
        usage=ending.usage,
        history=encrypt(ending.history) if ending.history else "",
    )
    if not moved:
        return False
    _settle_wakes(turn, ending, _next_try(session, ending, now, jitter), now)
    append([_closing(turn, ending)], now=now)
    _update_session(session, ending)
    if ending.fate != Fate.BACK and inbox.has_pending(session.pk):
        doorbell.ring([session.pk])
    return True


def rescue(*, now: datetime, whatever_lease: bool = False) -> int:
    """Declare lost every live turn whose lease has run out, or just every one; return how many were."""
    live = Turn.objects.filter(status=TurnStatus.RUNNING) if whatever_lease else expired_leases(now=now)
    reason = STOPPED if whatever_lease else STALLED
    return sum(_rescue(turn, reason, now) for turn in list(live.only("session_id", "lease_expires_at")))


def expired_leases(*, now: datetime) -> Any:
    """Return the live turns whose lease has run out."""
    return Turn.objects.filter(status=TurnStatus.RUNNING, lease_expires_at__lt=now)


def context_of(turn: Turn) -> ToolContext:
    """Return who calls a tool from within this turn."""
    return ToolContext(session_id=turn.session_id, turn_id=turn.pk, triggered=turn.triggered, depth=turn.depth)


def of_token(turn_id: UUID, token: str) -> Turn | None:
    """Return the live turn that this token was minted for, or None."""
    turn = Turn.objects.filter(pk=turn_id, status=TurnStatus.RUNNING).first()
    expected = turn.token_hash if turn else digest(TURN)
    return turn if compare_digest(expected, digest(token)) else None


def live_by_token(token: str) -> Turn | None:
    """Return the live turn that this token was minted for, whichever it is, or None.

    The index of live turns is enough for it: there are as many as there are workers.
    """
    return Turn.objects.filter(token_hash=digest(token), status=TurnStatus.RUNNING).first()


def _shares(sessions: dict[UUID, AgentSession], now: datetime) -> dict[UUID, list[Wake]]:
    pending = inbox.pending(list(sessions))
    recent = _recent_triggered_turns([pk for pk, wakes in pending.items() if wakes], now)
    shares = {}
    for session_id, wakes in pending.items():
        allowed = _allowed(sessions[session_id], wakes, recent.get(session_id), now)
        if share := inbox.next_share(allowed):
            shares[session_id] = share
    return shares


def _allowed(
    session: AgentSession, wakes: list[Wake], recent: tuple[int, datetime] | None, now: datetime
) -> list[Wake]:
    """Leave out what must wait: all but a person's messages, while the session is held or over its hourly limit."""
    persons = [wake for wake in wakes if wake.source == WakeSource.PERSON]
    if session.held_until and session.held_until > now:
        return persons
    limit = settings.AGENT_MAX_TRIGGERED_TURNS_PER_HOUR
    if persons and persons[0] in inbox.next_share(wakes):
        return wakes
    if wakes and recent and recent[0] >= limit:
        reason = f"the session has had {recent[0]} triggered turns within an hour, its limit is {limit}"
        _hold(wakes, recent[1] + HOUR, reason, now)
        return persons
    return wakes


def _recent_triggered_turns(session_ids: Sequence[UUID], now: datetime) -> dict[UUID, tuple[int, datetime]]:
    recent = Turn.objects.filter(session_id__in=session_ids, triggered=True, started_at__gt=now - HOUR)
    counted = recent.values("session_id").annotate(count=Count("pk"), first=Min("started_at"))
    return {row["session_id"]: (row["count"], row["first"]) for row in counted}


def _hold(wakes: Sequence[Wake], until: datetime, reason: str, now: datetime) -> None:
    session_id = wakes[0].session_id
    AgentSession.objects.filter(pk=session_id).update(held_until=until, hold_reason=cut(reason, 500))
    waiting = [str(wake.pk) for wake in wakes if wake.source != WakeSource.PERSON]
    payload = {"wakes": waiting, "reason": reason, "next_attempt_at": iso(until)}
    append([Entry(session_id, EventType.WAKE_REQUEUED, payload)], now=now)


def _new(session: AgentSession, share: Sequence[Wake], worker: str, now: datetime) -> Begun:
    persons = any(wake.source == WakeSource.PERSON for wake in share)
    token = mint(TURN)
    turn = Turn(
        session=session,
        worker=cut(worker, 200),
        triggered=not persons,
        depth=0 if persons else max(wake.depth for wake in share),
        started_at=now,
        lease_expires_at=now + timedelta(seconds=settings.AGENT_TURN_LEASE_SECONDS),
        deadline=now + timedelta(seconds=settings.AGENT_TURN_TIMEOUT_SECONDS),
        token_hash=digest(token),
    )
    parts = [inbox.part_of(wake) for wake in share]
    return Begun(turn=turn, session=session, prompt=compose(parts, now=now), token=token)


def _opening(begun: Begun, share: Sequence[Wake]) -> list[Entry]:
    turn = begun.turn
    redelivered = [str(wake.pk) for wake in share if wake.deliveries > 1]
    payload: dict[str, Any] = {
        "turn_id": str(turn.pk),
        "wakes": [str(wake.pk) for wake in share],
        "triggered": turn.triggered,
        "depth": turn.depth,
        "redelivered": redelivered,
    }
    started = Entry(turn.session_id, EventType.TURN_STARTED, payload)
    return [started, _said(turn, begun.prompt, share)]


def _said(turn: Turn, prompt: str, share: Sequence[Wake], *, steered: bool = False) -> Entry:
    wakes = [{"wake_id": str(wake.pk), "source": wake.source, "text": wake.text} for wake in share]
    payload = {"turn_id": str(turn.pk), "text": prompt, "wakes": wakes, "steered": steered}
    return Entry(turn.session_id, EventType.USER, payload)


def _stop_reason(turn: Turn, now: datetime) -> str:
    if turn.interrupt_reason:
        return turn.interrupt_reason
    if now >= turn.deadline:
        return f"timeout: the turn ran for {round((turn.deadline - turn.started_at).total_seconds())} s, its limit"
    return ""


def _settle_wakes(turn: Turn, ending: Ending, next_try: datetime, now: datetime) -> None:
    if ending.fate == Fate.DONE:
        inbox.settle(turn, now=now)
    elif ending.fate == Fate.QUARANTINED:
        inbox.quarantine_taken(turn, ending.reason, now=now)
    elif ending.fate == Fate.LOST:
        inbox.lose(turn, ending.reason, max_losses=settings.AGENT_WAKE_MAX_ATTEMPTS, now=now)
    elif ending.fate == Fate.RETURNED:
        inbox.give_back(turn, ending.reason, now=now)
    else:
        _back_off(turn, ending, next_try, now)


def _back_off(turn: Turn, ending: Ending, next_try: datetime, now: datetime) -> None:
    """Hold the whole session, not just these wakes: others would only meet the same fault again."""
    held = {"held_until": next_try, "hold_reason": cut(ending.reason, 500)}
    AgentSession.objects.filter(pk=turn.session_id).update(failures=F("failures") + 1, **held)
    inbox.give_back(turn, f"{ending.reason}; next try at {iso(next_try.replace(microsecond=0))}", now=now)


def _next_try(
    session: AgentSession, ending: Ending, now: datetime, jitter: Callable[[float, float], float]
) -> datetime:
    if ending.retry_after is not None:
        return now + timedelta(seconds=min(max(ending.retry_after, 1.0), RETRY_AFTER_CAP))
    usual = RETRY_AFTER[min(session.failures, len(RETRY_AFTER) - 1)]
    return now + timedelta(seconds=usual * jitter(1 - JITTER, 1 + JITTER))


def _closing(turn: Turn, ending: Ending) -> Entry:
    payload: dict[str, Any] = {"turn_id": str(turn.pk), "status": ending.status, "usage": ending.usage}
    if ending.reason:
        payload["reason"] = ending.reason
    return Entry(turn.session_id, EventType.TURN_ENDED, payload)


def _update_session(session: AgentSession, ending: Ending) -> None:
    fields: dict[str, Any] = {}
    if ending.state is not None and (ending.state or session.state):
        fields["state"] = encrypt(ending.state) if ending.state else ""
    if ending.status == TurnStatus.COMPLETED and (session.failures or session.held_until):
        fields |= {"failures": 0, "held_until": None, "hold_reason": ""}
    if fields:
        AgentSession.objects.filter(pk=session.pk).update(**fields)


@transaction.atomic
def _rescue(turn: Turn, reason: str, now: datetime) -> bool:
    lock([turn.session_id])
    if not Turn.objects.filter(pk=turn.pk, lease_expires_at=turn.lease_expires_at).exists():
        return False  # it was renewed after all
    return end(turn.pk, Ending(TurnStatus.LOST, Fate.LOST, reason), now=now)
