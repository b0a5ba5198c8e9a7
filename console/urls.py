"""The console's routes, each behind its door."""

from __future__ import annotations

from django.urls import path

from console.door import door
from console.views import account, sessions, triggers

app_name = "console"
urlpatterns = [
    path("", door(triggers.index), name="triggers"),
    path("login/", door(account.log_in, public=True), name="login"),
    path("logout/", door(account.log_out, public=True), name="logout"),
    path("triggers/<uuid:trigger_id>/", door(triggers.show), name="trigger"),
    path("triggers/<uuid:trigger_id>/pause/", door(triggers.pause), name="pause"),
    path("triggers/<uuid:trigger_id>/resume/", door(triggers.resume), name="resume"),
    path("triggers/<uuid:trigger_id>/cancel/", door(triggers.cancel), name="cancel"),
    path("triggers/<uuid:trigger_id>/hook/", door(triggers.hook), name="hook"),
    path("triggers/<uuid:trigger_id>/retry/<uuid:wake_id>/", door(triggers.retry), name="retry_fire"),
    path("sessions/", door(sessions.index), name="sessions"),
    path("sessions/new/", door(sessions.new), name="new_session"),
    path("sessions/<uuid:session_id>/", door(sessions.show), name="session"),
    path("sessions/<uuid:session_id>/events/", door(sessions.events), name="events"),
    path("sessions/<uuid:session_id>/say/", door(sessions.say), name="say"),
    path("sessions/<uuid:session_id>/interrupt/", door(sessions.interrupt), name="interrupt"),
    path("sessions/<uuid:session_id>/terminate/", door(sessions.terminate), name="terminate"),
    path("sessions/<uuid:session_id>/retry/<uuid:wake_id>/", door(sessions.retry), name="retry_wake"),
]
