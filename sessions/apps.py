"""The app of agent sessions."""

from __future__ import annotations

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """Labelled `agent_sessions`, since `sessions` is the label of django.contrib.sessions."""

    name = "sessions"
    label = "agent_sessions"
    verbose_name = "Agent sessions"
