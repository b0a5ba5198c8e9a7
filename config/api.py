"""What every REST route shares: keys and scopes, the error envelope, JSON bodies."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.utils import timezone
from django.views import defaults
from rest_framework import exceptions as drf
from rest_framework.authentication import BaseAuthentication
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from sessions import keys
from sessions.exceptions import RewakeError
from sessions.models import ApiKey
from sessions.text import cut, storable

if TYPE_CHECKING:
    from rest_framework.views import APIView  # which imports this module

BODY_MAX_BYTES = 2 * 1024 * 1024  # of a JSON body: four times the longest message, however it is escaped
BODY_MAX_DEPTH = 64
FAILURES_A_MINUTE = 20  # wrong keys from one address, before they are answered 429
ADDRESSES = 10_000  # whose failures are remembered at a time
MESSAGE_MAX_CHARS = 2000  # of a text that echoes what was sent

log = logging.getLogger("rewake.api")


class KeyAuthentication(BaseAuthentication):
    """An API key, as `Authorization: Bearer <key>` or `X-API-KEY: <key>`. `request.auth` is its row."""

    def authenticate(self, request: Request) -> tuple[Caller, ApiKey] | None:
        secret = _presented(request)
        if secret is None:
            return None
        row = keys.of_secret(secret, now=timezone.now())
        if row is None:
            revoked = keys.is_revoked(secret)
            raise drf.AuthenticationFailed("this API key has been revoked" if revoked else "this API key is not known")
        return Caller(row), row

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="rewake"'


class Caller:
    """Who holds a key: what DRF calls a user."""

    is_authenticated = True
    is_active = True

    def __init__(self, row: ApiKey) -> None:
        self.pk = row.pk
        self.name = row.name


class HasScope(BasePermission):
    """The key carries the scope that the view declares for the method: `scopes = {"GET": "sessions.read"}`."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        scope = _scope_for(request, view)
        if scope is None:  # a method that the view does not have: 405 will follow
            return True
        if not isinstance(request.auth, ApiKey):
            return False
        if not keys.allows(request.auth, scope):
            raise drf.PermissionDenied(f"this API key lacks the scope {scope}")
        return True


class JsonOnly(BaseContentNegotiation):
    """Every answer is JSON, whatever the caller would rather have."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        from rest_framework.negotiation import DefaultContentNegotiation

        return DefaultContentNegotiation().select_parser(request, parsers)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class TooLarge(drf.APIException):
    status_code = 413
    default_detail = f"the body is too large: at most {BODY_MAX_BYTES} bytes"
    default_code = "too_large"


class JsonBody(JSONParser):
    """A JSON body, bounded in size and depth, with no number that a database could not store."""

    def parse(self, stream: Any, media_type: Any = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        body = stream.read(BODY_MAX_BYTES + 1)
        if len(body) > BODY_MAX_BYTES:
            raise TooLarge
        try:
            value = json.loads(body.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
        except RecursionError as error:
            raise drf.ParseError("the JSON is nested too deeply") from error
        except ValueError as error:
            raise drf.ParseError(f"the body is not JSON: {error}") from error
        if _is_deeper(value, BODY_MAX_DEPTH):
            raise drf.ParseError(f"the JSON is nested too deeply: at most {BODY_MAX_DEPTH} levels")
        return value


class Failures:
    """Counts failed authentications by address within a minute, for a bounded number of addresses.

    A key that is right is never held up: guessing one of 256 random bits is hopeless anyway, and
    behind a proxy all callers may share an address.
    """

    def __init__(self, *, limit: int = FAILURES_A_MINUTE, window: float = 60.0, addresses: int = ADDRESSES) -> None:
        self._limit, self._window, self._addresses = limit, window, addresses
        self._seen: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, address: str, *, at: float) -> float:
        """Count one more failure; return for how many seconds the address should wait, 0 if it need not."""
        with self._lock:
            since, count = self._seen.pop(address, (at, 0))
            if at - since >= self._window:
                since, count = at, 0
            self._seen[address] = (since, count + 1)
            while len(self._seen) > self._addresses:
                self._seen.popitem(last=False)
        return self._window - (at - since) if count >= self._limit else 0.0

    def clear(self) -> None:
        with self._lock:
            self._seen.clear()


failures = Failures()


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
    error: dict[str, Any] = {"code": code, "reason": cut(storable(reason), MESSAGE_MAX_CHARS), "retryable": retryable}
    if fields:
        error["fields"] = {
            cut(storable(name), 200): cut(storable(text), MESSAGE_MAX_CHARS) for name, text in fields.items()
        }
    return {"error": error}


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what Django itself refuses; a class's docstring in the DEBUG page is no answer for a program."""
    if not _is_api(request):
        return cast(HttpResponse, defaults.bad_request(request, exception))
    return JsonResponse(
        envelope("bad_request", "the request is malformed, or for a host that is not served here"), status=400
    )


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not _is_api(request):
        return cast(HttpResponse, defaults.permission_denied(request, exception))
    return JsonResponse(envelope("forbidden", "this is not allowed"), status=403)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    if not _is_api(request):
        return cast(HttpResponse, defaults.page_not_found(request, exception))
    return JsonResponse(
        envelope("not_found", "there is nothing at this path; /api/schema lists the routes"), status=404
    )


def server_error(request: HttpRequest) -> HttpResponse:
    if not _is_api(request):
        return cast(HttpResponse, defaults.server_error(request))
    return JsonResponse(
        envelope("server_error", "something went wrong here; it has been logged", retryable=True), status=500
    )


def _is_api(request: HttpRequest) -> bool:
    return request.path_info.startswith("/api")


def _presented(request: Request) -> str | None:
    scheme, _, rest = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and rest.strip():
        return str(rest.strip())
    given = str(request.headers.get("X-API-KEY", "")).strip()
    return given or None


def _scope_for(request: Request, view: APIView) -> str | None:
    scopes: dict[str, str] = getattr(view, "scopes", {})
    method = "GET" if request.method == "HEAD" else str(request.method)
    return scopes.get(method)


def _slowed(exc: drf.AuthenticationFailed, request: Request) -> drf.APIException:
    wait = failures.note(str(request.META.get("REMOTE_ADDR", "")), at=time.monotonic())
    if not wait:
        return exc
    return drf.Throttled(wait=wait, detail="too many wrong keys from this address")


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
    if isinstance(exc, UnreadablePostError):
        return Response(envelope("bad_request", "the body broke off before its end", retryable=True), status=400)
    if isinstance(exc, OperationalError | InterfaceError):
        log.error("database unreachable", exc_info=exc, extra={"action": "database_unreachable"})
        return Response(envelope("unavailable", "the database cannot be reached just now", retryable=True), status=503)
    return None


def _headers(exc: Exception) -> dict[str, str]:
    if isinstance(exc, drf.Throttled) and exc.wait is not None:
        return {"Retry-After": str(math.ceil(exc.wait))}
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


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {cut(text, 20)} is too large")
    return value


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True
