"""Streams and MCP: the ASGI application."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application
from django.db import connections

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

application = get_asgi_application()

# Under ASGI each request has a thread of its own: a connection that outlived the request would be lost with the thread,
# open until the garbage collector finds it.
for alias in connections:
    connections.settings[alias]["CONN_MAX_AGE"] = 0
