"""Routes of triggers, below /api/."""

from __future__ import annotations

from django.urls import path, re_path

from triggers.api import hooks, views

urlpatterns = [
    # Any text may stand for the id and the secret, so that nothing but the one 404 tells right from wrong.
    re_path(r"^triggers/hook/(?P<trigger_id>[^/]*)/(?P<secret>(?s:.*?))/?\Z", hooks.hook, name="hook"),
    path("triggers", views.Triggers.as_view(), name="triggers"),
    path("triggers/<uuid:trigger_id>", views.Trigger.as_view(), name="trigger"),
    path("triggers/<uuid:trigger_id>/fires", views.Fires.as_view(), name="trigger-fires"),
    path("triggers/<uuid:trigger_id>/hook-url", views.HookUrl.as_view(), name="trigger-hook-url"),
    path("sessions/<uuid:session_id>/triggers", views.SessionTriggers.as_view(), name="session-triggers"),
]
