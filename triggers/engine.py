"""The engine: find what is due at an instant and record it; record what a forge or a webhook brought.

Every fire goes the same way, in one transaction: lock the session, lock the trigger, insert the
Fire (unique on trigger and occurrence), count it, advance the schedule or complete, post the Wake,
append the event. The doorbell rings after the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.db import DatabaseError, IntegrityError, OperationalError, transaction
from django.db.models import Q

from sessions import doorbell
from sessions.instants import iso
from sessions.models import AgentSession
from sessions.reads import Read
from sessions.transcript import lock
from triggers import ledger
from triggers.kinds.base import CatchUp, TimeKind
from triggers.ledger import Occurrence
from triggers.models import Trigger
from triggers.moves import change_status, count_failure
from triggers.recording import Plan, counted, expiry_reason, lateness, write
from triggers.registry import KINDS
from triggers.states import TriggerStatus

BATCH = 250  # triggers in one transaction
SLICE = 20  # the same where fewer than a batch are due: the first of them start while the others are recorded
LOOK_AGAIN = timedelta(seconds=60)  # after a trigger raised

log = logging.getLogger("rewake.engine")


@dataclass
class Tick:
    """What one tick did. `more` tells that another should follow it."""

    fired: int = 0
    skipped: int = 0
    expired: int = 0
    marked: int = 0
    more: bool = False

    def __add__(self, other: Tick) -> Tick:
        return Tick(
            fired=self.fired + other.fired,
            skipped=self.skipped + other.skipped,
            expired=self.expired + other.expired,
            marked=self.marked + other.marked,
            more=self.more or other.more,
        )


class Fired(StrEnum):
    """The answer to `fire`."""

    FIRED = "fired"
    KNOWN = "known"  # this occurrence was recorded before
    REFUSED = "refused"  # no such trigger, or it is not armed, or has expired


def tick(*, now: datetime, limit: int = BATCH, recorded: Callable[[], object] = lambda: None) -> Tick:
    """Record up to `limit` due fires and, once nothing is due, up to `limit` expiries.

    Several may tick at once: each takes what is free, and waits only for what others still hold when
    nothing is. A fire that is due is recorded before an expiry is. What cannot be recorded is marked
    with its error, counted, and looked at again later; the others go on. `recorded` is called after each
    transaction, but not where a full batch was due: others will follow it.
    """
    due = [row.pk for row in _DUE(now=now, limit=limit)]
    if len(due) == limit:
        taken, total = _record(partial(_take_batch, now, limit), now)
        return replace(total, more=bool(taken))
    total = Tick()
    while due:
        taken, done = _record(partial(_LOCK_OLDEST_FREE, now=now, limit=min(SLICE, len(due))), now)
        if not taken:
            break
        total += done
        gone = {trigger.pk for trigger in taken}
        due = [pk for pk in due if pk not in gone]
        recorded()
    for start in range(0, len(due), SLICE):
        total += _record(partial(_LOCK_DUE, now=now, ids=due[start : start + SLICE]), now)[1]
        recorded()
    return total + _expire(now, limit)


def fire(trigger_id: UUID, occurrence: Occurrence, *, now: datetime) -> Fired:
    """Record one occurrence of an armed trigger that is not fired by the clock."""
    [fired] = fire_all([(trigger_id, occurrence)], now=now)
    return fired


def fire_all(items: Sequence[tuple[UUID, Occurrence]], *, now: datetime) -> list[Fired]:
    """Record occurrences of armed triggers in one transaction, in the order given."""
    try:
        return _fire_all(items, now)
    except IntegrityError:  # another recorded one of them while we waited for the locks: it is seen now
        return _fire_all(items, now)


@transaction.atomic
def _fire_all(items: Sequence[tuple[UUID, Occurrence]], now: datetime) -> list[Fired]:
    ids, keys = {trigger_id for trigger_id, _ in items}, {occurrence.key for _, occurrence in items}
    armed = _LOCK_ARMED(ids=ids, keys=keys, now=now)
    ready = {trigger.pk: trigger for trigger in armed}
    doubtful = [item for item in items if item[0] not in ready or ready[item[0]].knows_some]
    known = ledger.recorded([(pk, occurrence.key) for pk, occurrence in doubtful]) if doubtful else set()
    plans: list[Plan] = []
    answers = [_plan_fire(item, ready, known=known, plans=plans, now=now) for item in items]
    write(plans, _sessions_of(armed), now)
    doorbell.ring_soon(plan.trigger.session_id for plan in plans)
    return answers


# Each of these locks triggers, and each one's session before it. Each trigger comes with its session's `last_seq`, and
# with `knows_some`: whether it may have recorded an occurrence that is looked for.
_LOCK_ARMED = Read(
    Trigger,
    "SELECT t.*, s.last_seq AS last_seq, EXISTS ("
    "  SELECT 1 FROM rewake_fire f WHERE f.trigger_id = t.id AND f.occurrence IN ({keys})"
    ") AS knows_some FROM rewake_trigger t JOIN rewake_session s ON s.id = t.session_id "
    "WHERE t.id IN ({ids}) AND t.status = 'armed' AND t.expires_at > {now} ORDER BY t.session_id, t.id {lock:s, t}",
)
_DUE_AND_SESSION = (
    "SELECT t.*, s.last_seq AS last_seq, EXISTS ("
    "  SELECT 1 FROM rewake_fire f WHERE f.trigger_id = t.id"
    ") AS knows_some FROM rewake_trigger t JOIN rewake_session s ON s.id = t.session_id "
    "WHERE t.status = 'armed' AND t.next_fire_at <= {now} "
)
_LOCK_DUE = Read(Trigger, _DUE_AND_SESSION + "AND t.id IN ({ids}) ORDER BY t.session_id, t.id {lock:s, t}")
_FREE = "LIMIT {limit} {lock:s, t SKIP LOCKED}"
_LOCK_OLDEST_FREE = Read(Trigger, f"{_DUE_AND_SESSION} ORDER BY t.next_fire_at {_FREE}")
_LOCK_NEWEST_FREE = Read(
    Trigger, f"{_DUE_AND_SESSION} AND t.id NOT IN ({{others}}) ORDER BY t.next_fire_at DESC {_FREE}"
)
_DUE = Read(
    Trigger,
    "SELECT t.id FROM rewake_trigger t WHERE t.status = 'armed' AND t.next_fire_at <= {now} "
    "ORDER BY t.next_fire_at LIMIT {limit}",
)


def _sessions_of(locked: Iterable[Any]) -> dict[UUID, AgentSession]:
    """Return the sessions of triggers that were locked with them, as far as the transcript needs them."""
    return {row.session_id: AgentSession(pk=row.session_id, last_seq=row.last_seq) for row in locked}


def _plan_fire(
    item: tuple[UUID, Occurrence],
    ready: dict[UUID, Trigger],
    *,
    known: set[tuple[UUID, str]],
    plans: list[Plan],
    now: datetime,
) -> Fired:
    trigger_id, occurrence = item
    if (trigger_id, occurrence.key) in known:
        return Fired.KNOWN
    if trigger_id not in ready:
        return Fired.REFUSED
    trigger = ready[trigger_id]
    reason = lateness(trigger, occurrence.due_at, now)
    plan = counted(Plan(trigger, trigger.next_fire_at, occurrence, reason))
    plans.append(plan)
    known.add((trigger_id, occurrence.key))
    if plan.last:
        del ready[trigger_id]
    return Fired.FIRED


def _take_batch(now: datetime, limit: int) -> list[Trigger]:
    """Lock up to `limit` due triggers that are free: half of them the newest, the others the oldest.

    So what has just come due need not wait until a burst before it is recorded, nor the burst for
    what keeps coming.
    """
    oldest = _LOCK_OLDEST_FREE(now=now, limit=limit - limit // 2)
    if not oldest:
        return []
    return oldest + _LOCK_NEWEST_FREE(now=now, limit=limit // 2, others=[trigger.pk for trigger in oldest])


def _record(take: Callable[[], list[Trigger]], now: datetime) -> tuple[list[Trigger], Tick]:
    """Record what `take` locks, and return what that was; if the database refuses it, record one by one."""
    taken: list[Trigger] = []
    try:
        with transaction.atomic():
            taken = take()
            return taken, _record_taken(taken, now)
    except OperationalError:
        raise  # the database itself is in trouble: the next tick tries again
    except DatabaseError as error:
        if not taken:
            raise
        if len(taken) == 1:
            return taken, _mark_refused(taken[0], error, now)
    total = Tick()
    for trigger in taken:
        total += _record(partial(_LOCK_DUE, now=now, ids=[trigger.pk]), now)[1]
    return taken, total


def _record_taken(taken: Sequence[Trigger], now: datetime) -> Tick:
    plans, broken = [], []
    for trigger in sorted(taken, key=attrgetter("next_fire_at", "pk")):
        try:
            plans.append(_plan(trigger, now))
        except Exception as error:  # one bad row stops nothing else
            broken.append((trigger, error))
    plans = [counted(plan) for plan in _without_known(plans)]
    write(plans, _sessions_of(taken), now)
    doorbell.ring(plan.trigger.session_id for plan in plans if plan.occurrence)
    for trigger, fault in broken:
        _mark(trigger, fault, now)
    return Tick(
        fired=sum(plan.occurrence is not None for plan in plans),
        skipped=sum(plan.skip is not None for plan in plans),
        expired=sum(plan.expires for plan in plans),
        marked=len(broken),
    )


def _plan(trigger: Trigger, now: datetime) -> Plan:
    """Say what is to be done about a trigger that is due. Raises whatever a broken row makes its kind raise."""
    kind = KINDS.get(trigger.kind)
    if not isinstance(kind, TimeKind):
        raise TypeError(f"{trigger.kind} is not fired by the clock, but has a next_fire_at")
    args = kind.read(trigger.args)
    assert trigger.next_fire_at
    due = trigger.next_fire_at
    if due > trigger.expires_at:
        return Plan(trigger, expires=True)
    look = kind.catch_up(args, due=due, now=now, until=trigger.expires_at)
    upcoming = kind.next_due(args, after=now)
    reason = lateness(trigger, due, now)
    skip = (
        (kind.occurrence(args, due), due, _missed(look) + (f": {reason}" if reason else ""))
        if look.missed and look.skipped
        else None
    )
    if look.fire is None:
        return Plan(trigger, upcoming, skip=skip)
    occurrence = Occurrence(kind.occurrence(args, look.fire), look.fire, note="" if skip else _missed(look))
    return Plan(trigger, upcoming, occurrence, lateness(trigger, look.fire, now), skip, look.missed, look.since)


def _without_known(plans: Sequence[Plan]) -> list[Plan]:
    """Take out the occurrences that were recorded before: a clock that went back must not fire them again."""
    fired_before = [plan for plan in plans if plan.trigger.knows_some]  # type: ignore[attr-defined]
    keys = {plan.trigger.pk: plan.occurrence.key for plan in fired_before if plan.occurrence}
    known = ledger.recorded(keys.items())
    return [
        replace(plan, occurrence=None) if (plan.trigger.pk, keys.get(plan.trigger.pk)) in known else plan
        for plan in plans
    ]


def _missed(look: CatchUp) -> str:
    if not look.missed or look.since is None:
        return ""
    slots = "1 slot" if look.missed == 1 else f"{look.missed} slots"
    return f"{slots} missed since {iso(look.since)}"


def _mark(trigger: Trigger, error: Exception, now: datetime) -> None:
    text = f"it cannot be fired: {type(error).__name__}: {error}"
    about = {"trigger_id": trigger.pk, "session_id": trigger.session_id}
    log.error("bad_trigger", extra={"action": "bad_trigger", "error": text, **about})
    count_failure([trigger.pk], text, by="clock", now=now, next_look=now + LOOK_AGAIN)


@transaction.atomic
def _mark_refused(one: Trigger, error: DatabaseError, now: datetime) -> Tick:
    lock([one.session_id])
    trigger = Trigger.objects.get(pk=one.pk)
    _mark(trigger, error, now)
    return Tick(marked=1)


def _expire(now: datetime, limit: int) -> Tick:
    rows = Trigger.objects.filter(status=TriggerStatus.ARMED, expires_at__lte=now)
    found = list(rows.order_by("expires_at").values_list("pk", "session_id")[:limit])
    if not found:
        return Tick()
    with transaction.atomic():
        lock({session_id for _, session_id in found})
        undue = Q(next_fire_at=None) | Q(next_fire_at__gt=now)
        expired = [
            trigger
            for trigger in rows.filter(undue, pk__in=[pk for pk, _ in found]).order_by("pk")
            if change_status(trigger, TriggerStatus.EXPIRED, by="clock", reason=expiry_reason(trigger), now=now)
        ]
    return Tick(expired=len(expired), more=len(found) == limit)
