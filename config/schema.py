"""The OpenAPI document and its page, both served from here: nothing comes from a CDN."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView
from rest_framework.renderers import JSONRenderer, TemplateHTMLRenderer
from rest_framework.request import Request
from rest_framework.response import Response

# The page's own script is inline, but a key that is pasted into it can be sent nowhere else.
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)


class Schema(SpectacularAPIView):
    """The OpenAPI 3.1 document, as JSON. It needs no key: there is nothing in it but the routes."""

    authentication_classes: Any = []
    permission_classes: Any = []
    renderer_classes = [JSONRenderer]
    http_method_names = ["get", "head"]

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        response: Response = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
        return response


class Docs(SpectacularSwaggerView):
    """Swagger UI over the document. It needs no key to be read; to try a route, paste one."""

    authentication_classes: Any = []
    permission_classes: Any = []
    renderer_classes = [TemplateHTMLRenderer]
    http_method_names = ["get", "head"]
    url_name = "schema"

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        response: Response = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
        response["Content-Security-Policy"] = POLICY
        return response
