"""Routes of sessions, below /api/."""

from __future__ import annotations

from django.urls import path

from sessions.api import keys, stream, turns, views

urlpatterns = [
    path("sessions", views.Sessions.as_view(), name="sessions"),
    path("sessions/<uuid:session_id>", views.Session.as_view(), name="session"),
    path("sessions/<uuid:session_id>/query", views.Query.as_view(), name="session-query"),
    path("sessions/<uuid:session_id>/message", views.Message.as_view(), name="session-message"),
    path("sessions/<uuid:session_id>/interrupt", views.Interrupt.as_view(), name="session-interrupt"),
    path("sessions/<uuid:session_id>/terminate", views.Terminate.as_view(), name="session-terminate"),
    path("sessions/<uuid:session_id>/events", views.Events.as_view(), name="session-events"),
    path("sessions/<uuid:session_id>/stream", stream.Stream.as_view(), name="session-stream"),
    path("wakes/<uuid:wake_id>/retry", views.RetryWake.as_view(), name="wake-retry"),
    path("turns/<uuid:turn_id>/tools/<str:tool>", turns.TurnTool.as_view(), name="turn-tool"),
    path("keys", keys.Keys.as_view(), name="keys"),
    path("keys/<uuid:key_id>", keys.Key.as_view(), name="key"),
]
