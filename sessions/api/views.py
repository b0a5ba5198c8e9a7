"""REST: sessions, their transcripts and inboxes."""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from sessions import selectors, services
from sessions.api import examples
from sessions.api.callers import caller, idempotency_key
from sessions.api.door import Door
from sessions.api.forms import Nothing, body_of, no_body, page, query_of
from sessions.api.schema import IDEMPOTENCY_KEY, route
from sessions.api.shapes import (
    EventsQuery,
    EventsShape,
    InterruptShape,
    MessageForm,
    MessageShape,
    OpenForm,
    QueryForm,
    QueryShape,
    SessionShape,
    SessionsQuery,
    SessionsShape,
    TerminatedShape,
    WakeShape,
)
from sessions.api.waiting import wait_for_events
from sessions.keys import Scope

READ, WRITE = Scope.SESSIONS_READ, Scope.SESSIONS_WRITE


class Sessions(Door):
    scopes = {"GET": READ, "POST": WRITE}

    @route(
        "List sessions, newest first",
        id="listSessions",
        tag="sessions",
        parameters=[SessionsQuery],
        answers={200: SessionsShape},
        errors=[400],
        example={"sessions": [examples.SESSION], "next": None},
    )
    def get(self, request: Request) -> Response:
        query = query_of(request, SessionsQuery)
        rows, following = page(selectors.sessions(status=query.get("status")), query)
        return Response({"sessions": SessionShape(selectors.views(rows), many=True).data, "next": following})

    @route(
        "Open a session",
        id="openSession",
        tag="sessions",
        body=OpenForm,
        answers={201: SessionShape, 200: SessionShape},
        sends={"tag": "nightly-build", "title": "Nightly build"},
        example=examples.NEW_SESSION,
    )
    def post(self, request: Request) -> Response:
        given = {name: value for name, value in body_of(request, OpenForm).items() if value is not None}
        session, new = services.open_session(**given, now=timezone.now())
        return Response(_shown(session.pk), status=201 if new else 200)


class Session(Door):
    scopes = {"GET": READ}

    @route(
        "Read a session",
        id="getSession",
        tag="sessions",
        answers={200: SessionShape},
        errors=[404],
        example=examples.SESSION,
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        return Response(_shown(session_id))


class Query(Door):
    scopes = {"POST": WRITE}

    @route(
        "Ask the agent something, as the start of a turn",
        id="querySession",
        tag="sessions",
        body=QueryForm,
        answers={202: QueryShape},
        errors=[404, 409, 410],
        sends={"query": "every */5 * * * *: look whether the build is green"},
        example={"session_id": examples.SESSION_ID, "wake_id": examples.WAKE_ID},
    )
    def post(self, request: Request, session_id: UUID) -> Response:
        services.check_open(session_id)
        text = body_of(request, QueryForm)["query"]
        wake = services.query(session_id, text, now=timezone.now())
        return Response(QueryShape({"session_id": session_id, "wake_id": wake.pk}).data, status=202)


class Message(Door):
    scopes = {"POST": WRITE}

    @route(
        "Say something to the agent, whether it is in a turn or not",
        id="messageSession",
        tag="sessions",
        body=MessageForm,
        parameters=[IDEMPOTENCY_KEY],
        answers={202: MessageShape, 200: MessageShape},
        errors=[404, 409, 410],
        sends={"text": "The build is green again."},
        example={"wake_id": examples.WAKE_ID},
    )
    def post(self, request: Request, session_id: UUID) -> Response:
        services.check_open(session_id)
        text = body_of(request, MessageForm)["text"]
        key = idempotency_key(request)
        said = services.say(session_id, text, idempotency_key=key, now=timezone.now())
        return Response(MessageShape({"wake_id": said.wake.pk}).data, status=202 if said.live else 200)


class Interrupt(Door):
    scopes = {"POST": WRITE}

    @route(
        "Ask the live turn to stop",
        id="interruptSession",
        tag="sessions",
        body=Nothing,
        answers={200: InterruptShape},
        errors=[404, 410],
        example={"interrupted": True},
    )
    def post(self, request: Request, session_id: UUID) -> Response:
        services.check_open(session_id)
        no_body(request)
        return Response({"interrupted": services.interrupt(session_id, now=timezone.now())})


class Terminate(Door):
    scopes = {"POST": WRITE}

    @route(
        "End a session for good",
        id="terminateSession",
        tag="sessions",
        body=Nothing,
        answers={200: TerminatedShape},
        errors=[404],
        example=examples.TERMINATED,
    )
    def post(self, request: Request, session_id: UUID) -> Response:
        no_body(request)
        ended = services.terminate(session_id, reason=f"terminated by {caller(request)}", now=timezone.now())
        return Response(TerminatedShape(ended).data)


class Events(Door):
    scopes = {"GET": READ}

    @route(
        "Read the transcript after a sequence number, oldest first",
        id="listEvents",
        tag="sessions",
        parameters=[EventsQuery],
        answers={200: EventsShape},
        errors=[400, 404],
        example=examples.EVENTS,
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        query = query_of(request, EventsQuery)
        selectors.session(session_id)
        wait_for_events(session_id, after=query["after"], seconds=query["wait"])
        found = selectors.transcript(session_id, after=query["after"], limit=query["limit"])
        more = len(found.events) == query["limit"] and selectors.has_events_after(session_id, found.events[-1].seq)
        return Response(EventsShape(_page(found, more)).data)


class RetryWake(Door):
    scopes = {"POST": WRITE}

    @route(
        "Make a quarantined wake pending again",
        id="retryWake",
        tag="sessions",
        body=Nothing,
        answers={200: WakeShape},
        errors=[404, 409, 410],
        example=examples.WAKE,
    )
    def post(self, request: Request, wake_id: UUID) -> Response:
        no_body(request)
        return Response(WakeShape(services.retry_wake(wake_id, now=timezone.now())).data)


def _shown(session_id: UUID) -> object:
    (view,) = selectors.views([selectors.session(session_id)])
    return SessionShape(view).data


def _page(found: selectors.TranscriptPage, more: bool) -> dict[str, object]:
    return {
        "events": found.events,
        "next": found.events[-1].seq if more else None,
        "status": found.status,
        "running": found.running,
        "done_reason": found.done_reason,
    }
