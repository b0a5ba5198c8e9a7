"""Writes fires: plans that were computed before, all of them by the same few statements.

One transaction holds the Fire, its count, the schedule's next instant or the completion, the Wake
and the event; whoever calls has begun it and locked the sessions.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sessions import inbox, transcript
from sessions.instants import iso
from sessions.models import AgentSession
from sessions.script import Script
from sessions.states import Action, EventType, WakeSource
from sessions.transcript import Entry
from triggers import ledger
from triggers.ledger import Occurrence
from triggers.models import Fire, Trigger
from triggers.moves import change_status
from triggers.registry import KINDS
from triggers.states import TRIGGERS, TriggerStatus

WORTH_A_REASON = timedelta(seconds=2)  # later than this, a fire says why

log = logging.getLogger("rewake.engine")


@dataclass(frozen=True)
class Plan:
    """What is to be done about one trigger: computed first, written with all others."""

    trigger: Trigger
    next_fire_at: datetime | None = None
    occurrence: Occurrence | None = None
    reason: str = ""
    skip: tuple[str, datetime, str] | None = None  # occurrence, due, reason
    missed: int = 0
    since: datetime | None = None  # the first slot that was missed
    expires: bool = False
    number: int = 0  # which of the trigger's fires it is
    last: bool = False  # nothing can follow it


def counted(plan: Plan) -> Plan:
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


def lateness(trigger: Trigger, due: datetime, now: datetime) -> str:
    if now - due < WORTH_A_REASON:
        return ""
    if trigger.resumed_at and trigger.resumed_at >= due:
        return f"the trigger was paused until {iso(trigger.resumed_at)}"
    return "Rewake was not running, or was busy"


def write(plans: Sequence[Plan], sessions: Mapping[UUID, AgentSession], now: datetime) -> None:
    """Write all plans, whose sessions are locked: the same few statements for one trigger and for a full batch."""
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
            change_status(plan.trigger, TriggerStatus.EXPIRED, by="clock", reason=expiry_reason(plan.trigger), now=now)
    for row in fires:
        about = {"trigger_id": row.trigger_id, "session_id": row.trigger.session_id}
        log.info("fired", extra={"action": "fired", **about, "fire_id": row.pk, "wake_id": row.wake_id})


def expiry_reason(trigger: Trigger) -> str:
    return f"it expired at {iso(trigger.expires_at)}, after {trigger.fires} of {trigger.max_fires} fires"


def _advance(plans: Sequence[Plan], script: Script, now: datetime) -> None:
    """Count the fires and move the schedules on; a trigger that has fired its last is completed."""
    completed: dict[int, list[Trigger]] = defaultdict(list)
    for plan in {plan.trigger.pk: plan for plan in plans if not plan.expires}.values():  # of several, the last
        trigger = plan.trigger
        if plan.last:
            completed[trigger.fires].append(trigger)
            continue
        trigger.next_fire_at = plan.next_fire_at
        if plan.occurrence:
            trigger.last_fired_at = now
        script.update(trigger, "next_fire_at", "fires", "last_fired_at")
    for fires, rows in completed.items():
        script.move(TRIGGERS, rows, TriggerStatus.COMPLETED, next_fire_at=None, fires=fires, last_fired_at=now)


def _wake(plan: Plan, now: datetime) -> inbox.NewWake:
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


def _heading(plan: Plan, occurrence: Occurrence, now: datetime) -> dict[str, Any]:
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


def _fire(plan: Plan, wake: Any, now: datetime) -> Fire:
    assert plan.occurrence
    reason = "; ".join(part for part in (plan.occurrence.note, plan.reason) if part)
    return ledger.fire(plan.trigger, plan.occurrence, wake, number=plan.number, reason=reason, now=now)


def _fired_event(plan: Plan, row: Fire) -> Entry:
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
    if plan.missed and not plan.skip:
        payload |= {"missed": plan.missed, "since": iso(plan.since)}
    if row.reason:
        payload["reason"] = row.reason
    return Entry(trigger.session_id, EventType.TRIGGER_FIRED, payload)
