"""Sessions: the list, one with its live transcript, and what can be said and done to them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.http import HttpResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import trigger_client_event

from console import lines
from console.act import announced, attempt, back
from console.door import ConsoleRequest, who
from console.forms import Message, NewSession, SessionFilter
from console.paging import number, page_of, uuid
from console.views.triggers import beside
from sessions import selectors, services
from sessions.exceptions import Invalid, SessionTerminated
from sessions.states import SessionStatus

ROWS = 50
EVENTS = 200  # of a transcript at once
# When htmx looks for more of a transcript.
NUDGED = "refresh from:body"
PACES = {
    SessionStatus.RUNNING: f"every 1s, {NUDGED}",
    SessionStatus.IDLE: f"every 2s, {NUDGED}",
    SessionStatus.TERMINATED: NUDGED,
}


@dataclass(frozen=True)
class Transcript:
    """A stretch of a transcript. `earlier` is the first number it shows if more precede it, else 0."""

    lines: list[lines.Line]
    earlier: int
    tail: Tail


@dataclass(frozen=True)
class Tail:
    """How a transcript goes on after what is shown: `trigger` is when htmx looks, empty if somebody must ask."""

    after: int
    status: SessionStatus
    trigger: str


@require_GET
def index(request: ConsoleRequest) -> HttpResponse:
    """List sessions, newest first, of a status."""
    now = timezone.now()
    form = SessionFilter(request.GET)
    status = form.chosen()["status"]
    page = page_of(selectors.sessions(status=SessionStatus(status) if status else None), request, size=ROWS)
    shown = {"page": page, "rows": selectors.views(page.rows), "form": form, "filtered": bool(status), "now": now}
    return render(request, "console/_sessions.html" if request.htmx else "console/sessions.html", shown)


@require_http_methods(["GET", "POST"])
def new(request: ConsoleRequest) -> HttpResponse:
    """Open a session."""
    now = timezone.now()
    form = NewSession(request.POST or None)
    if request.method == "GET" or not form.is_valid():
        return render(request, "console/new_session.html", {"form": form})
    session, _ = services.open_session(title=form.cleaned_data["title"], model=form.cleaned_data["model"], now=now)
    return redirect("console:session", session.pk)


@require_GET
def show(request: ConsoleRequest, session_id: UUID) -> HttpResponse:
    """Show a session: its end, or from an event or a turn on."""
    now = timezone.now()
    if turn := request.GET.get("turn"):
        seq = selectors.seq_of_turn(session_id, uuid(turn, "turn")) or 1
        return redirect(f"{resolve_url('console:session', session_id)}?from={seq}#e-{seq}")
    if request.htmx:
        return render(request, "console/_beside.html", _beside(session_id, now))
    shown = _beside(session_id, now) | {"message": Message(initial={"key": uuid4().hex})}
    first = number(request, "from") or max(1, shown["view"].session.last_seq - EVENTS + 1)
    return render(request, "console/session.html", shown | {"transcript": _after(session_id, first - 1)})


@require_GET
def events(request: ConsoleRequest, session_id: UUID) -> HttpResponse:
    """Answer what precedes an event (`before`), or what has followed one (`after`), if anything has."""
    now = timezone.now()
    if not request.htmx:
        return redirect("console:session", session_id)
    shown = {"session_id": session_id, "now": now}
    if before := number(request, "before"):
        earlier = _before(session_id, before)
        return render(request, "console/_events_before.html", shown | {"transcript": earlier})
    after = number(request, "after")
    later = _after(session_id, after, live="live" in request.GET)
    if not later.lines and later.tail.status == request.GET.get("status"):
        return HttpResponse(status=204)
    return trigger_client_event(render(request, "console/_events_after.html", shown | {"transcript": later}), "news")


@require_POST
def say(request: ConsoleRequest, session_id: UUID) -> HttpResponse:
    """Post a person's message; one that is refused stays in its box."""
    now = timezone.now()
    form = Message(request.POST)
    if form.is_valid():
        try:
            services.say(session_id, form.cleaned_data["text"], idempotency_key=form.cleaned_data["key"], now=now)
            form = Message(initial={"key": uuid4().hex})
        except (Invalid, SessionTerminated) as error:
            form.add_error("text", error.reason)
    if not request.htmx:
        note = " ".join(str(error) for errors in form.errors.values() for error in errors)
        return back(request, note, resolve_url("console:session", session_id))
    shown = {"view": _view(session_id), "message": form, "posted": True}
    return announced(render(request, "console/_message.html", shown))


