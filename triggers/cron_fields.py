"""The grammar of cron's five fields, strict and after crontab(5): texts made into values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_LENGTH = 200

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_WANTED = "write exactly 5 fields: minute hour day-of-month month day-of-week, e.g. `0 9 * * 1-5`"
_ITEM = re.compile(r"(?:(\*)|([a-z]+|[0-9]+)(?:-([a-z]+|[0-9]+))?)(?:/([0-9]+))?")


class CronError(ValueError):
    """An expression outside the grammar; `message` names the field, what was wrong and what would be right."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Field:
    """One of the five: its numbers, and the names that may stand for them."""

    name: str
    low: int
    high: int
    every: tuple[int, ...]  # what `*` stands for
    names: tuple[str, ...] = ()
    wrap: int = 60  # values are taken modulo this: day of week 7 is Sunday as well


MINUTE = Field("minute", 0, 59, every=tuple(range(60)))
HOUR = Field("hour", 0, 23, every=tuple(range(24)))
DAY = Field("day of month", 1, 31, every=tuple(range(1, 32)))
MONTH = Field("month", 1, 12, every=tuple(range(1, 13)), names=_MONTHS)
WEEKDAY = Field("day of week", 0, 7, every=tuple(range(7)), names=_WEEKDAYS, wrap=7)
FIELDS = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)


def split_fields(expression: str) -> list[str]:
    """Cut an expression into the texts of its five fields; raise CronError when it is not five."""
    if len(expression) > MAX_LENGTH:
        raise CronError(f"cron has {len(expression)} characters, at most {MAX_LENGTH} are allowed; {_WANTED}.")
    if not expression.isascii() or not expression.strip().replace("\t", " ").isprintable():
        raise CronError(f"cron may hold ASCII letters, digits, spaces and `* , - /` only, in one line; {_WANTED}.")
    texts = expression.split()
    if len(texts) != len(FIELDS):
        seconds = " seconds are not supported," if len(texts) == 6 else ""
        raise CronError(f"cron has {len(texts)} field{'s' * (len(texts) != 1)}:{seconds} {_WANTED}.")
    return texts


def read_field(field: Field, text: str) -> tuple[int, ...]:
    """List, sorted, the values that a field's text stands for; raise CronError outside the grammar."""
    if text == "*":
        return field.every
    if text.isdigit():
        return (_number(field, text, text) % field.wrap,)
    wrap = field.wrap
    if "," not in text and wrap > field.high:
        return tuple(_item(field, text.lower()))  # in order, and nothing twice
    found = {value % wrap for item in text.lower().split(",") for value in _item(field, item)}
    return tuple(sorted(found))


def _item(field: Field, item: str) -> Sequence[int]:
    if item.isdigit() or item in field.names:
        return (_number(field, item, item),)
    match = _ITEM.fullmatch(item)
    if match is None:
        raise _refusal(field, item, "is not understood")
    star, low, high, step = match.groups()
    if star:
        return range(field.low, field.every[-1] + 1, _step(field, item, step))
    if step and not high:
        raise _refusal(field, item, f"puts a step on a single value; write {low}-{field.every[-1]}/{step}")
    first = _number(field, item, low)
    last = _number(field, item, high) if high else first
    if high == "sun":
        last = 7  # `sat-sun` is 6-7
    if first > last:
        raise _refusal(field, item, "runs backwards; a range does not wrap around, write two with a comma")
    return range(first, last + 1, _step(field, item, step))


def _number(field: Field, item: str, text: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.low
    if not text.isdigit():
        raise _refusal(field, item, f"has the unknown name {text!r}")
    number = int(text)
    if not field.low <= number <= field.high:
        raise _refusal(field, item, f"has {text}, which is out of range")
    return number


def _step(field: Field, item: str, text: str | None) -> int:
    step, span = int(text or 1), len(field.every)
    if not 1 <= step <= span:
        raise _refusal(field, item, f"has a step of {step}, where 1 to {span} is possible: every {field.name} restarts")
    return step


def _refusal(field: Field, item: str, fault: str) -> CronError:
    names = f" or {field.names[0]}-{field.names[-1]}" if field.names else ""
    allowed = f"`*`, n, a-b, `*/step` or a-b/step with numbers {field.low}-{field.high}{names}"
    return CronError(f"cron, {field.name} field: `{item}` {fault}. Allowed is a comma list of {allowed}.")
