"""The only writer of Turn: begin, renew, end, rescue.

A session has at most one live turn: the database has a constraint for it, and everything here
works under the session's lock. A turn lives on a lease that its worker renews; a turn whose lease
has run out is lost, and its wakes run again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hmac import compare_digest
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F

from sessions import doorbell, inbox
from sessions.instants import iso
from sessions.models import AgentSession, Turn, Wake
from sessions.reads import Read
from sessions.runtime.prompt import compose
from sessions.script import Script
from sessions.secrecy import TURN, decrypt, digest, encrypt, mint
from sessions.states import TURNS, EventType, TurnStatus, WakeSource
from sessions.text import cut
from sessions.tools import ToolContext
from sessions.transcript import Entry, append, lock, write

RETRY_AFTER = (5, 30, 120, 600, 1800, 7200)  # seconds after a transport fault; the last one repeats
RETRY_AFTER_CAP = 86_400  # seconds: no provider may ask for more
JITTER = 0.2
HOUR = timedelta(hours=1)
Jitter = Callable[[float, float], float]  # a random number between two, `random.uniform` but in tests
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
    wakes: Sequence[Wake]
    history: Sequence[str] = ()  # what each earlier turn of the session added, encrypted

    @property
    def messages(self) -> list[Any]:
        """The session's message history, oldest first. Raises `Unreadable`."""
        return [message for part in self.history for message in decrypt(part)]


@dataclass(frozen=True)
class Ending:
    """How a turn ended. `history` and `state` are kept only if the turn reached them."""

    status: TurnStatus
    fate: Fate
    reason: str = ""
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
    script = Script()
    shares = _shares(sessions, script, now)
    begun = [_new(sessions[session_id], share, worker, now) for session_id, share in shares.items()]
    script.insert([item.turn for item in begun])
    for item in begun:
        inbox.take(item.turn, item.wakes, script)
        if item.session.rings:
            item.session.rings, item.session.rung_at = 0, None
            script.update(item.session, "rings", "rung_at")
    write([entry for item in begun for entry in _opening(item)], sessions, script, now=now)
    script.run()
    return _with_histories(begun)


@transaction.atomic
def steer(turn: Turn, *, now: datetime) -> str:
    """Take into a live turn the pending wakes that may join it; return their prompt, empty if none."""
    sessions = lock([turn.session_id])
    if not is_live(turn.pk):
        return ""
    share = inbox.next_share(inbox.pending([turn.session_id])[turn.session_id])
    if not share or not inbox.may_join(share):
        return ""
    prompt = compose([inbox.part_of(wake) for wake in share], now=now)
    script = Script()
    inbox.take(turn, share, script)
    write([_said(turn, prompt, share, steered=True)], sessions, script, now=now)
    script.run()
    return prompt


@transaction.atomic
def record(turn: Turn, type_: EventType, payload: dict[str, Any], *, now: datetime) -> bool:
    """Append an event of a live turn to the transcript; return false, writing nothing, if it is over."""
    sessions = lock([turn.session_id])
    if not is_live(turn.pk):
        return False
    script = Script()
    write([Entry(turn.session_id, type_, {"turn_id": str(turn.pk), **payload})], sessions, script, now=now)
    script.run()
    return True


_LIVE = Read(
    Turn,
    "SELECT t.id, t.session_id, EXISTS ("
    "  SELECT 1 FROM rewake_wake w WHERE w.session_id = t.session_id AND w.status = 'pending'"
    ") AS more_waits FROM rewake_turn t WHERE t.id IN ({turns}) AND t.status = 'running'",
)


def is_live(turn_id: UUID) -> bool:
    """Return whether the turn still runs. Certain only under its session's lock."""
    return bool(_LIVE(turns=[turn_id]))


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


def end(turn: Turn, ending: Ending, *, now: datetime, jitter: Jitter = random.uniform) -> bool:
    """End a live turn, settle its wakes and close its part of the transcript, in one transaction.

    Returns false, and writes nothing, if the turn is no longer live: it was lost, or its session
    terminated, while its worker still ran.
    """
    [ended] = end_all([(turn, ending)], now=now, jitter=jitter)
    return ended


@transaction.atomic
def end_all(items: Sequence[tuple[Turn, Ending]], *, now: datetime, jitter: Jitter = random.uniform) -> list[bool]:
    """Do as `end` does for turns of several sessions, in one transaction of the same few statements."""
    sessions = lock(turn.session_id for turn, _ in items)
    live = {turn.pk: turn for turn in _LIVE(turns=[turn.pk for turn, _ in items])}
    ending = [(live[turn.pk], ending) for turn, ending in items if turn.pk in live]
    script = Script()
    for turn, how in ending:
        _close(turn, sessions[turn.session_id], how, script=script, now=now)
    inbox.settle([turn for turn, how in ending if how.fate == Fate.DONE], script, now=now)
    for turn, how in ending:
        if how.fate != Fate.DONE:
            _settle_otherwise(turn, how, _next_try(sessions[turn.session_id], how, now, jitter), now)
    append([_closing(turn, how) for turn, how in ending], now=now)
    doorbell.ring(turn.session_id for turn, how in ending if how.fate != Fate.BACK and _waits(turn, how))
    return [turn.pk in live for turn, _ in items]


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


