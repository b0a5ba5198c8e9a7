"""The base of every REST view."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView


class Door(APIView):
    """A view that parses, calls one service or selector, and presents. `scopes` says what each method needs."""

    scopes: ClassVar[dict[str, str]] = {}
    http_method_names = ["get", "head", "post", "patch", "delete"]

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        """Keep answers out of caches: some hold secrets, and `X-API-KEY` says to none of them whose they are."""
        final: Response = super().finalize_response(request, response, *args, **kwargs)
        final.headers.setdefault("Cache-Control", "no-store")
        return final
