"""Strict readers of what a request carries, and pages of what a list answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from rest_framework import serializers
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.request import Request

from sessions.text import storable

LIMIT_MAX = 200
LIMIT_DEFAULT = 50
_PROHIBITIONS = ("ProhibitNullCharactersValidator", "ProhibitSurrogateCharactersValidator")

M = TypeVar("M", bound=Model)


class LengthRequired(APIException):
    status_code = 411
    default_detail = "the body has no Content-Length; a chunked body is not read here"
    default_code = "length_required"


class Text(serializers.CharField):
    """Text as it was sent: what no database can store is replaced by U+FFFD. A number is no text, nor are blanks."""

    default_error_messages = {"invalid": "must be a text"}

    def __init__(self, **options: Any) -> None:
        options.setdefault("trim_whitespace", False)
        super().__init__(**options)
        self.validators = [one for one in self.validators if type(one).__name__ not in _PROHIBITIONS]

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        if not self.allow_blank and not data.strip():
            self.fail("blank")
        return str(storable(super().to_internal_value(data)))


class Choice(serializers.ChoiceField):
    """One of a closed set; whoever asks for something else is told what there is."""

    def __init__(self, choices: Sequence[str], **options: Any) -> None:
        wish = f'"{{input}}" is none of {", ".join(map(str, choices))}'
        super().__init__(choices=list(choices), error_messages={"invalid_choice": wish}, **options)


class Form(serializers.Serializer[Any]):
    """Fields that are not listed here are refused, by name."""

    def to_internal_value(self, data: Any) -> Any:
        known = ", ".join(self.fields) or "none"
        unknown = [str(name) for name in data if name not in self.fields]
        if unknown:
            raise ValidationError({name: [f"is not known here; what is known: {known}"] for name in unknown[:20]})
        return super().to_internal_value(data)


class Nothing(Form):
    """The body of a request that needs none: absent, or an empty object."""


class PageForm(Form):
    """Which stretch of a list is wanted."""

    limit = serializers.IntegerField(
        min_value=1, max_value=LIMIT_MAX, default=LIMIT_DEFAULT, help_text="How many at most."
    )
    cursor = serializers.UUIDField(required=False, help_text="`next` of the page before.")


def no_body(request: Request) -> None:
    """Refuse a JSON body that asks for something, where nothing can be asked for; what is not JSON asks nothing."""
    if str(request.content_type).partition(";")[0].strip().lower() == "application/json":
        body_of(request, Nothing)


def body_of(request: Request, form: type[Form]) -> dict[str, Any]:
    """Return what a request's body holds. Raises DRF's exceptions, with each field that is wrong."""
    return _read(form, body_with_length(request))


def body_with_length(request: Request) -> Any:
    """Return a request's JSON. Raises DRF's exceptions, also for a chunked body, which would read as empty here."""
    if "Transfer-Encoding" in request.headers and not request.headers.get("Content-Length"):
        raise LengthRequired
    return request.data


def query_of(request: Request, form: type[Form]) -> dict[str, Any]:
    """Return what a request's query string holds. Raises DRF's exceptions, with each parameter that is wrong."""
    twice = [name for name, values in request.query_params.lists() if len(values) > 1]
    if twice:
        raise ValidationError({name: ["is given twice"] for name in twice})
    return _read(form, request.query_params.dict())


def page(rows: QuerySet[M], query: Mapping[str, Any]) -> tuple[list[M], str | None]:
    """Return a page of rows, newest first by their time-ordered ids, and the cursor of the next one."""
    rows = rows.order_by("-pk")
    if cursor := query.get("cursor"):
        rows = rows.filter(pk__lt=cursor)
    found = list(rows[: query["limit"] + 1])
    more = len(found) > query["limit"]
    found = found[: query["limit"]]
    return found, str(found[-1].pk) if more else None


def _read(form: type[Form], data: Any) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ValidationError({"non_field_errors": ["the body must be a JSON object"]})
    reader = form(data=data)
    reader.is_valid(raise_exception=True)
    return dict(reader.validated_data)
