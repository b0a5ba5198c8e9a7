"""What can be done to triggers: arm, pause, resume, cancel; and what follows from a wake or a session."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from pydantic import ValidationError

from sessions import inbox, turns
from sessions.instants import iso
from sessions.models import AgentSession, Wake
from sessions.reads import Read
from sessions.script import Script
from sessions.secrecy import Unreadable, decrypt, encrypt
from sessions.states import Action, EventType, WakeSource, WakeStatus
from sessions.text import storable
from sessions.tools import ToolContext
from sessions.transcript import Entry, append, lock, write
from triggers import moves, nudge, policy, polling
from triggers.exceptions import Conflict, Invalid, NotFound, SessionTerminated
from triggers.kinds.base import ON_TIME, Args, ArgsError, EventKind, Kind, TimeKind
from triggers.models import Beat, Fire, Trigger
from triggers.registry import KINDS, UnknownName
from triggers.states import TRIGGERS, TriggerStatus

log = logging.getLogger("rewake.triggers")


@dataclass(frozen=True)
class Order:
    """A trigger to arm, as the agent asked for it."""

    kind: str
    args: Mapping[str, Any]
    wake_prompt: str
    action: Action = Action.MESSAGE
    max_fires: int | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True)
class Armed:
    """A trigger that has just been armed, with its secrets, which are in no list or event."""

    trigger: Trigger
    describe: str
    notes: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)


@transaction.atomic
def arm(context: ToolContext, order: Order, *, now: datetime) -> Armed:
    """Arm a trigger for the session of a live turn.

    Raises `Invalid` for what makes no sense, `PolicyRefused` for what a limit forbids, `NotFound`
    if the turn is over.
    """
    kind = kind_of(order.kind)
    args = read_args(kind, order.args, now=now, context=context)
    first_due = kind.next_due(args, after=now - _grace(kind)) if isinstance(kind, TimeKind) else None
    days = timedelta(days=settings.TRIGGERS_DEFAULT_EXPIRY_DAYS)
    row = Trigger(
        session_id=context.session_id,
        kind=kind.name,
        wake_prompt=storable(policy.check_wake_prompt(order.wake_prompt)),
        action=order.action,
        args=storable(args.model_dump(mode="json", exclude_none=True)),
        max_fires=policy.check_max_fires(order.max_fires, kind_limit=kind.max_fires),
        expires_at=policy.check_expiry(
            order.expires_at, default=kind.default_expiry(args, now=now, after=days), first_due=first_due, now=now
        ),
        next_fire_at=first_due,
        created_at=now,
        created_by="agent",
        turn_id=context.turn_id,
        depth=context.depth,
    )
    sessions = _admit(context)
    notes = kind.notes(args)
    if isinstance(kind, EventKind):
        args, more = _enlist(kind, args, row, now)
        notes = [*notes, *more]
    secrets = kind.secrets(args)
    row.secrets = encrypt(secrets) if secrets else ""
    describe = kind.describe(args, now=now)
    script = Script()
    script.insert([row])
    write([_armed_event(row, describe)], sessions, script, now=now)
    script.run()
    about = {"trigger_id": row.pk, "session_id": row.session_id, "turn_id": row.turn_id, "kind": kind.name}
    log.info("trigger_armed", extra={"action": "trigger_armed", **about})
    if first_due:
        nudge.clock()
    return Armed(row, describe, notes, secrets)


def kind_of(name: str) -> Kind[Any]:
    """Return a kind by its name. Raises `Invalid`, listing those there are."""
    try:
        return KINDS.get(name)
    except UnknownName as error:
        raise Invalid(f"kind: {error}", fields={"kind": str(error)}) from error


def read_args(kind: Kind[Any], given: Mapping[str, Any], *, now: datetime, context: ToolContext) -> Args:
    """Return a kind's args, checked. Raises `Invalid` with each field that is wrong and what would be right."""
    try:
        args: Args = kind.read(given)
        kind.check(args, now=now, rules=policy.rules_for(context))
    except ValidationError as error:
        raise refusal([problem(item) for item in error.errors()]) from error
    except ArgsError as error:
        raise refusal([(error.field, error.message)]) from error
    return args


def refusal(problems: Sequence[tuple[str, str]]) -> Invalid:
    """Return the error that names each field and what is wrong with it."""
    told = (message if message.startswith(name) else f"{name}: {message}" for name, message in problems)
    return Invalid("; ".join(told), fields=dict(problems))


