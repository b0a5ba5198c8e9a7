"""The way of capability URLs past what only pages and the API need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from django.urls import resolve
from django.utils.decorators import sync_and_async_middleware

from triggers.api.schema import HOOK_PATH

Handler = Callable[[HttpRequest], HttpResponseBase]

PREFIX = HOOK_PATH.split("{", maxsplit=1)[0]


@sync_and_async_middleware
def capability_urls(get_response: Any) -> Handler:
    """Answer capability URLs at once: they have no user, no cookie, no form and no file.

    Under ASGI they take the long way: there, a middleware that answers by itself costs all others a thread's turn.
    """

    def answer(request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(PREFIX):
            found: HttpResponseBase = get_response(request)
            return found
        request.resolver_match = view = resolve(request.path_info)
        answered: HttpResponseBase = view.func(request, *view.args, **view.kwargs)
        return answered

    handler: Handler = get_response if iscoroutinefunction(get_response) else answer
    return handler
