"""What every REST route shares: keys and scopes, and JSON bodies."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.utils import timezone
from rest_framework import exceptions as drf
from rest_framework.authentication import BaseAuthentication
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from sessions import keys
from sessions.models import ApiKey
from sessions.text import cut

if TYPE_CHECKING:
    from rest_framework.views import APIView  # which imports this module

BODY_MAX_BYTES = 2 * 1024 * 1024  # of a JSON body: the longest message, however it is escaped
BODY_MAX_DEPTH = 64


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


class JsonOnly(DefaultContentNegotiation):
    """Every answer is JSON, whatever the caller would rather have."""

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
