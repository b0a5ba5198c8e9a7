"""Log lines: one a record, whatever is in it."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from config.logs import Json, KeyValue


def _record(msg: str, *args: object, **extra: Any) -> logging.LogRecord:
    return logging.getLogger("rewake.test").makeRecord(
        "rewake.test", logging.INFO, "file.py", 1, msg, args, None, extra=extra
    )


def _failed() -> logging.LogRecord:
    record = _record("it broke")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record.exc_info = sys.exc_info()
    return record


def test_it_writes_keys_and_values() -> None:
    record = _record("fired %d times", 2, action="fire", trigger="a b", empty="")
    record.created = 1764579600.25

    assert KeyValue().format(record) == (
        'at=2025-12-01T09:00:00.250Z level=info logger=rewake.test msg="fired 2 times" '
        'action=fire trigger="a b" empty=""'
    )


def test_it_writes_an_error_in_one_line() -> None:
    line = KeyValue().format(_failed())

    assert "\n" not in line
    assert "ValueError: two" in line


def test_it_does_not_let_text_forge_a_field_or_a_line() -> None:
    line = KeyValue().format(_record("x", name_given='a" level=error\nat=now'))

    assert line.endswith(r'name_given="a\" level=error\nat=now"')


def test_it_writes_json() -> None:
    line = Json().format(_record("fired", action="fire", count=2))

    assert "\n" not in line
    assert json.loads(line) | {"at": ""} == {
        "at": "",
        "level": "info",
        "logger": "rewake.test",
        "msg": "fired",
        "action": "fire",
        "count": 2,
    }


def test_it_prefers_a_traceback_that_was_masked() -> None:
    record = _failed()
    record.exc_text = "masked"

    assert json.loads(Json().format(record))["exc"] == "masked"
