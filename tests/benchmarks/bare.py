"""The floor for `bench_hook`: a bare Django, whose one view does one SELECT and one INSERT by the ORM."""

from __future__ import annotations

import os
from uuid import UUID

os.environ.setdefault("DJANGO_SETTINGS_MODULE", __name__)

from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils import timezone

from config.settings import *  # noqa: F403

ROOT_URLCONF = __name__
MIDDLEWARE = []


def view(request: HttpRequest, trigger_id: UUID) -> HttpResponse:
    from sessions.ids import uuid7
    from triggers.models import Fire, Trigger

    now = timezone.now()
    trigger = Trigger.objects.get(pk=trigger_id)
    Fire.objects.create(trigger=trigger, occurrence=str(uuid7()), number=1, due_at=now, fired_at=now)
    answer = JsonResponse({"accepted": bool(request.body)}, status=202)
    answer["Content-Length"] = str(len(answer.content))
    return answer


urlpatterns = [path("bare/<uuid:trigger_id>", view)]

if os.environ["DJANGO_SETTINGS_MODULE"] == __name__:
    application = get_wsgi_application()
