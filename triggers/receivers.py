"""Follows sessions through their two signals, inside their transactions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.dispatch import receiver

from sessions.models import AgentSession, Wake
from sessions.signals import session_terminated, wake_settled
from triggers import services


@receiver(wake_settled, dispatch_uid="triggers.wake_settled")
def on_wake_settled(sender: Any, *, wakes: Sequence[Wake], now: datetime, **_: Any) -> None:
    services.follow_wakes(wakes, now=now)


@receiver(session_terminated, dispatch_uid="triggers.session_terminated")
def on_session_terminated(sender: Any, *, session: AgentSession, reason: str, now: datetime, **_: Any) -> int:
    return services.cancel_all(session, reason=reason, now=now)