def problem(item: Mapping[str, Any]) -> tuple[str, str]:
    """Return which field one of pydantic's errors is about, and what is wrong, for a model to correct itself by."""
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, ArgsError):
        return cause.field, cause.message
    name = ".".join(str(part) for part in item["loc"]) or "args"
    if item["type"] == "extra_forbidden":
        return name, "is not a field of this kind"
    if item["type"] == "missing":
        return name, "is required"
    given = item.get("input")
    shown = f", not {given!r:.80}" if isinstance(given, str | int | float | bool | list) else ""
    return name, str(cause) if cause else f"{item['msg'][:1].lower()}{item['msg'][1:]}{shown}"


def pause(trigger_id: UUID, *, by: str, now: datetime) -> Trigger:
    """Pause an armed trigger; a paused one stays so. Raises `NotFound`, `Conflict` when it has ended."""
    return _move(trigger_id, TriggerStatus.PAUSED, by=by, reason=f"paused by {by}", now=now)


def resume(trigger_id: UUID, *, by: str, now: datetime) -> Trigger:
    """Arm a paused trigger again; what it missed meanwhile is caught up with by the next tick.

    Raises `NotFound`, `Conflict` when it has ended, `PolicyRefused` when the session is full.
    """
    return _move(trigger_id, TriggerStatus.ARMED, by=by, reason=f"resumed by {by}", now=now)


@transaction.atomic
def cancel(trigger_id: UUID, *, by: str, now: datetime, session_id: UUID | None = None) -> tuple[Trigger, bool]:
    """End a trigger, and withdraw its wakes that nobody has taken; idempotent.

    The second value tells whether it was this call that ended it. With `session_id`, another
    session's trigger is `NotFound`.
    """
    trigger = _locked(trigger_id, session_id)
    if trigger.status in TRIGGERS.terminal:
        return trigger, False
    untaken = Wake.objects.filter(fire__trigger=trigger, status=WakeStatus.PENDING)
    withdrawn = inbox.withdraw(untaken, f"its trigger was cancelled by {by}", now=now)
    reason = f"cancelled by {by}" + (
        f"; {withdrawn} of its wakes had not been taken and were withdrawn" if withdrawn else ""
    )
    return trigger, moves.change_status(trigger, TriggerStatus.CANCELLED, by=by, reason=reason, now=now)


def secrets_of(trigger: Trigger) -> dict[str, str]:
    """Return a trigger's secrets by name. Raises `Unreadable`."""
    return decrypt(trigger.secrets) if trigger.secrets else {}


def hook_url(trigger: Trigger, secrets: Mapping[str, str]) -> str:
    """Return a webhook trigger's capability URL, absolute."""
    return f"{settings.PUBLIC_URL.rstrip('/')}/api/triggers/hook/{trigger.pk}/{secrets['url']}"


@transaction.atomic
def show_hook(trigger_id: UUID, *, by: str, now: datetime) -> tuple[str, str | None]:
    """Return a webhook trigger's URL and signing secret again, recording who asked.

    Raises `NotFound`, `Conflict` for another kind and for secrets that no key reads, `SessionTerminated`.
    """
    trigger = _locked(trigger_id, None)
    try:
        secrets = secrets_of(trigger)
    except Unreadable as error:
        raise Conflict(f"the trigger's secrets cannot be shown: {error}") from error
    if "url" not in secrets:
        raise Conflict(f"a {trigger.kind} trigger has no URL; only a webhook trigger has")
    if trigger.session.terminated_at:
        raise SessionTerminated("the session has been terminated; its triggers are cancelled and their URLs dead")
    payload = {"trigger_id": str(trigger.pk), "kind": trigger.kind, "from": trigger.status, "to": trigger.status}
    seen = {"by": by, "reason": f"its URL was shown to {by}"}
    append([Entry(trigger.session_id, EventType.TRIGGER_STATUS, payload | seen)], now=now)
    return hook_url(trigger, secrets), secrets.get("signing")


def note_beat(*, now: datetime) -> None:
    """Note that the beat is alive, for those who ask whether the product is ready."""
    Beat.objects.update_or_create(name="beat", defaults={"at": now})


_TROUBLED = Read(
    Trigger,
    "SELECT t.id FROM rewake_trigger t JOIN rewake_fire f ON f.trigger_id = t.id "
    "WHERE f.wake_id IN ({wakes}) AND (t.consecutive_failures > 0 OR t.last_error <> '')",
)


