"""A capability URL to post to, as a sender has it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from hmac import new
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.test import Client

from sessions.models import Event, Turn, Wake
from tests import factories
from triggers import services
from triggers.models import Fire, Trigger

if TYPE_CHECKING:
    from tests.doors import Answer


@dataclass
class Hook:
    """An armed webhook trigger, its path and its signing secret."""

    trigger: Trigger
    path: str
    signing: str

    def post(self, body: bytes = b"{}", *, path: str = "", **headers: Any) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        type_ = named.pop("content-type", "application/json")
        return Client().generic("POST", path or self.path, body, type_, headers=named)

    def signature(self, body: bytes) -> str:
        return f"sha256={new(self.signing.encode(), body, sha256).hexdigest()}"

    def fires(self) -> list[Fire]:
        return list(Fire.objects.filter(trigger=self.trigger).order_by("pk"))

    def wake(self) -> Wake:
        """Return the one wake that the posts have made."""
        return Wake.objects.get(fire__trigger=self.trigger)


def hooked(now: datetime, **fields: Any) -> Hook:
    """Arm a webhook trigger in a new session, whose turn then ends."""
    armed = factories.arm(factories.open_session(now), now, **fields)
    factories.end_turn(Turn.objects.get(pk=armed.trigger.turn_id), now)
    path = urlsplit(services.hook_url(armed.trigger, armed.secrets)).path
    return Hook(armed.trigger, path, armed.secrets.get("signing", ""))


def everything_stored(trigger: Trigger) -> tuple[Any, ...]:
    """Return what a post may change: to be compared with what it was before."""
    session = trigger.session_id
    return (
        list(Fire.objects.filter(trigger=trigger).values()),
        list(Wake.objects.filter(session=session).values()),
        list(Event.objects.filter(session=session).values()),
        Trigger.objects.filter(pk=trigger.pk).values().get(),
    )
