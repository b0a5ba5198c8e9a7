"""What every view of the console is wrapped in: who may enter, what the browser may do, what an error looks like."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render, resolve_url
from django.utils.cache import add_never_cache_headers, patch_vary_headers
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails

from sessions.exceptions import RewakeError

# Nothing but our own files, and nothing inline: text from outside that got through as markup would still be dead.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)

TEMPLATE = "console/error.html"


class ConsoleRequest(HttpRequest):
    """A request as the console's views see it. Only for annotations."""

    htmx: HtmxDetails


View = Callable[..., HttpResponseBase]


def door(view: View, *, public: bool = False) -> View:
    """Let in staff only (anyone if `public`); turn our errors into a page; forbid the browser all that is not ours."""

    @wraps(view)
    def guarded(request: ConsoleRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = _answer(view, request, *args, **kwargs) if public or _is_staff(request) else _to_login(request)
        response["Content-Security-Policy"] = POLICY
        add_never_cache_headers(response)  # pages hold secrets, and a page and its fragment share an address
        patch_vary_headers(response, ["HX-Request"])
        return response

    return guarded


def who(request: HttpRequest) -> str:
    """Return the name under which the transcript records what the operator did."""
    return request.user.get_username()


def _answer(view: View, request: ConsoleRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
    try:
        response = view(request, *args, **kwargs)
    except RewakeError as error:
        return render(request, TEMPLATE, {"reason": error.reason}, status=error.status)
    return _wrong_method(request, response["Allow"]) if response.status_code == 405 else response


def _wrong_method(request: ConsoleRequest, allowed: str) -> HttpResponse:
    reason = "Nothing has been done. Use the links and buttons of the console's pages."
    page = render(request, TEMPLATE, {"heading": "That cannot be asked for like this", "reason": reason}, status=405)
    page["Allow"] = allowed
    return page


def _is_staff(request: HttpRequest) -> bool:
    return request.user.is_active and request.user.is_staff


def _to_login(request: ConsoleRequest) -> HttpResponse:
    """Ask to log in, then go on with the page that was asked for; with the page around it, if it was a fragment."""
    if request.htmx:
        login = redirect_to_login(request.htmx.current_url_abs_path or resolve_url("console:triggers"))
        return HttpResponseClientRedirect(login.url)
    target = request.get_full_path() if request.method == "GET" else resolve_url(settings.LOGIN_REDIRECT_URL)
    return redirect_to_login(target)
