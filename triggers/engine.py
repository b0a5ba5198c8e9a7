"""The engine: find what is due at an instant and record it; record what a forge or a webhook brought.

Every fire goes the same way, in one transaction: lock the session, lock the trigger, insert the
Fire (unique on trigger and occurrence), count it, advance the schedule or complete, post the Wake,
append the event. The doorbell rings after the commit.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, IntegrityError, OperationalError, connection, transaction
from django.db.models import F, Q, QuerySet

from sessions import doorbell, inbox, transcript
from sessions.instants import iso
from sessions.models import AgentSession
from sessions.script import Script, stored
from sessions.states import Action, EventType, WakeSource
from sessions.text import cut
from sessions.transcript import Entry, append, lock
from triggers import ledger
from triggers.kinds.base import CatchUp, TimeKind
from triggers.ledger import Occurrence
from triggers.models import Fire, Trigger
from triggers.registry import KINDS
from triggers.states import TRIGGERS, TriggerStatus

BATCH = 500  # triggers in one transaction
LOOK_AGAIN = timedelta(seconds=60)  # after a trigger raised
WORTH_A_REASON = timedelta(seconds=2)  # later than this, a fire says why

log = logging.getLogger("rewake.engine")


@dataclass
class Tick:
    """What one tick did. `more` tells that it should be followed by another, `full` that this was a full batch."""

    fired: int = 0
    skipped: int = 0
    expired: int = 0
    marked: int = 0
    more: bool = False
    full: bool = False


class Fired(StrEnum):
    """The answer to `fire`."""

    FIRED = "fired"
    KNOWN = "known"  # this occurrence was recorded before
    REFUSED = "refused"  # no such trigger, or it is not armed, or has expired


@dataclass(frozen=True)
class _Plan:
    """What is to be done about one trigger: computed first, written with all others."""

    trigger: Trigger
    next_fire_at: datetime | None = None
    occurrence: Occurrence | None = None
    reason: str = ""
    skip: tuple[str, datetime, str] | None = None  # occurrence, due, reason
    missed: int = 0
    expires: bool = False
    number: int = 0  # which of the trigger's fires it is
    last: bool = False  # nothing can follow it


def tick(*, now: datetime, limit: int = BATCH) -> Tick:
    """Record up to `limit` due fires and, once nothing is due, up to `limit` expiries.

    A fire that is due is recorded before an expiry is. What cannot be recorded is marked with its
    error, counted, and looked at again later; the others go on.
    """
    if due := _next_batch(now, limit):
        result = _record_isolated(due, now)
        result.more, result.full = True, len(due) == limit
        return result
    return _expire(now, limit)


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


def count_failure(
    trigger_ids: Sequence[UUID], error: str, *, by: str, now: datetime, next_look: datetime | None = None
) -> None:
    """Count one more consecutive failure of triggers; those that reach the ceiling end `failed`.

    Called under their sessions' locks.
    """
    rows = Trigger.objects.filter(pk__in=trigger_ids)
    postponed = {"next_fire_at": next_look} if next_look else {}
    rows.update(consecutive_failures=F("consecutive_failures") + 1, last_error=cut(error, 2000), **postponed)
    ceiling = settings.TRIGGERS_MAX_CONSECUTIVE_FAILURES
    for trigger in rows.filter(status=TriggerStatus.ARMED, consecutive_failures__gte=ceiling):
        why = f"{trigger.consecutive_failures} failures in a row, the last: {error}"
        change_status(trigger, TriggerStatus.FAILED, by=by, reason=why, now=now)


def note_fault(trigger_ids: Sequence[UUID], error: str) -> None:
    """Show what keeps triggers waiting without counting it: it is expected to pass."""
    Trigger.objects.filter(pk__in=trigger_ids).update(last_error=cut(error, 2000))


def clear_failures(trigger_ids: Sequence[UUID] | QuerySet[Any, Any]) -> None:
    """Forget the consecutive failures of triggers: something has gone well. The ids may be a query for them."""
    rows = Trigger.objects.filter(pk__in=trigger_ids).exclude(consecutive_failures=0, last_error="")
    rows.update(consecutive_failures=0, last_error="")


def change_status(
    trigger: Trigger, target: TriggerStatus, *, by: str, reason: str, now: datetime, **fields: Any
) -> bool:
    """Move a trigger to a status, with the reason in the transcript; return false if it may not go there now.

    Called under its session's lock.
    """
    source = trigger.status
    if not TRIGGERS.move(Trigger.objects.filter(pk=trigger.pk, status=source), target, **fields):
        return False
    trigger.status = target
    payload = {
        "trigger_id": str(trigger.pk),
        "kind": trigger.kind,
        "from": source,
        "to": target,
        "by": by,
        "reason": reason,
    }
    append([Entry(trigger.session_id, EventType.TRIGGER_STATUS, payload)], now=now)
    log.info("trigger_status", extra={"action": "trigger_status", **payload})
    return True


def describe(trigger: Trigger, *, now: datetime) -> str:
    """Return a trigger's one line for people, or why there is none."""
    try:
        kind = KINDS.get(trigger.kind)
        line = kind.describe(kind.read(trigger.args), now=now)
        return line if trigger.status == TriggerStatus.ARMED else line.partition("; next ")[0]
    except (LookupError, ValueError) as error:
        return f"cannot be read: {error}"


