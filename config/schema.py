"""The OpenAPI document and its page, both served from here: nothing comes from a CDN."""

from __future__ import annotations

from typing import Any

from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView
from rest_framework.renderers import JSONRenderer, TemplateHTMLRenderer
from rest_framework.request import Request
from rest_framework.response import Response


class Schema(SpectacularAPIView):
    """The OpenAPI 3.1 document, as JSON. It needs no key: there is nothing in it but the routes."""

    authentication_classes: Any = []
    permission_classes: Any = []
    renderer_classes = [JSONRenderer]
    scopes: dict[str, str] = {}

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        response = super().get(request, *args, **kwargs)
        response["Access-Control-Allow-Origin"] = "*"
        return response


class Docs(SpectacularSwaggerView):
    """Swagger UI over the document. It needs no key to be read; to try a route, paste one."""

    authentication_classes: Any = []
    permission_classes: Any = []
    renderer_classes = [TemplateHTMLRenderer]
    url_name = "schema"
