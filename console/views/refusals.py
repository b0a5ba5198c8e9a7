"""Pages for what no view of the console answers: unknown addresses, refused forms, faults of ours."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from console.door import TEMPLATE, door


def _not_found(request: HttpRequest) -> HttpResponse:
    shown = {"heading": "There is nothing here", "reason": "No page of Rewake has this address."}
    return render(request, TEMPLATE, shown, status=404)


def _forbidden(request: HttpRequest) -> HttpResponse:
    return render(request, TEMPLATE, {"heading": "That is not allowed"}, status=403)


def _stale_form(request: HttpRequest) -> HttpResponse:
    reason = (
        "The page that this was sent from was too old, or the browser keeps no cookies for Rewake. Nothing has been "
        "done. Go back, reload that page, and try again."
    )
    return render(request, TEMPLATE, {"heading": "That form could not be taken", "reason": reason}, status=403)


def _bad_request(request: HttpRequest) -> HttpResponse:
    reason = "It is malformed, or for a host that is not served here."
    return render(request, TEMPLATE, {"heading": "That request cannot be answered", "reason": reason}, status=400)


def _server_error(request: HttpRequest) -> HttpResponse:
    """Say so without asking who it is: the database may be what is at fault."""
    shown = {"heading": "Something went wrong here", "reason": "It has been logged. Try again in a moment."}
    return HttpResponse(render_to_string(TEMPLATE, shown), status=500)


not_found = door(_not_found, public=True)
forbidden = door(_forbidden, public=True)
stale_form = door(_stale_form, public=True)
bad_request = door(_bad_request, public=True)
server_error = door(_server_error, public=True)
