"""Static files, served by the product itself: nothing to collect, no second server."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]  # it brings no types
    """WhiteNoise, with whole answers: Django warns of a file that is streamed under ASGI, and reads it whole anyway."""

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        found = static_file.get_response(request.method, request.META)
        body = b""
        if found.file is not None:
            with closing(found.file) as file:
                body = file.read()
        response = HttpResponse(body, status=int(found.status))
        del response["Content-Type"]  # Django's guess: the file's own is among the headers
        for key, value in found.headers:
            response[key] = value
        return response
