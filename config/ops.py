"""For whoever operates it: is it alive, is it ready, and how is it doing."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

BEAT_FRESH = timedelta(seconds=30)


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer that this process is alive; it asks nothing of anybody else."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"status": "ok"})


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    return HttpResponse("")