@require_POST
def interrupt(request: ConsoleRequest, session_id: UUID) -> HttpResponse:
    now = timezone.now()
    stopped: list[bool] = []
    note = attempt(lambda: stopped.append(services.interrupt(session_id, now=now)))
    if stopped == [False]:
        note = "No turn was running any more."
    return _answer(request, session_id, note, now)


@require_http_methods(["GET", "POST"])
def terminate(request: ConsoleRequest, session_id: UUID) -> HttpResponse:
    """Terminate a session; a GET asks first, for whoever has no JavaScript."""
    now = timezone.now()
    if request.method == "GET":
        return render(request, "console/confirm_terminate.html", {"view": _view(session_id), "now": now})
    note = attempt(lambda: services.terminate(session_id, reason=f"terminated by {who(request)}", now=now))
    return _answer(request, session_id, note, now)


@require_POST
def retry(request: ConsoleRequest, session_id: UUID, wake_id: UUID) -> HttpResponse:
    """Make a quarantined wake of this session pending again."""
    now = timezone.now()
    note = attempt(lambda: services.retry_wake(wake_id, now=now))
    return _answer(request, session_id, note, now)


def _view(session_id: UUID) -> selectors.SessionView:
    return selectors.views([selectors.session(session_id)])[0]


def _beside(session_id: UUID, now: datetime, note: str = "") -> dict[str, Any]:
    """Return all that is shown beside a transcript."""
    view = _view(session_id)
    return {
        "view": view,
        "session_id": session_id,
        "running": view.status == SessionStatus.RUNNING,
        "open": view.status != SessionStatus.TERMINATED,
        "held": bool(view.session.held_until and view.session.held_until > now),
        "quarantined": selectors.quarantined(session_id) if view.quarantined_wakes else [],
        "triggers": beside(session_id, now),
        "note": note,
        "now": now,
    }


def _answer(request: ConsoleRequest, session_id: UUID, note: str, now: datetime) -> HttpResponse:
    if not request.htmx:
        return back(request, note, resolve_url("console:session", session_id))
    return announced(render(request, "console/_beside.html", _beside(session_id, now, note)))


def _before(session_id: UUID, before: int) -> Transcript:
    first = max(1, before - EVENTS)
    page = selectors.transcript(session_id, after=first - 1, limit=before - first)
    return _transcript(page, after=first - 1, trigger="")


def _after(session_id: UUID, after: int, *, live: bool = False) -> Transcript:
    """Return what follows an event. A reader at the end is kept there; one further back asks for more."""
    page = selectors.transcript(session_id, after=after, limit=EVENTS)
    last = page.events[-1].seq if page.events else after
    if len(page.events) == EVENTS and selectors.has_events_after(session_id, last):
        return _transcript(page, after=after, trigger=f"load, {NUDGED}" if live else "")
    return _transcript(page, after=after, trigger=PACES[page.status])


def _transcript(page: selectors.TranscriptPage, *, after: int, trigger: str) -> Transcript:
    shown = [lines.line(event.seq, event.type, event.at, event.payload) for event in page.events]
    last = shown[-1].seq if shown else after
    first = shown[0].seq if shown else after + 1
    return Transcript(shown, first if first > 1 else 0, Tail(last, page.status, trigger))
