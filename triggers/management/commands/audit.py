"""`manage.py audit`: prove from the database alone that nothing was lost or doubled."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from triggers.audit import audit


class Command(BaseCommand):
    help = "Count fires, wakes and turns, and everything that must not be; exit 1 if there is any of the latter."

    def handle(self, *args: Any, **options: Any) -> None:
        found = audit(now=timezone.now())
        self.stdout.write(json.dumps(found.as_dict(), indent=2))
        if not found.clean:
            sys.exit(1)
