"""Rows read with few words: SELECTs that are written out, for what every wake waits for.

The ORM composes a statement anew each time, for longer than the database takes to answer it. What is read
once an hour is the ORM's to read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from string import Formatter
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections
from django.db.models import Model


class Read:
    """A SELECT of rows of one model; columns of other tables become attributes of the rows.

    `{name}` in the SQL stands for a value, or for the values of a collection with commas between: none
    match where it is empty. `{lock:s, t}` stands for locking the rows of these tables until the transaction
    ends; SQLite, where one transaction writes at a time, has no need of it.

    Outside a transaction a connection that has died since it was last used is replaced, and asked again: where
    Django would first ask it whether it lives, the read itself finds out.
    """

    def __init__(self, model: type[Model], sql: str) -> None:
        self._model = model
        self._shapes: dict[tuple[str, int], _Shape] = {}  # by vendor and number of columns: names are dear to ask for
        self._parts = [(text, name, tables) for text, name, tables, _ in Formatter().parse(sql)]

    def __call__(self, **values: Any) -> list[Any]:
        connection: Any = connections[DEFAULT_DB_ALIAS]
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
                parameters += [stored(value, connection) for value in many]
        unproven = not (connection.in_atomic_block or connection.health_check_done)
        connection.health_check_done |= unproven
        try:
            return self._rows("".join(sql), parameters, connection)
        except (OperationalError, InterfaceError):
            if not unproven or connection.is_usable():
                raise
            connection.close()
            return self._rows("".join(sql), parameters, connection)

    def _rows(self, sql: str, parameters: list[Any], connection: Any) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            rows = cursor.fetchall()
            if not rows:
                return []
            kind = (connection.vendor, len(rows[0]))
            if kind not in self._shapes:
                self._shapes[kind] = _shape(self._model, [column[0] for column in cursor.description])
        return [self._shapes[kind].row(values, connection) for values in rows]


Convert = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class _Column:
    """Where a value stands in a row, what it is called, and what makes Python's value of the database's."""

    place: int
    name: str
    expression: Any = None
    converters: Sequence[Convert] = ()

    def value(self, values: Sequence[Any], connection: Any) -> Any:
        value = values[self.place]
        for convert in self.converters:
            value = convert(value, self.expression, connection)
        return value


@dataclass(frozen=True)
class _Shape:
    """What the columns of a SELECT are to a model: its fields, in the model's order, and others."""

    model: type[Model]
    fields: Sequence[_Column]
    others: Sequence[_Column]

    def row(self, values: Sequence[Any], connection: Any) -> Model:
        names = [column.name for column in self.fields]
        row = self.model.from_db(connection.alias, names, [column.value(values, connection) for column in self.fields])
        for column in self.others:
            setattr(row, column.name, values[column.place])
        return row


def _shape(model: type[Model], names: Sequence[str]) -> _Shape:
    """Find the fields of a model among columns, each with the conversions that the ORM would make."""
    connection = connections[DEFAULT_DB_ALIAS]
    places = {name: place for place, name in enumerate(names)}
    fields = []
    for field in model._meta.concrete_fields:  # noqa: SLF001 (Django's public API, whatever its name)
        if field.column in places:
            expression = field.get_col(model._meta.db_table)  # noqa: SLF001
            converters = [*connection.ops.get_db_converters(expression), *expression.get_db_converters(connection)]
            fields.append(_Column(places.pop(field.column), field.attname, expression, converters))
    return _Shape(model, fields, [_Column(place, name) for name, place in places.items()])


def stored(value: Any, connection: Any) -> Any:
    """Return an id, an instant or a plain value as the database stores it, and compares it with what it has stored."""
    if isinstance(value, UUID):
        return value if connection.features.has_native_uuid_field else value.hex
    if isinstance(value, datetime):
        return connection.ops.adapt_datetimefield_value(value)
    return value
