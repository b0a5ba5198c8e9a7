"""`manage.py serve`: the embedded form, set up and started by one command."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.utils import timezone

from config import embedded, first_start
from sessions import services


class Command(BaseCommand):
    help = "Run Rewake in one process, with no services: HTTP, workers and beat."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        with embedded.alone() as alone:
            call_command("migrate", verbosity=0, interactive=False)
            made = first_start.ensure(now=timezone.now())
            if alone:
                services.recover(now=timezone.now())
            embedded.run(settings.HOST, settings.PORT, ready=partial(self._welcome, made))
        self.stdout.write("Stopped.")

    def _welcome(self, made: first_start.Made) -> None:
        lines = [
            f"Rewake {settings.VERSION}: {settings.PUBLIC_URL}",
            f"  console   {settings.PUBLIC_URL}/console/",
            f"  user      {first_start.ADMIN}",
            f"  password  {made.password or first_start.KNOWN}",
            f"  API key   {made.api_key or first_start.KNOWN}",
            "Ctrl-C stops it.",
        ]
        self.stdout.write("\n".join(lines))
        self.stdout.flush()
