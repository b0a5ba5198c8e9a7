"""The Celery application. It carries no state: a message is a ring at a worker's door (docs/architecture.md)."""

from __future__ import annotations

import os
import sys
from typing import Any

from celery import Celery
from celery.signals import setup_logging, task_prerun
from django.db import close_old_connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

app = Celery("rewake")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
# Celery would close the database connection before and after each task: connecting costs more than a turn's begin.
app.conf["CELERY_DB_REUSE_MAX"] = sys.maxsize


@task_prerun.connect
def _drop_dead_connections(**_kwargs: Any) -> None:
    """Keep the connection from task to task, but not one that is too old or has died."""
    close_old_connections()


@setup_logging.connect
def _keep_our_logging(**_kwargs: Any) -> None:
    """Leave logging as LOGGING says: while this receiver exists, Celery sets up none of its own."""
