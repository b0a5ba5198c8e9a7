"""The web server's settings: `python -m gunicorn --config=python:config.web config.wsgi`.

Gunicorn writes what it has to say of a bad request to its own log: here that goes the way of all others, past the
filter that masks secrets, since the line may be a capability URL's. It keeps no access log.
"""

from __future__ import annotations

from typing import Any

from django.urls import get_resolver

from config.settings import HOST, LOGGING, PORT
from sessions import garbage

bind = f"[{HOST}]:{PORT}" if ":" in HOST else f"{HOST}:{PORT}"
workers = 2
worker_class = "gthread"
threads = 16  # posts that wait at the same moment are written together: more threads, fewer transactions
keepalive = 75  # seconds, longer than proxies keep theirs: who closes first must not be us
graceful_timeout = 10
logconfig_dict = LOGGING | {
    "loggers": {**LOGGING["loggers"], "gunicorn.error": {"handlers": [], "propagate": True}}  # type: ignore[dict-item]
}


def post_worker_init(_worker: Any) -> None:
    """Called by Gunicorn in each of its processes, once it has loaded the application."""
    get_resolver().url_patterns  # noqa: B018 (loads every view, which the first request would else wait for)
    garbage.freeze()
