"""Rows written with few words: statements that are collected and sent together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import JSONField, Model

_PLAIN = (str, int, bool, type(None))  # what both databases take as it is


class Script:
    """INSERTs and UPDATEs that are sent together by `run`, in the order in which they were added.

    They are what `bulk_create` and `save(update_fields=…)` would send. The ORM makes each statement anew, for longer
    than the database takes to do it, and waits for each; where much is written, that is most of what it costs.
    """

    def __init__(self) -> None:
        self._statements: list[tuple[str, list[Any]]] = []
        self._connection = connections[DEFAULT_DB_ALIAS]

    def insert(self, rows: Sequence[Model]) -> None:
        """Add an INSERT of rows of one model. An id that is the database's to give does not come back."""
        if rows:
            start, fields, values = _insertion(type(rows[0]))
            self._add(start + ", ".join([values] * len(rows)), [(row, field) for row in rows for field in fields])

    def update(self, row: Model, *names: str) -> None:
        """Add an UPDATE of some of a row's columns to what the row holds; whoever does has locked it."""
        start, fields = _change(type(row), names)
        self._add(start, [(row, field) for field in fields])

    def run(self) -> None:
        """Send all: to PostgreSQL at once, to SQLite one by one, since it takes no more and is not far."""
        with self._connection.cursor() as cursor:
            for sql, parameters in self._joined() if self._connection.vendor == "postgresql" else self._statements:
                cursor.execute(sql, parameters)
        self._statements = []

    def _add(self, sql: str, cells: Sequence[tuple[Model, Any]]) -> None:
        ready = [_stored(field, getattr(row, field.attname), self._connection) for row, field in cells]
        self._statements.append((sql, ready))

    def _joined(self) -> list[tuple[str, list[Any]]]:
        if not self._statements:
            return []
        sql = ";".join(sql for sql, _ in self._statements)
        return [(sql, [parameter for _, parameters in self._statements for parameter in parameters])]


def stored(model: type[Model], name: str, value: Any) -> Any:
    """Return a value as raw SQL takes it to compare it with a model's column."""
    return _stored(_options(model).get_field(name), value, connections[DEFAULT_DB_ALIAS])


@lru_cache
def _insertion(model: type[Model]) -> tuple[str, list[Any], str]:
    """Return the start of an INSERT, the fields in their order, and the placeholders of one row."""
    options = _options(model)
    fields = [field for field in options.concrete_fields if not field.primary_key or field.has_default()]
    columns = ", ".join(f'"{field.column}"' for field in fields)
    values = f"({', '.join(['%s'] * len(fields))})"
    return f'INSERT INTO "{options.db_table}" ({columns}) VALUES ', fields, values  # noqa: S608 (names of ours)


@lru_cache
def _change(model: type[Model], names: tuple[str, ...]) -> tuple[str, list[Any]]:
    """Return an UPDATE of one row, and the fields of its parameters in their order."""
    options = _options(model)
    fields = [options.get_field(name) for name in names]
    columns = ", ".join(f'"{field.column}" = %s' for field in fields)
    key = options.pk
    sql = f'UPDATE "{options.db_table}" SET {columns} WHERE "{key.column}" = %s'  # noqa: S608 (names of ours)
    return sql, [*fields, key]


def _options(model: type[Model]) -> Any:
    return model._meta  # noqa: SLF001 (Django's public API, whatever its name)


def _stored(field: Any, value: Any, connection: Any) -> Any:
    if type(value) in _PLAIN and not isinstance(field, JSONField):
        return value
    return field.get_db_prep_save(value, connection)
