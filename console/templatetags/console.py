"""How instants, statuses, identifiers, JSON and long text are shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from sessions.instants import iso
from sessions.text import cut

register = template.Library()

EXCERPT_CHARS = 800  # of a text that are shown at once
WHOLE_CHARS = 20_000  # of a text that are shown when it is opened; the API has the rest

_UNITS = [(86400, "d"), (3600, "h"), (60, "min"), (1, "s")]
_TONES = {
    "armed": "good",
    "running": "live",
    "delivered": "good",
    "paused": "warn",
    "pending": "warn",
    "interrupted": "warn",
    "failed": "bad",
    "lost": "bad",
    "quarantined": "bad",
}


@register.simple_tag
def when(instant: datetime | None, now: datetime) -> str:
    """Show an instant as a distance from now, the instant itself as its title; a dash for none."""
    if instant is None:
        return "–"
    return _time(instant, f"{instant.astimezone(UTC):%a %Y-%m-%d %H:%M:%S} UTC", distance(instant - now))


@register.simple_tag
def instant(moment: datetime | None, now: datetime) -> str:
    """Show an instant in full, its distance from now as its title; a dash for none."""
    if moment is None:
        return "–"
    return _time(moment, distance(moment - now), f"{moment.astimezone(UTC):%a %Y-%m-%d %H:%M:%S} UTC")


@register.simple_tag
def clock(moment: datetime, now: datetime) -> str:
    """Show an instant as the time of day, with the date if it is not today's."""
    moment, today = moment.astimezone(UTC), now.astimezone(UTC).date()
    shown = f"{moment:%H:%M:%S}" if moment.date() == today else f"{moment:%Y-%m-%d %H:%M:%S}"
    return _time(moment, f"{moment:%a %Y-%m-%d %H:%M:%S} UTC, {distance(moment - now)}", shown)


@register.simple_tag
def pill(status: str) -> SafeString:
    """Show a status: always as a word, its colour only besides."""
    return format_html('<span class="pill {}">{}</span>', _TONES.get(status, "quiet"), status)


@register.filter
def short(identifier: UUID | str) -> str:
    """Return the end of an identifier, which tells it from its neighbours; the start is only the time."""
    return f"…{str(identifier)[-8:]}"


@register.filter
def pretty(value: Any) -> str:
    """Return a JSON value as indented text, or a text as it is, cut where it is very long."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return cut(text, WHOLE_CHARS)


@register.filter
def excerpt(text: str) -> str:
    """Return the beginning of a text, on one line."""
    return cut(" ".join(text[:400].split()), 200)


@register.filter
def lag(fire: Any) -> str:
    """Return how long after it was due a fire was recorded."""
    seconds = (fire.fired_at - fire.due_at).total_seconds()
    return f"{seconds:.1f} s" if seconds < 60 else span(timedelta(seconds=seconds))


@register.inclusion_tag("console/_prose.html")
def prose(text: str, *name: str | int) -> dict[str, Any]:
    """Show a text, folded where it is long. Its name keeps it open when the page around it is renewed."""
    long = len(text) > EXCERPT_CHARS
    return {
        "head": text[:EXCERPT_CHARS] if long else text,
        "whole": cut(text, WHOLE_CHARS) if long else "",
        "size": len(text),
        "identifier": "-".join(str(part) for part in name),
    }


def distance(ahead: timedelta) -> str:
    """Return a distance from now in words: "in 5 min", "2 h 5 min ago", "now"."""
    if abs(ahead) < timedelta(seconds=1):
        return "now"
    return f"in {span(ahead)}" if ahead > timedelta(0) else f"{span(-ahead)} ago"


def span(length: timedelta) -> str:
    """Return a length of time in its two largest units, or its largest where more would be noise."""
    seconds = int(length.total_seconds())
    for size, unit in _UNITS:
        if seconds < size:
            continue
        count, rest = divmod(seconds, size)
        smaller = next(((step, name) for step, name in _UNITS if step < size), None)
        if smaller and count < 10 and size > 60 and rest >= smaller[0]:
            return f"{count} {unit} {rest // smaller[0]} {smaller[1]}"
        return f"{count} {unit}"
    return "0 s"


def _time(moment: datetime, title: str, shown: str) -> SafeString:
    return format_html('<time datetime="{}" title="{}">{}</time>', iso(moment), title, shown)
