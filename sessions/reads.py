"""Rows read with few words: SELECTs that are written out, for what every wake waits for.

The ORM composes a statement anew each time, for longer than the database takes to answer it. What is read
once an hour is the ORM's to read.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from string import Formatter
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import Model


class Read:
    """A SELECT of rows of one model; columns of other tables become attributes of the rows.

    `{name}` in the SQL stands for a value, or for the values of a collection with commas between: none
    match where it is empty. `{lock:s, t}` stands for locking the rows of these tables until the transaction
    ends; SQLite, where one transaction writes at a time, has no need of it.
    """

    def __init__(self, model: type[Model], sql: str) -> None:
        self._model = model
        self._parts = [(text, name, tables) for text, name, tables, _ in Formatter().parse(sql)]

    def __call__(self, **values: Any) -> list[Any]:
        connection = connections[DEFAULT_DB_ALIAS]
        sql: list[str] = []
        parameters: list[Any] = []
        for text, name, tables in self._parts:
            sql.append(text)
            if name == "lock":
                sql.append(f"FOR UPDATE OF {tables}" if connection.features.has_select_for_update else "")
            elif name:
                given = values[name]
                many = given if isinstance(given, Collection) and not isinstance(given, str) else [given]
                sql.append(", ".join(["%s"] * len(many)) or "NULL")
                parameters += [_plain(value, connection) for value in many]
        return list(self._model._default_manager.raw("".join(sql), parameters))  # noqa: SLF001 (public, in spite of it)


def _plain(value: Any, connection: Any) -> Any:
    """Return a value as the database compares it with a column of its kind."""
    if isinstance(value, UUID):
        return value if connection.features.has_native_uuid_field else value.hex
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return value
