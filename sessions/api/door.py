"""The base of every REST view."""

from __future__ import annotations

from typing import ClassVar

from rest_framework.views import APIView


class Door(APIView):
    """A view that parses, calls one service or selector, and presents. `scopes` says what each method needs."""

    scopes: ClassVar[dict[str, str]] = {}
    http_method_names = ["get", "head", "post", "patch", "delete"]