_STANDING = Read(
    AgentSession,
    "SELECT s.id, EXISTS (SELECT 1 FROM rewake_turn t WHERE t.session_id = s.id AND t.status = 'running') AS busy, ("
    "  SELECT COUNT(*) FROM rewake_turn t WHERE t.session_id = s.id AND t.triggered AND t.started_at > {since}"
    ") AS recent FROM rewake_session s WHERE s.id IN ({ids})",
)
_HISTORIES = Read(
    Turn,
    "SELECT t.id, t.session_id, t.history FROM rewake_turn t "
    "WHERE t.session_id IN ({ids}) AND t.history <> '' ORDER BY t.started_at, t.id",
)


def _shares(sessions: dict[UUID, AgentSession], script: Script, now: datetime) -> dict[UUID, list[Wake]]:
    """Return what each of the sessions that can begin a turn would run. They are locked: what is read now is so."""
    idle = {row.pk: row.recent for row in _STANDING(ids=sessions, since=now - HOUR) if not row.busy}
    shares = {}
    for session_id, wakes in inbox.pending(idle).items():
        allowed = _allowed(sessions[session_id], wakes, idle[session_id], script=script, now=now)
        if share := inbox.next_share(allowed):
            shares[session_id] = share
    return shares


def _allowed(session: AgentSession, wakes: list[Wake], recent: int, *, script: Script, now: datetime) -> list[Wake]:
    """Leave out what must wait: all but a person's messages, while the session is held or over its hourly limit.

    `recent`: how many triggered turns it has had within an hour.
    """
    persons = [wake for wake in wakes if wake.source == WakeSource.PERSON]
    if session.held_until and session.held_until > now:
        return persons
    limit = settings.AGENT_MAX_TRIGGERED_TURNS_PER_HOUR
    if persons and persons[0] in inbox.next_share(wakes):
        return wakes
    if wakes and recent >= limit:
        reason = f"the session has had {recent} triggered turns within an hour, its limit is {limit}"
        _hold(session, wakes, reason, script=script, now=now)
        return persons
    return wakes


def _hold(session: AgentSession, wakes: Sequence[Wake], reason: str, *, script: Script, now: datetime) -> None:
    """Hold a session until its first triggered turn of the last hour is an hour old."""
    recent = Turn.objects.filter(session=session, triggered=True, started_at__gt=now - HOUR)
    until = recent.order_by("started_at").values_list("started_at", flat=True)[0] + HOUR
    session.held_until, session.hold_reason = until, cut(reason, 500)
    script.update(session, "held_until", "hold_reason")
    waiting = [str(wake.pk) for wake in wakes if wake.source != WakeSource.PERSON]
    payload = {"wakes": waiting, "reason": reason, "next_attempt_at": iso(until)}
    write([Entry(session.pk, EventType.WAKE_REQUEUED, payload)], {session.pk: session}, script, now=now)


def _with_histories(begun: Sequence[Begun]) -> list[Begun]:
    """Read the histories of all at once: one statement, and no turn needs a connection of its own for it."""
    histories: dict[UUID, list[str]] = {item.session.pk: [] for item in begun}
    for row in _HISTORIES(ids=histories) if begun else ():
        histories[row.session_id].append(row.history)
    return [replace(item, history=histories[item.session.pk]) for item in begun]


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
    return Begun(turn=turn, session=session, prompt=compose(parts, now=now), token=token, wakes=share)


def _opening(begun: Begun) -> list[Entry]:
    turn, share = begun.turn, begun.wakes
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


def _close(turn: Turn, session: AgentSession, ending: Ending, *, script: Script, now: datetime) -> None:
    """Write how a live turn ended, and what that leaves in its session."""
    history = encrypt(ending.history) if ending.history else ""
    told = {"reason": cut(ending.reason, 2000), "usage": ending.usage, "history": history}
    script.move(TURNS, [turn], ending.status, ended_at=now, **told)
    if ending.state is not None and (ending.state or session.state):
        session.state = encrypt(ending.state) if ending.state else ""
        script.update(session, "state")
    if ending.status == TurnStatus.COMPLETED and (session.failures or session.held_until):
        session.failures, session.held_until, session.hold_reason = 0, None, ""
        script.update(session, "failures", "held_until", "hold_reason")


def _waits(turn: Any, ending: Ending) -> bool:
    """Return whether something in the inbox can be run now: what waited, or what this turn has just given back."""
    return bool(turn.more_waits) or ending.fate in (Fate.RETURNED, Fate.LOST)


def _settle_otherwise(turn: Turn, ending: Ending, next_try: datetime, now: datetime) -> None:
    """Settle the wakes of a turn that did not do them."""
    if ending.fate == Fate.QUARANTINED:
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


def _next_try(session: AgentSession, ending: Ending, now: datetime, jitter: Jitter) -> datetime:
    if ending.retry_after is not None:
        return now + timedelta(seconds=min(max(ending.retry_after, 1.0), RETRY_AFTER_CAP))
    usual = RETRY_AFTER[min(session.failures, len(RETRY_AFTER) - 1)]
    return now + timedelta(seconds=usual * jitter(1 - JITTER, 1 + JITTER))


def _closing(turn: Turn, ending: Ending) -> Entry:
    payload: dict[str, Any] = {"turn_id": str(turn.pk), "status": ending.status, "usage": ending.usage}
    if ending.reason:
        payload["reason"] = ending.reason
    return Entry(turn.session_id, EventType.TURN_ENDED, payload)


@transaction.atomic
def _rescue(turn: Turn, reason: str, now: datetime) -> bool:
    lock([turn.session_id])
    if not Turn.objects.filter(pk=turn.pk, lease_expires_at=turn.lease_expires_at).exists():
        return False  # it was renewed after all
    return end(turn, Ending(TurnStatus.LOST, Fate.LOST, reason), now=now)
