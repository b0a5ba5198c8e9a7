"""Offsets: when a zone's clocks change, found by asking it, since zoneinfo does not say."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

# Two changes of offset lie at least this far apart, or the first is seen only because it leaves a different offset.
# The shortest pair in the IANA database is four days (Africa/Freetown, 1939); since 1970 it is seven.
STRIDE = timedelta(days=3)

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The instants [start, stop), in UTC, through which a zone keeps one offset."""

    start: datetime
    stop: datetime
    offset: timedelta


def offset_at(zone: ZoneInfo, instant: datetime) -> timedelta:
    """Return how far the zone's clocks are ahead of UTC at an aware instant."""
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None  # a ZoneInfo always knows
    return offset


def stretches(zone: ZoneInfo, start: datetime, stop: datetime) -> Iterator[Stretch]:
    """Cut the instants [start, stop), in UTC, into stretches of one offset each, lazily and in order.

    A changed name or a changed daylight flag at the same offset does not begin a new stretch.
    """
    begin = probe = start
    offset = offset_at(zone, start)
    while probe < stop:
        ahead = min(probe + STRIDE, stop)
        if offset_at(zone, ahead) == offset:
            probe = ahead
            continue
        probe = _first_change(zone, probe, ahead)
        yield Stretch(begin, probe, offset)
        begin, offset = probe, offset_at(zone, probe)
    if begin < stop:
        yield Stretch(begin, stop, offset)


def _first_change(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    # Zones change on whole seconds, so both ends may be floored to one without stepping over a change.
    low, high = low.replace(microsecond=0), high.replace(microsecond=0)
    offset = offset_at(zone, low)
    seconds = range((high - low) // _SECOND)
    return low + _SECOND * bisect_left(seconds, True, key=lambda n: offset_at(zone, low + _SECOND * n) != offset)
