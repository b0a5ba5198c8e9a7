"""Secrets: made with a telling prefix, encrypted at rest, masked wherever text leaves."""

from __future__ import annotations

import base64
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

STANDARD = "whsec"  # a signing secret as Standard Webhooks has it: base64 follows

# At the start of a word, or behind a percent-encoded character: payloads come form-encoded too.
_SECRET = re.compile(
    r"(?:(?<![A-Za-z0-9_])|(?<=%[0-9A-Fa-f]{2}))(?:(rw[khst]_)[A-Za-z0-9_-]{8,}|(whsec_)[A-Za-z0-9+/=%_-]{8,})"
)
# A wrong secret has any shape: in a log nothing is left of what follows this path, up to the end of a request line.
_HOOK_PATH = re.compile(r"(?is)(/api/triggers/hook/).*?(?=\sHTTP/[0-9]|\Z)")
_RECORD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "asctime", "taskName"}


class Unreadable(Exception):
    """Something encrypted at rest cannot be read with any of ENCRYPTION_KEYS."""


def mint(prefix: str) -> str:
    """Return a new secret of 256 random bits, as `<prefix>_<43 URL-safe characters>`."""
    return f"{prefix}_{secrets.token_urlsafe(32)}"


def mint_standard() -> str:
    """Return a new signing secret of 256 random bits in the form that Standard Webhooks libraries take."""
    return f"{STANDARD}_{base64.b64encode(secrets.token_bytes(32)).decode('ascii')}"


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
        return _SECRET.sub(r"\1\2***", value) if "rw" in value or "whsec" in value else value
    if isinstance(value, dict):
        return {key: mask(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask(item) for item in value]
    return value


def mask_log(value: Any) -> Any:
    """Return what a log line may show of `value`: secrets masked, capability URLs cut; an object becomes its text."""
    if isinstance(value, str):
        value = mask(value)
        return _HOOK_PATH.sub(r"\1***", value) if "hook" in value.lower() else value
    if isinstance(value, dict):
        return {key: mask_log(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_log(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else mask_log(str(value))


class MaskSecrets(logging.Filter):
    """Masks secrets in every log record: its message, what was given as `extra`, and its traceback, line by line."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = mask_log(record.getMessage())
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = "\n".join(mask_log(line) for line in record.exc_text.split("\n"))
        for name in vars(record).keys() - _RECORD:
            setattr(record, name, mask_log(getattr(record, name)))
        return True


@lru_cache(maxsize=4)
def _fernet(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])
