"""Who calls, and under which idempotency key."""

from __future__ import annotations

from rest_framework.request import Request

from sessions.exceptions import Invalid
from sessions.models import ApiKey

KEY_MAX_CHARS = 200


def caller(request: Request) -> str:
    """Return who calls, as the transcript names it: the name of the API key."""
    assert isinstance(request.auth, ApiKey)
    return f"key:{request.auth.name}"


def idempotency_key(request: Request) -> str | None:
    """Return the `Idempotency-Key` header, None if there is none. Raises `Invalid`."""
    given = request.headers.get("Idempotency-Key")
    if given is None:
        return None
    key = str(given).strip()
    if not 1 <= len(key) <= KEY_MAX_CHARS or not key.isprintable():
        wish = f"1 to {KEY_MAX_CHARS} printable characters"
        raise Invalid(f"Idempotency-Key: must be {wish}", fields={"Idempotency-Key": wish})
    return key
