"""Lists in pages, newest first, with a cursor to what is older."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from sessions.exceptions import Invalid

M = TypeVar("M", bound=Model)

LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Page(Generic[M]):
    """Some rows of a list. The query strings lead to this page, to the older one and to the newest, empty if none."""

    rows: list[M]
    here: str
    older: str = ""
    newest: str = ""


def page_of(rows: QuerySet[M], request: HttpRequest, *, size: int) -> Page[M]:
    """Return the page of `rows`, which run from the newest primary key to the oldest, that the request asks for."""
    asked = request.GET.get("before", "")
    found = list((rows.filter(pk__lt=uuid(asked, "before")) if asked else rows)[: size + 1])
    return Page(
        rows=found[:size],
        here=_query(request, asked),
        older=_query(request, str(found[size - 1].pk)) if len(found) > size else "",
        newest=_query(request, "") if asked else "",
    )


def uuid(text: str, name: str) -> UUID:
    """Read an identifier from a query string. Raises `Invalid`."""
    try:
        return UUID(text)
    except ValueError as error:
        raise Invalid(f"{name}: {text[:80]!r} is not an identifier") from error


def number(request: HttpRequest, name: str) -> int:
    """Read a sequence number from the query string, 0 if it has none. Raises `Invalid`."""
    text = request.GET.get(name, "") or "0"
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= LARGEST):
        raise Invalid(f"{name}: {text[:80]!r} is not a sequence number")
    return int(text)


def _query(request: HttpRequest, before: str) -> str:
    wanted = request.GET.copy()
    wanted["before"] = before
    return f"?{urlencode([(name, value) for name, value in wanted.items() if value])}"
