"""The app of triggers."""

from __future__ import annotations

from django.apps import AppConfig


class TriggersConfig(AppConfig):
    name = "triggers"
    verbose_name = "Triggers"

    def ready(self) -> None:
        from sessions import facts
        from triggers import receivers, selectors, tool  # noqa: F401 (importing receivers connects them)

        tool.install()
        facts.register("armed_triggers", selectors.armed_counts, default=0)
