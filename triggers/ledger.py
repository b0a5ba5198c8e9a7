"""The only writer of Fire: each occurrence of a trigger, recorded once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sessions.models import Wake
from sessions.reads import Read
from sessions.script import Script
from sessions.secrecy import digest
from sessions.text import cut, storable
from triggers.models import Fire, Trigger

OCCURRENCE_MAX_CHARS = 300


@dataclass(frozen=True)
class Occurrence:
    """One firing to record. `payload` is text from outside, `note` our own words about it."""

    key: str
    due_at: datetime
    payload: str = ""
    payload_source: str = ""
    content_type: str = ""
    payload_bytes: int = 0
    truncated: bool = False
    note: str = ""
    last: bool = False  # nothing can follow: the trigger is completed by it


def record(rows: Sequence[Fire], script: Script) -> None:
    """Write fires as part of a script, which raises `IntegrityError` if any has been recorded before."""
    script.insert(rows)


def fire(trigger: Trigger, occurrence: Occurrence, wake: Wake, *, number: int, reason: str, now: datetime) -> Fire:
    """Return the row of a fire, to be recorded. `number`: which of the trigger's fires it is."""
    return Fire(
        trigger=trigger,
        occurrence=occurrence.key,
        number=number,
        due_at=occurrence.due_at,
        fired_at=now,
        reason=cut(reason, 500),
        wake=wake,
    )


def skip(trigger: Trigger, key: str, *, due_at: datetime, reason: str, now: datetime) -> Fire:
    """Return the row of an occurrence that is given up, to be recorded."""
    return Fire(
        trigger=trigger, occurrence=key, number=0, due_at=due_at, fired_at=now, reason=cut(reason, 500), skipped=True
    )


_RECORDED = Read(
    Fire,
    "SELECT f.id, f.trigger_id, f.occurrence FROM rewake_fire f "
    "WHERE f.trigger_id IN ({triggers}) AND f.occurrence IN ({keys})",
)


def recorded(pairs: Collection[tuple[UUID, str]]) -> set[tuple[UUID, str]]:
    """Return those pairs of trigger and occurrence that have been recorded."""
    rows = _RECORDED(triggers={trigger_id for trigger_id, _ in pairs}, keys={key for _, key in pairs}) if pairs else ()
    return {(row.trigger_id, row.occurrence) for row in rows}.intersection(pairs)


def key_of(text: str) -> str:
    """Return a text from outside as an occurrence: storable, and unique even where it is long."""
    text = storable(text)
    if len(text) <= OCCURRENCE_MAX_CHARS:
        return text
    return text[: OCCURRENCE_MAX_CHARS - 65] + ":" + digest(text)
