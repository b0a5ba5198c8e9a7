"""Doing what an operator asked for, and saying what came of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django_htmx.http import trigger_client_event

from sessions.exceptions import NotFound, RewakeError


def attempt(do: Callable[[], Any]) -> str:
    """Do it; return why it was refused, or "". Raises `NotFound`: there is no row to show a reason beside."""
    try:
        do()
    except NotFound:
        raise
    except RewakeError as error:
        return str(error)
    return ""


def back(request: HttpRequest, note: str, otherwise: str) -> HttpResponse:
    """Answer a form that came without htmx: back to where it was, the note shown there."""
    if note:
        messages.error(request, note)
    target = request.POST.get("next", "")
    known = url_has_allowed_host_and_scheme(target, {request.get_host()}, require_https=request.is_secure())
    return redirect(target if known else otherwise)


def announced(response: HttpResponse) -> HttpResponse:
    """Tell the other live parts of the page to look again at once."""
    return trigger_client_event(response, "refresh", after="settle")
