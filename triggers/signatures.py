"""Signatures of webhooks: HMAC-SHA256 over the bytes that were sent. Pure; the clock is an argument."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from hmac import compare_digest, new

STANDARD_HEADER = "webhook-signature"
STANDARD_PREFIX = "whsec_"  # before a secret that is the base64 of the key
TOLERANCE = timedelta(seconds=300)
_CANDIDATES = 20  # signatures in one header: a sender that rotates its secret sends two
_TIMESTAMP = re.compile(r"[0-9]{1,12}\Z")


class Verifier:
    """Tells whether a header holds the right signature of a body that comes in chunks.

    1. Of the body alone: hex in either case, or base64, with or without `sha256=` before it.
    2. If the header is `webhook-signature`, also as Standard Webhooks has it: `v1,<base64>`, more than
       one with blanks between them, of `<webhook-id>.<webhook-timestamp>.<body>`, not older or newer than
       300 seconds. https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md

    `headers` have their names in lower case; their values are latin-1, as WSGI and ASGI hand them over.
    The same work is done whether the header is there, empty or wrong.
    """

    def __init__(self, signing_secret: str, headers: Mapping[str, str], header_name: str) -> None:
        name = header_name.lower()
        self._given = _bytes(headers.get(name, ""))
        self._headers = headers
        self._macs = [new(signing_secret.encode(), digestmod=sha256)]
        if name == STANDARD_HEADER:
            start = b"".join(_bytes(headers.get(part, "")) + b"." for part in ("webhook-id", "webhook-timestamp"))
            self._macs += [new(key, start, sha256) for key in _keys(signing_secret)]

    def update(self, chunk: bytes) -> None:
        for mac in self._macs:
            mac.update(chunk)

    def right(self, now: datetime) -> bool:
        """Return whether the chunks that came are the whole of a body that was signed."""
        plain, *standard = [mac.digest() for mac in self._macs]
        right = _is_plain(self._given, plain)
        if standard:
            right |= _is_standard(self._given, standard) and _is_recent(self._headers, now)
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


def _is_standard(given: bytes, expected: Sequence[bytes]) -> bool:
    versioned = [part.partition(b",") for part in given.split(None, _CANDIDATES)[:_CANDIDATES]]
    signatures = [signature for version, _, signature in versioned if version == b"v1"]
    right = False
    for one in expected:
        for signature in signatures:
            right |= _is_base64(signature, one)
    return right


def _keys(secret: str) -> list[bytes]:
    """Return what may be meant by a secret: its own bytes, and those it is the base64 of."""
    keys = [secret.encode()]
    if secret.startswith(STANDARD_PREFIX):
        try:
            keys.append(base64.b64decode(secret.removeprefix(STANDARD_PREFIX), validate=True))
        except binascii.Error:
            pass  # then it is a text that only looks so
    return keys


def _is_recent(headers: Mapping[str, str], now: datetime) -> bool:
    identity, timestamp = headers.get("webhook-id", "").strip(), headers.get("webhook-timestamp", "").strip()
    if not identity or not _TIMESTAMP.match(timestamp):
        return False
    return abs(now.timestamp() - int(timestamp)) <= TOLERANCE.total_seconds()
