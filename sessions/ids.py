"""Identifiers that sort by the moment they were made."""

from __future__ import annotations

import secrets
import threading
import time
from datetime import datetime
from uuid import UUID

_lock = threading.Lock()
_last = 0


def uuid7() -> UUID:
    """Return a time-ordered UUID (RFC 9562, version 7), strictly increasing within this process.

    The 12 bits after the millisecond hold its fraction (method 3 of section 6.2). Rows made
    later sort later, so a list "newest first" needs no index but the primary key's.
    """
    global _last  # noqa: PLW0603 (one counter a process is what makes it increase)
    with _lock:
        ticks = max(time.time_ns() * 4096 // 1_000_000, _last + 1)
        _last = ticks
    milliseconds, fraction = divmod(ticks, 4096)
    value = (milliseconds & (1 << 48) - 1) << 80 | 7 << 76 | fraction << 64 | 2 << 62 | secrets.randbits(62)
    return UUID(int=value)


def lowest_at(instant: datetime) -> UUID:
    """Return the lowest id that can be made at an instant: rows from then on have this id or a higher one."""
    return UUID(int=(max(int(instant.timestamp() * 1000), 0) & (1 << 48) - 1) << 80 | 7 << 76 | 2 << 62)
