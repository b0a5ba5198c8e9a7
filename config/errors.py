"""Errors as the outside sees them: one envelope, whoever raised them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any, cast

from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from rest_framework import exceptions as drf
from rest_framework.request import Request
from rest_framework.response import Response

from config.api import TooLarge
from console.views import refusals
from sessions import guesses
from sessions.exceptions import RewakeError
from sessions.secrecy import mask
from sessions.text import cut, storable

MESSAGE_MAX_CHARS = 2000  # of a text that echoes what was sent

log = logging.getLogger("rewake.api")


def error_response(exc: Exception, context: Mapping[str, Any]) -> Response | None:
    """Answer an exception of a REST view with the error envelope; None leaves it to be a 500."""
    if isinstance(exc, drf.AuthenticationFailed):
        exc = _slowed(exc, context["request"])
    answer = _answer(exc)
    if answer is None:
        return None
    for name, value in _headers(exc).items():
        answer[name] = value
    return answer


def envelope(
    code: str, reason: str, *, retryable: bool = False, fields: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the body of an error."""
    error: dict[str, Any] = {"code": code, "reason": _echo(reason, MESSAGE_MAX_CHARS), "retryable": retryable}
    if fields:
        error["fields"] = {_echo(name, 200): _echo(text, MESSAGE_MAX_CHARS) for name, text in fields.items()}
    return {"error": error}


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what Django itself refuses; a class's docstring in the DEBUG page is no answer for a program."""
    if not _is_api(request):
        return cast(HttpResponse, refusals.bad_request(request))
    return JsonResponse(
        envelope("bad_request", "the request is malformed, or for a host that is not served here"), status=400
    )


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not _is_api(request):
        return cast(HttpResponse, refusals.forbidden(request))
    return JsonResponse(envelope("forbidden", "this is not allowed"), status=403)


def stale_form(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form whose CSRF token is missing or wrong. Django has logged the reason."""
    if not _is_api(request):
        return cast(HttpResponse, refusals.stale_form(request))
    return JsonResponse(envelope("forbidden", "this is not allowed"), status=403)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not _is_api(request):
        return cast(HttpResponse, refusals.not_found(request))
    return JsonResponse(
        envelope("not_found", "there is nothing at this path; /api/schema lists the routes"), status=404
    )


def server_error(request: HttpRequest) -> HttpResponse:
    if not _is_api(request):
        return cast(HttpResponse, refusals.server_error(request))
    return JsonResponse(
        envelope("server_error", "something went wrong here; it has been logged", retryable=True), status=500
    )


def _echo(text: str, limit: int) -> str:
    """Return a text that may hold what was sent, as it may be sent back: encodable, bounded, without secrets."""
    return cut(str(mask(storable(text))), limit)


def _is_api(request: HttpRequest) -> bool:
    return request.path_info.startswith("/api")


def _slowed(exc: drf.AuthenticationFailed, request: Request) -> drf.APIException:
    wait = guesses.KEYS.note(str(request.META.get("REMOTE_ADDR", "")), at=time.monotonic())
    if not wait:
        return exc
    return Slowed(wait)


class Slowed(drf.Throttled):
    """What DRF's own adds to the text is in `Retry-After`."""

    def __init__(self, wait: float) -> None:
        super().__init__(wait)
        self.detail = drf.ErrorDetail("too many wrong keys from this address")


_CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    411: "length_required",
    413: "too_large",
    415: "unsupported_media_type",
    429: "throttled",
}


def _answer(exc: Exception) -> Response | None:
    if isinstance(exc, RewakeError):
        return Response(envelope(exc.code, exc.reason, retryable=exc.retryable, fields=exc.fields), status=exc.status)
    if isinstance(exc, drf.ValidationError):
        fields = _flat(exc.detail)
        reason = "; ".join(f"{name}: {text}" if name else text for name, text in fields.items())
        fields.pop("", None)
        return Response(envelope("validation", reason, fields=fields), status=400)
    if isinstance(exc, drf.NotAuthenticated):
        reason = "an API key is needed: send it as `Authorization: Bearer <key>` or `X-API-KEY: <key>`"
        return Response(envelope("unauthorized", reason), status=401)
    if isinstance(exc, drf.APIException):
        code = _CODES.get(exc.status_code, "error")
        return Response(envelope(code, str(exc.detail), retryable=exc.status_code == 429), status=exc.status_code)
    return _answer_to_others(exc)


def _answer_to_others(exc: Exception) -> Response | None:
    if isinstance(exc, Http404):
        return Response(envelope("not_found", "there is no such thing"), status=404)
    if isinstance(exc, DjangoPermissionDenied):
        return Response(envelope("forbidden", "this is not allowed"), status=403)
    if isinstance(exc, RequestDataTooBig):
        return _answer(TooLarge())
    if isinstance(exc, UnreadablePostError):
        return Response(envelope("bad_request", "the body broke off before its end", retryable=True), status=400)
    if isinstance(exc, OperationalError | InterfaceError):
        log.error("database unreachable", exc_info=exc, extra={"action": "database_unreachable"})
        return Response(envelope("unavailable", "the database cannot be reached just now", retryable=True), status=503)
    return None


def _headers(exc: Exception) -> dict[str, str]:
    wait = getattr(exc, "wait", None)
    if isinstance(exc, drf.Throttled) and wait is not None:
        return {"Retry-After": str(math.ceil(wait))}
    if isinstance(exc, OperationalError | InterfaceError):
        return {"Retry-After": "5"}
    header = getattr(exc, "auth_header", None)
    return {"WWW-Authenticate": header} if header else {}


def _flat(detail: Any, name: str = "") -> dict[str, str]:
    """Return DRF's nested lists of errors as one text a field; what is about no field has the name ""."""
    if isinstance(detail, Mapping):
        flat: dict[str, str] = {}
        for key, value in detail.items():
            own = "" if key == "non_field_errors" else str(key)
            flat |= _flat(value, ".".join(part for part in (name, own) if part))
        return flat
    if isinstance(detail, list):
        texts = [str(item) for item in detail if not isinstance(item, Mapping | list)]
        nested = [item for item in detail if isinstance(item, Mapping | list) and item]
        flat = {name: " ".join(texts)} if texts else {}
        for item in nested:
            flat |= _flat(item, name)
        return flat
    return {name: str(detail)}
