"""Signatures of webhooks: HMAC-SHA256 over the bytes that were sent. Pure; the clock is an argument."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from hmac import compare_digest, digest

STANDARD_HEADER = "webhook-signature"
STANDARD_PREFIX = "whsec_"  # before a secret that is the base64 of the key
TOLERANCE = timedelta(seconds=300)
_CANDIDATES = 20  # signatures in one header: a sender that rotates its secret sends two
_TIMESTAMP = re.compile(r"[0-9]{1,12}\Z")


def verify(signing_secret: str, headers: Mapping[str, str], body: bytes, header_name: str, now: datetime) -> bool:  # noqa: PLR0917
    """Return whether a header holds the right signature of a body.

    1. Of the body alone: hex in either case, or base64, with or without `sha256=` before it.
    2. If the header is `webhook-signature`, also as Standard Webhooks has it: `v1,<base64>`, more than
       one with blanks between them, of `<webhook-id>.<webhook-timestamp>.<body>`, not older or newer than
       300 seconds. https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md

    `headers` may have their names in any case; their values are latin-1, as WSGI and ASGI hand them over.
    The same work is done whether the header is there, empty or wrong.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    given = _bytes(lowered.get(header_name.lower(), ""))
    right = _is_plain(given, digest(signing_secret.encode(), body, sha256))
    if header_name.lower() == STANDARD_HEADER:
        right |= _is_standard(signing_secret, lowered, given, body, now=now)
    return right


def _bytes(value: str) -> bytes:
    return value.strip().encode("latin-1", "replace")


def _is_plain(given: bytes, expected: bytes) -> bool:
    if given[:7].lower() == b"sha256=":
        given = given[7:].strip()
    in_hex = compare_digest(given.lower(), expected.hex().encode())
    return in_hex | _is_base64(given, expected)


def _is_base64(given: bytes, expected: bytes) -> bool:
    return compare_digest(given.rstrip(b"="), base64.b64encode(expected).rstrip(b"="))


def _is_standard(secret: str, headers: Mapping[str, str], given: bytes, body: bytes, *, now: datetime) -> bool:
    identity, timestamp = headers.get("webhook-id", "").strip(), headers.get("webhook-timestamp", "").strip()
    signed = b".".join([_bytes(identity), _bytes(timestamp), body])
    versioned = [part.partition(b",") for part in given.split(None, _CANDIDATES)[:_CANDIDATES]]
    signatures = [signature for version, _, signature in versioned if version == b"v1"]
    right = False
    for key in _keys(secret):
        expected = digest(key, signed, sha256)
        for signature in signatures:
            right |= _is_base64(signature, expected)
    return right and bool(identity) and _is_current(timestamp, now)


def _keys(secret: str) -> list[bytes]:
    """Return what may be meant by a secret: its own bytes, and those it is the base64 of."""
    keys = [secret.encode()]
    if secret.startswith(STANDARD_PREFIX):
        try:
            keys.append(base64.b64decode(secret.removeprefix(STANDARD_PREFIX), validate=True))
        except binascii.Error:
            pass  # then it is a text that only looks so
    return keys


def _is_current(timestamp: str, now: datetime) -> bool:
    if not _TIMESTAMP.match(timestamp):
        return False
    return abs(now.timestamp() - int(timestamp)) <= TOLERANCE.total_seconds()