@transaction.atomic
def _fire_all(items: Sequence[tuple[UUID, Occurrence]], now: datetime) -> list[Fired]:
    armed = _lock_armed(items, now)
    sessions = {trigger.session_id: AgentSession(pk=trigger.session_id, last_seq=trigger.last_seq) for trigger in armed}
    ready = {trigger.pk: trigger for trigger in armed}
    doubtful = [item for item in items if item[0] not in ready or ready[item[0]].knows_some]
    known = ledger.recorded([(pk, occurrence.key) for pk, occurrence in doubtful]) if doubtful else set()
    plans: list[_Plan] = []
    answers = [_plan_fire(item, ready, known=known, plans=plans, now=now) for item in items]
    _write(plans, sessions, now)
    doorbell.ring_soon(plan.trigger.session_id for plan in plans)
    return answers


_LOCK_ARMED = """
SELECT t.*, s.last_seq AS last_seq, EXISTS (
  SELECT 1 FROM rewake_fire f WHERE f.trigger_id = t.id AND f.occurrence IN ({keys})
) AS knows_some
FROM rewake_trigger t JOIN rewake_session s ON s.id = t.session_id
WHERE t.id IN ({ids}) AND t.status = 'armed' AND t.expires_at > %s
ORDER BY t.session_id, t.id {lock}
"""


def _lock_armed(items: Sequence[tuple[UUID, Occurrence]], now: datetime) -> list[Any]:
    """Lock the armed ones of some triggers, each after its session, and return them.

    Each comes with its session's `last_seq`, and with `knows_some`: whether it may have recorded any of the
    occurrences. One statement, since this is what every webhook waits for; the ORM would take as long to make it as
    the database to do all that follows.
    """
    ids, keys = {trigger_id for trigger_id, _ in items}, {occurrence.key for _, occurrence in items}
    sql = _LOCK_ARMED.format(
        keys=", ".join(["%s"] * len(keys)),
        ids=", ".join(["%s"] * len(ids)),
        lock="FOR UPDATE OF s, t" if connection.features.has_select_for_update_of else "",
    )
    stored_ids = [stored(Trigger, "id", pk) for pk in ids]
    return list(Trigger.objects.raw(sql, [*keys, *stored_ids, stored(Trigger, "expires_at", now)]))


def _plan_fire(
    item: tuple[UUID, Occurrence],
    ready: dict[UUID, Trigger],
    *,
    known: set[tuple[UUID, str]],
    plans: list[_Plan],
    now: datetime,
) -> Fired:
    trigger_id, occurrence = item
    if (trigger_id, occurrence.key) in known:
        return Fired.KNOWN
    if trigger_id not in ready:
        return Fired.REFUSED
    trigger = ready[trigger_id]
    reason = _lateness(trigger, occurrence.due_at, now)
    plan = _counted(_Plan(trigger, trigger.next_fire_at, occurrence, reason))
    plans.append(plan)
    known.add((trigger_id, occurrence.key))
    if plan.last:
        del ready[trigger_id]
    return Fired.FIRED


def _due(now: datetime) -> QuerySet[Trigger]:
    return Trigger.objects.filter(status=TriggerStatus.ARMED, next_fire_at__lte=now)


