"""Every route of the product."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

from config import ops, schema

handler400 = "config.errors.bad_request"
handler403 = "config.errors.forbidden"
handler404 = "config.errors.not_found"
handler500 = "config.errors.server_error"

urlpatterns: list[URLPattern | URLResolver] = [
    path("", RedirectView.as_view(url="/console/")),
    path("api/", include("triggers.api.urls")),
    path("api/", include("sessions.api.urls")),
    path("api/schema", schema.Schema.as_view(), name="schema"),
    path("api/docs", schema.Docs.as_view(), name="docs"),
    path("healthz", ops.healthz, name="healthz"),
    path("readyz", ops.readyz, name="readyz"),
    path("metrics", ops.metrics, name="metrics"),
    path("console/", include("console.urls")),
]
