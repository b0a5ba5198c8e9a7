"""The engine: find what is due at an instant and record it; record what a forge or a webhook brought.

Every fire goes the same way, in one transaction: lock the session, lock the trigger, insert the
Fire (unique on trigger and occurrence), count it, advance the schedule or complete, post the Wake,
append the event. The doorbell rings after the commit.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, OperationalError, transaction
from django.db.models import F, Q, QuerySet

from sessions import doorbell, inbox
from sessions.instants import iso
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
    """What one tick did. `more` tells that a full batch was found, so that there may be more."""

    fired: int = 0
    skipped: int = 0
    expired: int = 0
    marked: int = 0
    more: bool = False


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


def tick(*, now: datetime, limit: int = BATCH) -> Tick:
    """Record up to `limit` due fires and, once nothing is due, up to `limit` expiries.

    A fire that is due is recorded before an expiry is. What cannot be recorded is marked with its
    error, counted, and looked at again later; the others go on.
    """
    due = list(_due(now).order_by("next_fire_at").values_list("pk", "session_id")[:limit])
    if due:
        result = _record_isolated(due, now)
        result.more = True
        return result
    return _expire(now, limit)


def fire(trigger_id: UUID, occurrence: Occurrence, *, now: datetime) -> Fired:
    """Record one occurrence of an armed trigger that is not fired by the clock."""
    [fired] = fire_all([(trigger_id, occurrence)], now=now)
    return fired


def fire_all(items: Sequence[tuple[UUID, Occurrence]], *, now: datetime) -> list[Fired]:
    """Record occurrences of armed triggers in one transaction, in the order given."""
    rows = Trigger.objects.filter(pk__in={trigger_id for trigger_id, _ in items})
    sessions = set(rows.values_list("session_id", flat=True))
    with transaction.atomic():
        lock(sessions)
        known = ledger.recorded([(trigger_id, occurrence.key) for trigger_id, occurrence in items])
        ready = rows.select_for_update().filter(status=TriggerStatus.ARMED, expires_at__gt=now, session__in=sessions)
        armed = {trigger.pk: trigger for trigger in ready.order_by("pk")}
        answers, plans = [], dict[UUID, _Plan]()
        for trigger_id, occurrence in items:
            if trigger_id in plans:  # the fires of one trigger are counted one after the other
                _write_and_drop_ended(plans, armed, now)
            answers.append(_plan_fire(trigger_id, occurrence, armed, known=known, plans=plans, now=now))
        _write_and_drop_ended(plans, armed, now)
    return answers


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


def _plan_fire(
    trigger_id: UUID,
    occurrence: Occurrence,
    armed: dict[UUID, Trigger],
    *,
    known: set[tuple[UUID, str]],
    plans: dict[UUID, _Plan],
    now: datetime,
) -> Fired:
    if (trigger_id, occurrence.key) in known:
        return Fired.KNOWN
    if trigger_id not in armed:
        return Fired.REFUSED
    known.add((trigger_id, occurrence.key))
    trigger = armed[trigger_id]
    reason = _lateness(trigger, occurrence.due_at, now)
    plans[trigger_id] = _Plan(trigger, trigger.next_fire_at, occurrence, reason)
    return Fired.FIRED


def _write_and_drop_ended(plans: dict[UUID, _Plan], armed: dict[UUID, Trigger], now: datetime) -> None:
    if plans:
        _write(list(plans.values()), now)
    for plan in plans.values():
        if _is_last(plan):
            del armed[plan.trigger.pk]
    plans.clear()


def _due(now: datetime) -> QuerySet[Trigger]:
    return Trigger.objects.filter(status=TriggerStatus.ARMED, next_fire_at__lte=now)


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
    lock({session_id for _, session_id in due})
    rows = _due(now).select_for_update().filter(pk__in=[pk for pk, _ in due]).order_by("pk")
    plans, result = [], Tick()
    for trigger in rows:
        try:
            plans.append(_plan(trigger, now))
        except Exception as error:  # one bad row stops nothing else
            _mark(trigger, error, now)
            result.marked += 1
    plans = _without_known(plans)
    _write(plans, now)
    result.fired = sum(plan.occurrence is not None for plan in plans)
    result.skipped = sum(plan.skip is not None for plan in plans)
    result.expired = sum(plan.expires for plan in plans)
    return result


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


def _write(plans: Sequence[_Plan], now: datetime) -> None:
    """Write all plans, set by set: the same statements for one trigger and for five hundred."""
    firing = [plan for plan in plans if plan.occurrence]
    for plan in firing:
        plan.trigger.fires += 1
    wakes = inbox.post([_wake(plan, now) for plan in firing], now=now)
    fires = [_fire(plan, wake, now) for plan, wake in zip(firing, wakes, strict=True)]
    skips = [
        ledger.skip(plan.trigger, plan.skip[0], due_at=plan.skip[1], reason=plan.skip[2], now=now)
        for plan in plans
        if plan.skip
    ]
    ledger.record(fires + skips)
    _advance(plans, now)
    append([_fired_event(plan, row) for plan, row in zip(firing, fires, strict=True)], now=now)
    for plan in plans:
        if plan.expires:
            change_status(plan.trigger, TriggerStatus.EXPIRED, by="clock", reason=_expiry_reason(plan.trigger), now=now)
    doorbell.ring(plan.trigger.session_id for plan in firing)
    for row in fires:
        log.info(
            "fired", extra={"action": "fired", "trigger_id": row.trigger_id, "fire_id": row.pk, "wake_id": row.wake_id}
        )


def _advance(plans: Sequence[_Plan], now: datetime) -> None:
    """Count the fires and move the schedules on; a trigger that has fired its last is completed."""
    completed = [plan.trigger.pk for plan in plans if plan.occurrence and _is_last(plan)]
    counted = {"fires": F("fires") + 1, "last_fired_at": now}
    TRIGGERS.move(Trigger.objects.filter(pk__in=completed), TriggerStatus.COMPLETED, next_fire_at=None, **counted)
    groups: dict[tuple[bool, datetime | None], list[UUID]] = defaultdict(list)
    for plan in plans:
        if not plan.expires and not (plan.occurrence and _is_last(plan)):
            groups[plan.occurrence is not None, plan.next_fire_at].append(plan.trigger.pk)
    for (fired, next_fire_at), pks in groups.items():
        rows = Trigger.objects.filter(pk__in=pks)
        rows.update(next_fire_at=next_fire_at, **(counted if fired else {}))


def _is_last(plan: _Plan) -> bool:
    """Return whether nothing can follow this fire: it says so, the count is full, or the clock has nothing further."""
    clocked = plan.trigger.next_fire_at is not None
    said = plan.occurrence is not None and plan.occurrence.last
    return said or plan.trigger.fires >= plan.trigger.max_fires or (clocked and plan.next_fire_at is None)


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
        "fire": trigger.fires,
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
    return ledger.fire(plan.trigger, plan.occurrence, wake, reason=reason, now=now)


def _fired_event(plan: _Plan, row: Fire) -> Entry:
    trigger = plan.trigger
    payload: dict[str, Any] = {
        "trigger_id": str(trigger.pk),
        "kind": trigger.kind,
        "fire_id": str(row.pk),
        "occurrence": row.occurrence,
        "due_at": iso(row.due_at),
        "fired_at": iso(row.fired_at),
        "fires": trigger.fires,
        "max_fires": trigger.max_fires,
        "status": TriggerStatus.COMPLETED if _is_last(plan) else TriggerStatus.ARMED,
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