def _next_batch(now: datetime, limit: int) -> list[tuple[UUID, UUID]]:
    """Choose up to `limit` due triggers, the oldest; where there are more, half of them are the newest.

    So what has just come due need not wait until a burst before it is recorded, nor the burst for
    what keeps coming.
    """
    due = _due(now).values_list("pk", "session_id")
    oldest = list(due.order_by("next_fire_at")[:limit])
    if len(oldest) < limit:
        return oldest
    newest = due.order_by("-next_fire_at")[: limit // 2]
    return list(dict.fromkeys([*newest, *oldest]))[:limit]


def _record_isolated(due: Sequence[tuple[UUID, UUID]], now: datetime) -> Tick:
    """Record a batch; if the database refuses something in it, record its triggers one by one."""
    try:
        return _record_batch(due, now)
    except OperationalError:
        raise  # the database itself is in trouble: the next tick tries again
    except DatabaseError as error:
        if len(due) == 1:
            return _mark_refused(due[0], error, now)
    total = Tick()
    for one in due:
        part = _record_isolated([one], now)
        total.fired += part.fired
        total.skipped += part.skipped
        total.expired += part.expired
        total.marked += part.marked
    return total


@transaction.atomic
def _record_batch(due: Sequence[tuple[UUID, UUID]], now: datetime) -> Tick:
    sessions = lock({session_id for _, session_id in due})
    rows = _due(now).select_for_update().filter(pk__in=[pk for pk, _ in due]).order_by("pk")
    plans, broken = [], []
    for trigger in rows:
        try:
            plans.append(_plan(trigger, now))
        except Exception as error:  # one bad row stops nothing else
            broken.append((trigger, error))
    plans = [_counted(plan) for plan in _without_known(plans)]
    _write(plans, sessions, now)
    doorbell.ring(plan.trigger.session_id for plan in plans if plan.occurrence)
    for trigger, fault in broken:
        _mark(trigger, fault, now)
    return Tick(
        fired=sum(plan.occurrence is not None for plan in plans),
        skipped=sum(plan.skip is not None for plan in plans),
        expired=sum(plan.expires for plan in plans),
        marked=len(broken),
    )


def _plan(trigger: Trigger, now: datetime) -> _Plan:
    """Say what is to be done about a trigger that is due. Raises whatever a broken row makes its kind raise."""
    kind = KINDS.get(trigger.kind)
    if not isinstance(kind, TimeKind):
        raise TypeError(f"{trigger.kind} is not fired by the clock, but has a next_fire_at")
    args = kind.read(trigger.args)
    assert trigger.next_fire_at
    due = trigger.next_fire_at
    if due > trigger.expires_at:
        return _Plan(trigger, expires=True)
    look = kind.catch_up(args, due=due, now=now, until=trigger.expires_at)
    upcoming = kind.next_due(args, after=now)
    reason = _lateness(trigger, due, now)
    skip = (
        (kind.occurrence(args, due), due, _missed(look) + (f": {reason}" if reason else ""))
        if look.missed and look.skipped
        else None
    )
    if look.fire is None:
        return _Plan(trigger, upcoming, skip=skip)
    occurrence = Occurrence(kind.occurrence(args, look.fire), look.fire, note="" if skip else _missed(look))
    return _Plan(trigger, upcoming, occurrence, _lateness(trigger, look.fire, now), skip, look.missed)


def _without_known(plans: Sequence[_Plan]) -> list[_Plan]:
    """Take out the occurrences that were recorded before: a clock that went back must not fire them again."""
    keys = {plan.trigger.pk: plan.occurrence.key for plan in plans if plan.occurrence}
    recorded = Fire.objects.filter(trigger_id__in=keys, occurrence__in=set(keys.values()))
    known = {pk for pk, key in recorded.values_list("trigger_id", "occurrence") if keys[pk] == key}
    return [replace(plan, occurrence=None) if plan.trigger.pk in known else plan for plan in plans]


def _missed(look: CatchUp) -> str:
    if not look.missed or look.since is None:
        return ""
    slots = "1 slot" if look.missed == 1 else f"{look.missed} slots"
    return f"{slots} missed since {iso(look.since)}"


def _lateness(trigger: Trigger, due: datetime, now: datetime) -> str:
    if now - due < WORTH_A_REASON:
        return ""
    if trigger.resumed_at and trigger.resumed_at >= due:
        return f"the trigger was paused until {iso(trigger.resumed_at)}"
    return "Rewake was not running, or was busy"


def _counted(plan: _Plan) -> _Plan:
    """Return a plan whose fire its trigger has now counted.

    It is the last if it says so, if the count is full, or if the clock has nothing further.
    """
    if plan.occurrence is None:
        return plan
    trigger = plan.trigger
    trigger.fires += 1
    ran_out = trigger.next_fire_at is not None and plan.next_fire_at is None
    last = plan.occurrence.last or trigger.fires >= trigger.max_fires or ran_out
    return replace(plan, number=trigger.fires, last=last)


def _write(plans: Sequence[_Plan], sessions: Mapping[UUID, AgentSession], now: datetime) -> None:
    """Write all plans, whose sessions are locked: the same few statements for one trigger and for five hundred."""
    firing = [plan for plan in plans if plan.occurrence]
    script = Script()
    wakes = inbox.post([_wake(plan, now) for plan in firing], now=now, script=script)
    fires = [_fire(plan, wake, now) for plan, wake in zip(firing, wakes, strict=True)]
    skips = [
        ledger.skip(plan.trigger, plan.skip[0], due_at=plan.skip[1], reason=plan.skip[2], now=now)
        for plan in plans
        if plan.skip
    ]
    ledger.record(fires + skips, script)
    _advance(plans, script, now)
    entries = [_fired_event(plan, row) for plan, row in zip(firing, fires, strict=True)]
    transcript.write(entries, sessions, script, now=now)
    script.run()
    for plan in plans:
        if plan.expires:
            change_status(plan.trigger, TriggerStatus.EXPIRED, by="clock", reason=_expiry_reason(plan.trigger), now=now)
    for row in fires:
        log.info(
            "fired", extra={"action": "fired", "trigger_id": row.trigger_id, "fire_id": row.pk, "wake_id": row.wake_id}
        )


def _advance(plans: Sequence[_Plan], script: Script, now: datetime) -> None:
    """Count the fires and move the schedules on; a trigger that has fired its last is completed."""
    completed: dict[int, list[UUID]] = defaultdict(list)
    for plan in {plan.trigger.pk: plan for plan in plans if not plan.expires}.values():  # of several, the last
        trigger = plan.trigger
        if plan.last:
            completed[trigger.fires].append(trigger.pk)
            continue
        trigger.next_fire_at = plan.next_fire_at
        if plan.occurrence:
            trigger.last_fired_at = now
        script.update(trigger, "next_fire_at", "fires", "last_fired_at")
    for fires, pks in completed.items():
        done = {"next_fire_at": None, "fires": fires, "last_fired_at": now}
        TRIGGERS.move(Trigger.objects.filter(pk__in=pks), TriggerStatus.COMPLETED, **done)


def _wake(plan: _Plan, now: datetime) -> inbox.NewWake:
    trigger, occurrence = plan.trigger, plan.occurrence
    assert occurrence
    return inbox.NewWake(
        session_id=trigger.session_id,
        source=WakeSource.TRIGGER,
        text=trigger.wake_prompt,
        action=Action(trigger.action),
        heading=_heading(plan, occurrence, now),
        payload=occurrence.payload,
        payload_source=occurrence.payload_source,
        content_type=occurrence.content_type,
        payload_bytes=occurrence.payload_bytes,
        truncated=occurrence.truncated,
        depth=trigger.depth + 1,
    )


def _heading(plan: _Plan, occurrence: Occurrence, now: datetime) -> dict[str, Any]:
    trigger = plan.trigger
    kind = KINDS.get(trigger.kind)
    args = kind.read(trigger.args)
    heading = {
        "trigger_id": str(trigger.pk),
        "kind": trigger.kind,
        "describe": kind.describe(args, now=now),
        "fire": plan.number,
        "max_fires": trigger.max_fires,
        "due_at": iso(occurrence.due_at),
        "fired_at": iso(now),
        "timezone": kind.zone(args),
    }
    return heading | {
        name: text for name, text in {"late_reason": plan.reason, "note": occurrence.note}.items() if text
    }


def _fire(plan: _Plan, wake: Any, now: datetime) -> Fire:
    assert plan.occurrence
    reason = "; ".join(part for part in (plan.occurrence.note, plan.reason) if part)
    return ledger.fire(plan.trigger, plan.occurrence, wake, number=plan.number, reason=reason, now=now)


def _fired_event(plan: _Plan, row: Fire) -> Entry:
    trigger = plan.trigger
    payload: dict[str, Any] = {
        "trigger_id": str(trigger.pk),
        "kind": trigger.kind,
        "fire_id": str(row.pk),
        "occurrence": row.occurrence,
        "due_at": iso(row.due_at),
        "fired_at": iso(row.fired_at),
        "fires": plan.number,
        "max_fires": trigger.max_fires,
        "status": TriggerStatus.COMPLETED if plan.last else TriggerStatus.ARMED,
        "wake_id": str(row.wake_id),
    }
    if row.reason:
        payload["reason"] = row.reason
    return Entry(trigger.session_id, EventType.TRIGGER_FIRED, payload)


def _mark(trigger: Trigger, error: Exception, now: datetime) -> None:
    text = f"it cannot be fired: {type(error).__name__}: {error}"
    log.error("bad_trigger", extra={"action": "bad_trigger", "trigger_id": trigger.pk, "error": text})
    count_failure([trigger.pk], text, by="clock", now=now, next_look=now + LOOK_AGAIN)


@transaction.atomic
def _mark_refused(one: tuple[UUID, UUID], error: DatabaseError, now: datetime) -> Tick:
    lock([one[1]])
    trigger = Trigger.objects.get(pk=one[0])
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
            if change_status(trigger, TriggerStatus.EXPIRED, by="clock", reason=_expiry_reason(trigger), now=now)
        ]
    return Tick(expired=len(expired), more=len(found) == limit)


def _expiry_reason(trigger: Trigger) -> str:
    return f"it expired at {iso(trigger.expires_at)}, after {trigger.fires} of {trigger.max_fires} fires"
