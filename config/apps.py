"""The composition root as an app: it has the commands that need every other app."""

from __future__ import annotations

from django.apps import AppConfig


class RewakeConfig(AppConfig):
    name = "config"
    label = "rewake"
    verbose_name = "Rewake"
