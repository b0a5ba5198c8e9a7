"""What a first start makes: the console's user and an API key, each shown once."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.contrib.auth import get_user_model

from sessions import keys
from sessions.models import ApiKey

ADMIN = "admin"
KNOWN = "(as made at the first start)"


@dataclass(frozen=True)
class Made:
    """What was made now, to be shown once; None for what there was already."""

    password: str | None
    api_key: str | None


def ensure(*, now: datetime) -> Made:
    """Make the console's user and an admin key where there are none yet.

    REWAKE_ADMIN_PASSWORD and REWAKE_API_KEY give their values; without them they are made up.
    """
    return Made(_ensure_admin(), _ensure_key(now))


def _ensure_admin() -> str | None:
    users = get_user_model().objects
    if users.filter(username=ADMIN).exists():
        return None
    password = settings.REWAKE_ADMIN_PASSWORD or secrets.token_urlsafe(12)
    users.create_superuser(username=ADMIN, password=password)
    return password


def _ensure_key(now: datetime) -> str | None:
    if ApiKey.objects.exists():
        return None
    _, secret = keys.create(
        name="first start", scopes=[keys.Scope.ADMIN], secret=settings.REWAKE_API_KEY or None, now=now
    )
    return secret
