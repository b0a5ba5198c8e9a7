"""Log records as one line each: `key=value` for people and grep, JSON for collectors."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

# What every record has: the rest of its attributes were given as `extra`.
_PLAIN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "asctime", "taskName"}


class KeyValue(logging.Formatter):
    """`at=2026-11-30T09:00:00.123Z level=info logger=rewake.engine msg="trigger fired" action=fire trigger=…`"""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_quoted(value)}" for key, value in _fields(self, record).items())


class Json(logging.Formatter):
    """The same fields as one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_fields(self, record), default=str, ensure_ascii=False)


def _fields(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, Any]:
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    fields: dict[str, Any] = {
        "at": at,
        "level": record.levelname.lower(),
        "logger": record.name,
        "msg": record.getMessage(),
    }
    fields |= {key: value for key, value in vars(record).items() if key not in _PLAIN and key not in fields}
    if record.exc_text or record.exc_info:
        fields["exc"] = record.exc_text or formatter.formatException(record.exc_info)  # type: ignore[arg-type]
    return fields


def _quoted(value: Any) -> str:
    text = str(value)
    bare = text.isprintable() and text != "" and not any(mark in text for mark in ' "=')
    return text if bare else json.dumps(text, ensure_ascii=False)
