"""The only writer of ApiKey: made once, shown once, stored as a hash."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from django.db.models import Q, QuerySet

from sessions.exceptions import Invalid, NotFound
from sessions.models import ApiKey
from sessions.secrecy import KEY, digest, mint
from sessions.text import storable

USED_EVERY = timedelta(minutes=1)  # how exactly `last_used_at` is kept


class Scope(StrEnum):
    SESSIONS_READ = "sessions.read"
    SESSIONS_WRITE = "sessions.write"
    TRIGGERS_READ = "triggers.read"
    TRIGGERS_MANAGE = "triggers.manage"
    ADMIN = "admin"


def create(*, name: str, scopes: Iterable[str], now: datetime, secret: str | None = None) -> tuple[ApiKey, str]:
    """Create a key and return it with its secret, which cannot be had again. Raises `Invalid`."""
    name = storable(name).strip()
    if not 1 <= len(name) <= 200:
        raise Invalid("a key needs a name of 1 to 200 characters", fields={"name": "1 to 200 characters"})
    secret = secret or mint(KEY)
    row = ApiKey.objects.create(name=name, hint=secret[:8], hash=digest(secret), scopes=_known(scopes), created_at=now)
    return row, secret


def revoke(key_id: UUID, *, now: datetime) -> ApiKey:
    """Revoke a key for good; idempotent. Raises `NotFound`."""
    ApiKey.objects.filter(pk=key_id, revoked_at=None).update(revoked_at=now)
    row = ApiKey.objects.filter(pk=key_id).first()
    if row is None:
        raise NotFound(f"there is no key {key_id}")
    return row


def listed() -> QuerySet[ApiKey]:
    """Return all keys, newest first, the revoked ones too."""
    return ApiKey.objects.order_by("-pk")


def is_revoked(secret: str) -> bool:
    """Return whether this is a key's secret, but of one that has been revoked."""
    return ApiKey.objects.filter(hash=digest(secret)).exclude(revoked_at=None).exists()


def of_secret(secret: str, *, now: datetime) -> ApiKey | None:
    """Return the key with this secret, unless it is revoked, and note that it was used."""
    row = ApiKey.objects.filter(hash=digest(secret), revoked_at=None).first()
    if row is None:
        return None
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - USED_EVERY)
    if row.last_used_at is None or row.last_used_at < now - USED_EVERY:
        ApiKey.objects.filter(stale, pk=row.pk).update(last_used_at=now)
    return row


def allows(row: ApiKey, scope: str) -> bool:
    """Return whether a key carries a scope; `admin` carries all."""
    return scope in row.scopes or Scope.ADMIN in row.scopes


def _known(scopes: Iterable[str]) -> list[str]:
    wanted = list(dict.fromkeys(scopes))
    unknown = [scope for scope in wanted if scope not in list(Scope)]
    if unknown or not wanted:
        choices = ", ".join(Scope)
        what = f"unknown scope {unknown[0]!r}" if unknown else "a key needs at least one scope"
        raise Invalid(f"{what}; the scopes are {choices}", fields={"scopes": f"choose from {choices}"})
    return wanted
