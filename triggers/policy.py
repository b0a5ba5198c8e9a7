"""Admission: what may be armed, and what may become armed again."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

from sessions.instants import iso
from sessions.tools import ToolContext
from triggers.exceptions import Invalid, PolicyRefused
from triggers.kinds.base import Rules

WAKE_PROMPT_MAX_CHARS = 8000


def rules_for(context: ToolContext) -> Rules:
    """Return the limits that a kind has to know when this turn arms a trigger."""
    return Rules(timedelta(seconds=settings.TRIGGERS_CRON_MIN_INTERVAL_SECONDS), triggered=context.triggered)


def check_wake_prompt(text: str) -> str:
    """Return the wake prompt, trimmed. Raises `Invalid`."""
    text = text.strip()
    if not text:
        raise _refused("wake_prompt", "is empty; write what you want to be told when you are woken")
    if len(text) > WAKE_PROMPT_MAX_CHARS:
        raise _refused("wake_prompt", f"has {len(text)} characters, at most {WAKE_PROMPT_MAX_CHARS} are allowed")
    return text


def check_max_fires(wanted: int | None, *, kind_limit: int | None) -> int:
    """Return how often a trigger may fire: as wanted, or as often as allowed. Raises `Invalid`."""
    cap = kind_limit or settings.TRIGGERS_MAX_FIRES_CAP
    if wanted is None:
        return cap
    if not 1 <= wanted <= cap:
        raise _refused("max_fires", f"must be from 1 to {cap}, not {wanted}")
    return wanted


def check_expiry(
    expires_at: datetime | None, *, default: datetime, first_due: datetime | None, now: datetime
) -> datetime:
    """Return when a trigger expires. Raises `Invalid` for the past, or for a moment before it could ever fire."""
    if expires_at is None:
        return default
    if expires_at <= now:
        raise _refused("expires_at", f"{iso(expires_at)} is not in the future; it is now {iso(now)}")
    if first_due and expires_at < first_due:
        raise _refused(
            "expires_at", f"{iso(expires_at)} is before its first fire, {iso(first_due)}: it would never fire"
        )
    return expires_at


def check_depth(context: ToolContext) -> None:
    """Refuse to lengthen a chain of wakes without end. Raises `PolicyRefused`."""
    limit = settings.TRIGGERS_MAX_CHAIN_DEPTH
    if context.depth >= limit:
        raise PolicyRefused(
            f"this turn is number {context.depth} in a chain of wakes that no person has joined, and the limit is "
            f"{limit}: arm nothing more, and say what you still wait for, so that a person can take it up"
        )


def check_ceiling(armed: int) -> None:
    """Refuse one more armed trigger in a session that is full. Raises `PolicyRefused`."""
    limit = settings.TRIGGERS_MAX_ARMED_PER_SESSION
    if armed >= limit:
        raise PolicyRefused(f"the session has {armed} armed triggers, its limit is {limit}: cancel or pause one first")


def _refused(field: str, message: str) -> Invalid:
    return Invalid(f"{field}: {message}", fields={field: message})
