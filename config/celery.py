"""The Celery application. It carries no state: a message is a ring at a worker's door (docs/architecture.md)."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("rewake")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@setup_logging.connect
def _keep_our_logging(**_kwargs: Any) -> None:
    """Leave logging as LOGGING says: while this receiver exists, Celery sets up none of its own."""
