"""The console as a browser asks for it: whole pages, and fragments by htmx."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from django.test import Client
from django.urls import reverse

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse

    Answer = _MonkeyPatchedWSGIResponse


def at(name: str, *args: object) -> str:
    """Return the path of one of the console's routes."""
    return reverse(f"console:{name}", args=args)


def fragment(client: Client, path: str) -> Answer:
    """Ask for a page as htmx does."""
    return client.get(path, headers={"HX-Request": "true"})


def press(client: Client, path: str, **fields: str) -> Answer:
    """Press a button as htmx does."""
    return client.post(path, fields, headers={"HX-Request": "true"})


def text(answer: Answer) -> str:
    """Return an answer's text as a browser reads it, on one line."""
    return " ".join(html.unescape(answer.content.decode()).split())


def is_page(answer: Answer) -> bool:
    """Tell a whole page from a fragment."""
    return b"<html" in answer.content
