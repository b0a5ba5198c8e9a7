"""The capability URL: whoever has it may wake the session, and nobody learns from it whether it is right."""

from __future__ import annotations

import logging
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from sessions.api.bodies import BodyError, read_body
from triggers import posts
from triggers.metrics import HOOK_ANSWERS

BODY_MAX_BYTES = 25 * 1024 * 1024
_CODES = {400: "bad_request", 405: "method_not_allowed", 411: "length_required", 413: "too_large", 503: "unavailable"}

log = logging.getLogger("rewake.hook")


@csrf_exempt
def hook(request: HttpRequest, trigger_id: str, secret: str) -> HttpResponse:
    """Answer a post to a capability URL: 202 once its fire is committed, else the one 404.

    What is wrong with the request itself (its method, its size, a body that breaks off) is answered alike
    for right and wrong URLs: the body is read to its end whatever the URL, before anything is told of it.
    """
    if request.method != "POST":
        return _refusal(405, "only POST is answered here", {"Allow": "POST"})
    try:
        post = posts.Post(read_body(request, limit=BODY_MAX_BYTES), _headers(request))
        accepted = posts.receive(trigger_id, secret, post, clock=timezone.now)
    except BodyError as error:
        return _refusal(error.status, error.reason)
    except (OperationalError, InterfaceError) as error:
        log.error("database unreachable", extra={"action": "hook_unavailable", "error": type(error).__name__})
        return _refusal(503, "try again", {"Retry-After": "5"})
    return _quiet({"accepted": True}, 202) if accepted else _refusal(404, "there is nothing to wake here")


def _headers(request: HttpRequest) -> dict[str, str]:
    """Return the headers as `request.headers` has them, in lower case; that one takes long to be made."""
    given = {name[5:].replace("_", "-").lower(): value for name, value in request.META.items() if name[:5] == "HTTP_"}
    return {**given, "content-type": request.META.get("CONTENT_TYPE", "")}


def _refusal(status: int, reason: str, headers: dict[str, str] | None = None) -> HttpResponse:
    error = {"code": _CODES.get(status, "not_found"), "reason": reason, "retryable": status == 503}
    return _quiet({"error": error}, status, headers)


def _quiet(body: dict[str, Any], status: int, headers: dict[str, str] | None = None) -> HttpResponse:
    """Return an answer that Django does not log: its line would hold the path, which is the secret."""
    response = JsonResponse(body, status=status, headers={"Cache-Control": "no-store", **(headers or {})})
    HOOK_ANSWERS.labels(code=str(status)).inc()
    response._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001
    return response
