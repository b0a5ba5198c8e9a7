"""Changes of a trigger that are not fires: its status, and the failures that may end it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F

from sessions.states import EventType
from sessions.text import cut
from sessions.transcript import Entry, append
from triggers.models import Trigger
from triggers.states import TRIGGERS, TriggerStatus

log = logging.getLogger("rewake.moves")


def change_status(
    trigger: Trigger, target: TriggerStatus, *, by: str, reason: str, now: datetime, **fields: Any
) -> bool:
    """Move a trigger to a status, with the reason in the transcript; return false if it may not go there now.

    What has ended has no next fire. Called under its session's lock.
    """
    source = trigger.status
    if target in TRIGGERS.terminal:
        fields["next_fire_at"] = trigger.next_fire_at = None
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
    log.info("trigger_status", extra={"action": "trigger_status", "session_id": trigger.session_id, **payload})
    return True


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


def clear_failures(trigger_ids: Sequence[UUID]) -> None:
    """Forget the consecutive failures of triggers: something has gone well."""
    if not trigger_ids:
        return
    rows = Trigger.objects.filter(pk__in=trigger_ids).exclude(consecutive_failures=0, last_error="")
    rows.update(consecutive_failures=0, last_error="")
