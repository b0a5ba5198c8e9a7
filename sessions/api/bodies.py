"""The raw body of a request, in chunks, whole or not at all, under WSGI and ASGI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from django.http import HttpRequest, UnreadablePostError
from gunicorn.http.errors import ParseException

CHUNK_BYTES = 256 * 1024  # with each, Gunicorn copies all that it has received: up to 1 MiB
# Granian 2.8 ends its stream alike where a chunked body ends and where it breaks off: half a body would pass for all.
BLIND = ("Granian",)


class BodyError(Exception):
    """A body that cannot be had whole: `status` is the answer's."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def read_body(request: HttpRequest, *, limit: int) -> Iterator[bytes]:
    """Return a request's body in chunks. Raises `BodyError`: 413 past `limit` bytes, 411 or 400 where it cannot be had.

    What the headers tell is raised at once, the rest in place of a chunk: a body is whole once its chunks have ended.
    Under WSGI, Django takes a body without Content-Length for an empty one. If the server says that its
    stream ends where the body does (`wsgi.input_terminated`), a chunked one is read from it.
    """
    length = _length(request)
    if length is not None and length > limit:
        raise BodyError(413, f"the body is too large: at most {limit} bytes")
    return _chunks(_stream(request, length), length, limit)


def _chunks(stream: Any, length: int | None, limit: int) -> Iterator[bytes]:
    left = limit + 1 if length is None else length
    while left and (chunk := _read(stream, min(left, CHUNK_BYTES))):
        left -= len(chunk)
        yield chunk
    if length is None and not left:
        raise BodyError(413, f"the body is too large: at most {limit} bytes")
    if length is not None and left:
        raise BodyError(400, "the body broke off before its end")


def _read(stream: Any, most: int) -> bytes:
    try:
        return cast(bytes, stream.read(most))
    except (UnreadablePostError, OSError) as error:
        raise BodyError(400, "the body broke off before its end") from error
    except ParseException as error:  # Gunicorn's, for chunks that are none
        raise BodyError(400, "the body is not chunked as HTTP has it") from error


def _length(request: HttpRequest) -> int | None:
    given = request.META.get("CONTENT_LENGTH")
    if given in (None, ""):
        return None
    if not (str(given).isascii() and str(given).isdigit()):
        raise BodyError(400, "Content-Length is no number")
    if "HTTP_TRANSFER_ENCODING" in request.META:
        raise BodyError(400, "the body has a Content-Length and a Transfer-Encoding")
    return int(given)


def _stream(request: HttpRequest, length: int | None) -> Any:
    environ = getattr(request, "environ", None)
    if environ is None or length is not None:  # ASGI has read it; and Django reads what has a length
        return request
    if environ.get("wsgi.input_terminated") and environ.get("SERVER_SOFTWARE") not in BLIND:
        return cast(Any, environ["wsgi.input"])
    if "HTTP_TRANSFER_ENCODING" in environ or str(environ.get("SERVER_PROTOCOL", "")).startswith("HTTP/2"):
        raise BodyError(411, "a body of unknown length cannot be read here: send a Content-Length")
    return request  # which has none