def follow_wakes(wakes: Sequence[Wake], *, now: datetime) -> None:
    """Let triggers follow what became of their wakes: a quarantine is a failure, a delivery a success."""
    fired = [wake for wake in wakes if wake.source == WakeSource.TRIGGER]
    if done := [wake.pk for wake in fired if wake.status == WakeStatus.DONE]:
        moves.clear_failures([trigger.pk for trigger in _TROUBLED(wakes=done)])
    for wake in fired:
        if wake.status == WakeStatus.QUARANTINED:
            of_wake = Fire.objects.filter(wake=wake).values_list("trigger_id", flat=True)
            moves.count_failure(list(of_wake), wake.reason, by="inbox", now=now)


def cancel_all(session: AgentSession, *, reason: str, now: datetime) -> int:
    """Cancel every trigger of a session that has not ended; return how many. Called under the session's lock."""
    live = Trigger.objects.filter(session=session, status__in=TRIGGERS.sources(TriggerStatus.CANCELLED)).order_by("pk")
    ended = [
        moves.change_status(trigger, TriggerStatus.CANCELLED, by="session", reason=reason, now=now) for trigger in live
    ]
    return sum(ended)


def _grace(kind: Kind[Any]) -> timedelta:
    """Return how far back a first due instant may lie: a `time.at` that has just passed still fires."""
    return ON_TIME + timedelta(microseconds=1) if kind.max_fires == 1 else timedelta(0)


def _admit(context: ToolContext) -> dict[UUID, AgentSession]:
    """Lock the session of a turn that may arm one more trigger, and return it."""
    sessions = lock([context.session_id])
    if sessions[context.session_id].terminated_at or not turns.is_live(context.turn_id):
        raise NotFound("this turn is over; a trigger can only be armed from within a live turn")
    policy.check_depth(context)
    policy.check_ceiling(_armed_in(context.session_id))
    return sessions


def _enlist(kind: EventKind[Any], args: Any, row: Trigger, now: datetime) -> tuple[Any, list[str]]:
    """Have watched what a trigger waits for; return its args with the host that is meant, and what is to be known."""
    resource = kind.resource(args)
    if resource is None:
        return args, []
    try:
        enlisted = polling.enlist(resource, args.host, now=now)
    except ArgsError as error:
        raise refusal([(error.field, error.message)]) from error
    row.watch = enlisted.watch
    args = args.model_copy(update={"host": enlisted.host})
    row.args = storable(args.model_dump(mode="json", exclude_none=True))
    return args, enlisted.notes


def _armed_in(session_id: UUID) -> int:
    return Trigger.objects.filter(session_id=session_id, status=TriggerStatus.ARMED).count()


def _armed_event(row: Trigger, describe: str) -> Entry:
    payload = {
        "trigger_id": str(row.pk),
        "kind": row.kind,
        "describe": describe,
        "args": row.args,
        "action": row.action,
        "wake_prompt": row.wake_prompt,
        "max_fires": row.max_fires,
        "next_fire_at": iso(row.next_fire_at),
        "expires_at": iso(row.expires_at),
        "turn_id": str(row.turn_id),
    }
    return Entry(row.session_id, EventType.TRIGGER_ARMED, payload)


def _locked(trigger_id: UUID, session_id: UUID | None) -> Trigger:
    owned = Trigger.objects.filter(pk=trigger_id, **({"session_id": session_id} if session_id else {}))
    owner = owned.values_list("session_id", flat=True).first()
    if owner is None:
        raise NotFound(f"there is no trigger {trigger_id}")
    lock([owner])
    return Trigger.objects.select_for_update().get(pk=trigger_id)


@transaction.atomic
def _move(trigger_id: UUID, target: TriggerStatus, *, by: str, reason: str, now: datetime) -> Trigger:
    trigger = _locked(trigger_id, None)
    if trigger.status == target:
        return trigger
    if trigger.status in TRIGGERS.terminal:
        raise Conflict(f"the trigger is {trigger.status}, which is final; it cannot be {target} again")
    fields = _resumption(trigger, now) if target == TriggerStatus.ARMED else {}
    moves.change_status(trigger, target, by=by, reason=reason, now=now, **fields)
    if target == TriggerStatus.ARMED and trigger.watch_id:
        polling.look_again(trigger.watch_id, now=now)
    trigger.refresh_from_db()
    nudge.clock()
    return trigger


def _resumption(trigger: Trigger, now: datetime) -> dict[str, Any]:
    """Admit a trigger back into `armed`; a schedule that lies ahead is anchored anew on now."""
    policy.check_ceiling(_armed_in(trigger.session_id))
    fields: dict[str, Any] = {"resumed_at": now}
    if trigger.next_fire_at and trigger.next_fire_at > now:
        kind = kind_of(trigger.kind)
        if isinstance(kind, TimeKind):
            fields["next_fire_at"] = kind.next_due(kind.read(trigger.args), after=now)
    return fields
