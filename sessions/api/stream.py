"""A session's transcript as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any
from uuid import UUID

from asgiref.sync import SyncToAsync
from django.db import connections
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from sessions import selectors
from sessions.api.door import Door
from sessions.api.feed import FEED, PAGE, VISIT, End, Page, Place, StreamsFull, Visit, frame
from sessions.api.forms import Form, query_of
from sessions.api.shapes import SEQ_MAX, ErrorShape
from sessions.keys import Scope
from sessions.models import AgentSession, ApiKey

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
MAX_SECONDS = 900.0  # of one stream: its client comes again, and every so often proves that it may
STALLED_SECONDS = 60.0  # for which a client may take nothing before it is cut off
RETRY_MS = 2000  # how long a client waits before it comes again
RETRY_AFTER = "5"  # seconds, when every place is taken
HEARTBEAT = b": alive\n\n"
_HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}
_REFUSALS = {
    400: "The number to start after is none; `fields` says which.",
    401: "No key, a wrong key, or a revoked one.",
    403: "The key lacks the scope that the reason names.",
    404: "There is no such session.",
    429: "The key has as many open streams as one may, or too many wrong keys came from this address; `Retry-After` "
    "says when to try again.",
    503: "Every place for a stream is taken, or the database cannot be reached; `Retry-After` says when to try again.",
}
_EXAMPLE = (
    "retry: 2000\n\n"
    'id: 7\nevent: turn_ended\ndata: {"seq":7,"type":"turn_ended","at":"2026-12-01T09:00:00Z",'
    '"payload":{"turn_id":"01936f0e-5b6c-7c1d-8a43-6d2f3b9c1e55","status":"completed","usage":{}}}\n\n'
    ": alive\n\n"
    'event: end\ndata: {"reason":"max_duration"}\n\n'
)


class StreamQuery(Form):
    after = serializers.IntegerField(
        min_value=0, max_value=SEQ_MAX, default=0, help_text="The last sequence number seen, without `Last-Event-ID`."
    )


class Stream(Door):
    """Authenticates and refuses like every other route; only the body goes on, in the event loop."""

    scopes = {"GET": Scope.SESSIONS_READ}

    @extend_schema(
        operation_id="streamEvents",
        summary="Follow the transcript as server-sent events",
        description="`id` is the sequence number, `event` the type, `data` the event as `listEvents` shows it. "
        "Comment lines are heartbeats. The last frame, `event: end`, has no id and says why the stream ends. "
        f"Needs the scope `{Scope.SESSIONS_READ}`.",
        tags=["sessions"],
        parameters=[
            StreamQuery,
            OpenApiParameter(
                "Last-Event-ID", int, OpenApiParameter.HEADER, description="The last `id` seen; it outweighs `after`."
            ),
        ],
        responses={
            (200, MEDIA_TYPE): OpenApiResponse(str, "Frames.", [OpenApiExample("Example", value=_EXAMPLE)]),
            204: OpenApiResponse(description="The session has been terminated, and all of it was seen: stop asking."),
        }
        | {status: OpenApiResponse(ErrorShape, description=text) for status, text in _REFUSALS.items()},
    )
    def get(self, request: Request, session_id: UUID) -> HttpResponseBase:
        after = _after(request)
        session = selectors.session(session_id)
        if session.terminated_at and session.last_seq <= after:
            return HttpResponse(status=204)
        if request.method == "HEAD":
            return HttpResponse(content_type=MEDIA_TYPE, headers=_HEADERS)
        visit = _visit(request)
        if visit is None:
            return HttpResponse(_so_far(session, after), content_type=MEDIA_TYPE, headers=_HEADERS)
        assert isinstance(request.auth, ApiKey)
        place = FEED.enter(session_id, key_id=request.auth.pk, after=after)
        visit.hold(place)
        connections.close_all()  # this request may last for a quarter of an hour, and needs no connection of its own
        return StreamingHttpResponse(_patiently(_frames(place)), content_type=MEDIA_TYPE, headers=_HEADERS)

    def handle_exception(self, exc: Exception) -> Response:
        response = super().handle_exception(exc)
        if isinstance(exc, StreamsFull):
            response["Retry-After"] = RETRY_AFTER
        return response


def _after(request: Request) -> int:
    after = int(query_of(request, StreamQuery)["after"])
    given = request.headers.get("Last-Event-ID", "").strip()
    if not given:
        return after
    if not (given.isascii() and given.isdigit() and len(given) <= len(str(SEQ_MAX)) and int(given) <= SEQ_MAX):
        raise ValidationError({"Last-Event-ID": [f"must be a sequence number, from 0 to {SEQ_MAX}"]})
    return int(given)


def _visit(request: Request) -> Visit | None:
    """Return what gives a place back at the request's end, if the server has such a thing: WSGI has not."""
    scope: Mapping[str, Any] = getattr(request, "scope", {})
    return scope.get(VISIT)


async def _frames(place: Place) -> AsyncGenerator[bytes]:
    """Yield what is to be sent, until the stream ends."""
    clock = asyncio.get_running_loop().time
    until = clock() + MAX_SECONDS
    _let_thread_go()
    try:
        yield f"retry: {RETRY_MS}\n\n".encode()
        while (left := until - clock()) > 0:
            page = await _next(place, min(left, HEARTBEAT_SECONDS))
            yield page.text or HEARTBEAT
            if page.end:
                yield _end(page.end)
                return
        yield _end(End.TOO_LONG)
    finally:
        place.leave()


def _let_thread_go() -> None:
    """End the thread that the view ran in: Django would keep it to the request's end, and makes another if needed."""
    context = SyncToAsync.thread_sensitive_context.get(None)
    executor = SyncToAsync.context_to_thread_executor.pop(context, None) if context else None
    if executor:
        executor.shutdown(wait=False)


async def _next(place: Place, seconds: float) -> Page:
    try:
        # Not `wait_for`: in Python 3.11 it forgets a cancellation that comes together with a page. Django cancels
        # once, when the client has gone: the stream would then go on for nobody, and hold its place to the end.
        async with asyncio.timeout(seconds):
            return await place.next()
    except TimeoutError:
        return Page()


async def _patiently(frames: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    """Pass frames on; a client that takes nothing for long is cut off, so that it holds no place for ever."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task
    async with aclosing(frames):
        async for text in frames:
            alarm = loop.call_later(STALLED_SECONDS, task.cancel)
            try:
                yield text
            finally:
                alarm.cancel()


def _so_far(session: AgentSession, after: int) -> bytes:
    """Return a stream that ends at once: what a server that cannot keep one open answers. Its client comes again."""
    page = selectors.transcript(session.pk, after=after, limit=PAGE)
    last = page.events[-1].seq if page.events else after
    ended = session.terminated_at and last >= session.last_seq
    frames = b"".join(frame(event) for event in page.events)
    return f"retry: {RETRY_MS}\n\n".encode() + frames + _end(End.TERMINATED if ended else End.NO_STREAMING)


def _end(reason: End) -> bytes:
    return f'event: end\ndata: {{"reason":"{reason}"}}\n\n'.encode()
