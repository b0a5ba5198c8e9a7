"""Rows written with few words: statements that are collected and sent together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import JSONField, Model

from sessions.machine import Machine
from sessions.reads import stored

S = TypeVar("S", bound=StrEnum)

_Piece = tuple[str, list[Any]]  # SQL and its parameters
_PLAIN = {str, int, bool, type(None), UUID, datetime}  # what no field need be asked about


class Script:
    """INSERTs and UPDATEs that are sent together by `run`, in the order in which they were added.

    They are what `bulk_create` and `save(update_fields=…)` would send. The ORM makes each statement anew, for longer
    than the database takes to do it, and waits for each; where much is written, that is most of what it costs.
    """

    def __init__(self) -> None:
        self._statements: list[tuple[str, list[_Piece]]] = []
        self._connection = connections[DEFAULT_DB_ALIAS]

    def insert(self, rows: Sequence[Model]) -> None:
        """Add an INSERT of rows of one model. An id that is the database's to give does not come back."""
        if rows:
            start, fields, values = _insertion(type(rows[0]))
            self._statements.append((start, [(values, self._values(row, fields)) for row in rows]))
            for row in rows:
                row._state.adding = False  # noqa: SLF001 (so that a later `save` is an UPDATE, as after `bulk_create`)

    def update(self, row: Model, *names: str) -> None:
        """Add an UPDATE of some of a row's columns to what the row holds; whoever does has locked it."""
        sql, fields = _change(type(row), names)
        self._statements.append(("", [(sql, self._values(row, fields))]))

    def move(self, machine: Machine[S], rows: Sequence[Model], target: S, **fields: Any) -> None:
        """Add the UPDATE by which `Machine.move` moves rows of one model to a status, and set these to what it sets.

        How many moved does not come back: whoever moves rows this way has locked them.
        """
        if not rows:
            return
        for row in rows:
            for name, value in {"status": target, **fields}.items():
                setattr(row, name, value)
        start, changed, key_field, status = _moving(type(rows[0]), tuple(fields))
        sources = sorted(machine.sources(target))
        sql = f"{start} IN ({_marks(rows)}) AND {status.column} IN ({_marks(sources)})"
        keys = [key for row in rows for key in self._values(row, [key_field])]
        self._statements.append(("", [(sql, [*self._values(rows[0], changed), *keys, *sources])]))

    def run(self) -> None:
        """Send all: to PostgreSQL at once, to SQLite one by one, since it takes no more and is not far."""
        statements, self._statements = self._statements, []
        with self._connection.cursor() as cursor:
            if statements and self._connection.vendor == "postgresql":
                # Piece by piece, because psycopg remembers how to read a short text, but reads a long one anew.
                texts = (start + ", ".join(cursor.mogrify(*piece) for piece in pieces) for start, pieces in statements)
                cursor.execute(";".join(texts))
                return
            for start, pieces in statements:
                values = [value for _, values in pieces for value in values]
                cursor.execute(start + ", ".join(sql for sql, _ in pieces), values)

    def _values(self, row: Model, fields: Sequence[Any]) -> list[Any]:
        return [_stored(field, getattr(row, field.attname), self._connection) for field in fields]


@lru_cache
def _insertion(model: type[Model]) -> tuple[str, list[Any], str]:
    """Return the start of an INSERT, the fields in their order, and the placeholders of one row."""
    options = _options(model)
    fields = [field for field in options.concrete_fields if not field.primary_key or field.has_default()]
    columns = ", ".join(f'"{field.column}"' for field in fields)
    values = f"({_marks(fields)})"
    return f'INSERT INTO "{options.db_table}" ({columns}) VALUES ', fields, values  # noqa: S608 (names of ours)


@lru_cache
def _change(model: type[Model], names: tuple[str, ...]) -> tuple[str, list[Any]]:
    """Return an UPDATE of one row, and the fields of its parameters in their order."""
    options = _options(model)
    fields = [options.get_field(name) for name in names]
    key = options.pk
    return f'{_setting(options, fields)} WHERE "{key.column}" = %s', [*fields, key]


@lru_cache
def _moving(model: type[Model], names: tuple[str, ...]) -> tuple[str, list[Any], Any, Any]:
    """Return an UPDATE of status and other columns up to its ids, what it sets, the key's field and the status's."""
    options = _options(model)
    fields = [options.get_field(name) for name in ("status", *names)]
    return f'{_setting(options, fields)} WHERE "{options.pk.column}"', fields, options.pk, fields[0]


def _setting(options: Any, fields: Sequence[Any]) -> str:
    columns = ", ".join(f'"{field.column}" = %s' for field in fields)
    return f'UPDATE "{options.db_table}" SET {columns}'  # noqa: S608 (names of ours)


def _marks(items: Sequence[Any]) -> str:
    return ", ".join(["%s"] * len(items))


def _options(model: type[Model]) -> Any:
    return model._meta  # noqa: SLF001 (Django's public API, whatever its name)


def _stored(field: Any, value: Any, connection: Any) -> Any:
    if type(value) in _PLAIN and not isinstance(field, JSONField):
        return stored(value, connection)
    return field.get_db_prep_save(value, connection)
