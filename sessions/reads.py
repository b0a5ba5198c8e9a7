"""Rows read with few words: SELECTs that are written out, for what every wake waits for.

The ORM composes a statement anew each time, for longer than the database takes to answer it. What is read
once an hour is the ORM's to read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
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
                parameters += [stored(value, connection) for value in many]
        with connection.cursor() as cursor:
            cursor.execute("".join(sql), parameters)
            rows = cursor.fetchall()
            shape = _shape(self._model, tuple(column[0] for column in cursor.description), connection.vendor)
        return [shape.row(values, connection) for values in rows]


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


@cache
def _shape(model: type[Model], names: tuple[str, ...], _vendor: str) -> _Shape:
    """Find the fields of a model among columns, each with the conversions that the ORM would make, once."""
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
