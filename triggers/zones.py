"""Zones: IANA names made into zones, and wall-clock times made into instants."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, available_timezones

_KEY = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,3}", re.ASCII)
# Files beside the zones that open as zones but name no place: the machine's own, and copies with leap seconds.
_NOT_KEYS = re.compile(r"(localtime|posixrules|Factory|(posix|right)/.*)", re.IGNORECASE)


class ZoneError(ValueError):
    """A name that is no IANA time zone, or a wall-clock time out of place; `message` says what would be right."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def load_zone(name: object) -> ZoneInfo:
    """Return the zone with this IANA key, spelt as IANA spells it; raise ZoneError for anything else.

    Links that IANA keeps for old names (`US/Eastern`, `EST5EDT`, `GMT`) are keys. Abbreviations that IANA does not list
    (`IST`), offsets, paths and the machine's own `localtime` are not.
    """
    if not isinstance(name, str) or not _KEY.fullmatch(name) or _NOT_KEYS.fullmatch(name):
        raise ZoneError(_unknown(name))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # unknown; a file that is no zone; a folder such as America
        raise ZoneError(_unknown(name)) from error


def resolve_wall(naive: datetime, zone: ZoneInfo) -> list[datetime]:
    """List the UTC instants, earliest first, at which the zone's clocks show this naive time.

    One as a rule, none when the clocks jump over it (a gap), two when they show it twice (a fold). Raise ZoneError when
    the instant is outside the years that a datetime holds.
    """
    found = {instant for instant in _readings(naive, zone) if instant.astimezone(zone).replace(tzinfo=None) == naive}
    return sorted(found)


def gap_readings(naive: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return the two UTC instants, earliest first, that a time inside a gap may have meant.

    The one reads it by the offset after the jump, the other by the offset before it. Raise ZoneError when the time
    exists, or is outside the years that a datetime holds.
    """
    if resolve_wall(naive, zone):
        raise ZoneError(f"{naive.isoformat()} exists in {zone.key}.")
    earlier, later = sorted(_readings(naive, zone))
    return earlier, later


def _readings(naive: datetime, zone: ZoneInfo) -> list[datetime]:
    if naive.tzinfo is not None:
        raise ZoneError(f"{naive.isoformat()} has an offset already, so no zone is needed to read it.")
    try:
        return [naive.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
    except OverflowError as error:
        raise ZoneError(f"{naive.isoformat()} in {zone.key} is outside the years 1 to 9999.") from error


def _unknown(name: object) -> str:
    wanted = 'use an IANA key such as "Europe/Berlin" or "UTC"'
    if not isinstance(name, str):
        return f"timezone must be text, not {type(name).__name__}: {wanted}."
    near = sorted(key for key in available_timezones() if key.casefold() == name.casefold()[:99])
    hint = f' Did you mean "{near[0]}"?' if near and not _NOT_KEYS.fullmatch(name) else ""
    return f"timezone {name[:64]!r} is not an IANA time zone: {wanted}.{hint}"
