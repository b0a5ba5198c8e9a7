"""Secrets: made with a telling prefix, encrypted at rest, masked wherever text leaves."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

KEY = "rwk"  # an API key
HOOK = "rwh"  # the secret in a capability URL
SIGNING = "rws"  # a webhook's signing secret
TURN = "rwt"  # a turn token

_SECRET = re.compile(r"\b(rw[khst]_)[A-Za-z0-9_-]{8,}")


class Unreadable(Exception):
    """Something encrypted at rest cannot be read with any of ENCRYPTION_KEYS."""


def mint(prefix: str) -> str:
    """Return a new secret of 256 random bits, as `<prefix>_<43 URL-safe characters>`."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def digest(secret: str) -> str:
    """Return the SHA-256 of a secret as hex: what is stored of a secret that need not be shown again."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def encrypt(value: Any) -> str:
    """Encrypt a JSON value for storing."""
    return _fernet(tuple(settings.ENCRYPTION_KEYS)).encrypt(json.dumps(value).encode()).decode("ascii")


def decrypt(token: str) -> Any:
    """Read back what `encrypt` made. Raises `Unreadable`."""
    try:
        return json.loads(_fernet(tuple(settings.ENCRYPTION_KEYS)).decrypt(token))
    except InvalidToken as error:
        raise Unreadable("none of ENCRYPTION_KEYS can read it: add the key it was written with") from error


def mask(value: Any) -> Any:
    """Return `value` with every secret of ours in it, at any depth, reduced to its prefix."""
    if isinstance(value, str):
        return _SECRET.sub(r"\1***", value) if "rw" in value else value
    if isinstance(value, dict):
        return {key: mask(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask(item) for item in value]
    return value


class MaskSecrets(logging.Filter):
    """Masks secrets in every log record, its arguments and its traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = mask(record.getMessage())
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_text = mask(record.exc_text)
        return True


@lru_cache(maxsize=4)
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])
