"""Instants as text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload


@overload
def iso(instant: datetime) -> str: ...
@overload
def iso(instant: None) -> None: ...
@overload
def iso(instant: datetime | None) -> str | None: ...
def iso(instant: datetime | None) -> str | None:
    """Return an instant as the wire shows it: ISO 8601 in UTC with `Z`, fractions only where there are any."""
    if instant is None:
        return None
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
