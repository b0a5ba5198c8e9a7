"""`manage.py first_start`: make the console's user and an API key where there are none yet."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from config import first_start


class Command(BaseCommand):
    help = "Make the console's user and an API key where there are none yet, and show them once."

    def handle(self, *args: Any, **options: Any) -> None:
        made = first_start.ensure(now=timezone.now())
        self.stdout.write(f"user      {first_start.ADMIN}")
        self.stdout.write(f"password  {made.password or first_start.KNOWN}")
        self.stdout.write(f"API key   {made.api_key or first_start.KNOWN}")
