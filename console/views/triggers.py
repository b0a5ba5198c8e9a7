"""Triggers: the list, one with its ledger, and what can be done to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render, resolve_url
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.act import announced, attempt, back
from console.door import ConsoleRequest, who
from console.forms import TriggerFilter
from console.paging import page_of
from sessions import services as session_services
from triggers import selectors, services
from triggers.states import TRIGGERS, Outcome, TriggerStatus

ROWS = 50
FIRES = 20
BESIDE = 30  # triggers beside a session's transcript

_MOVES = {"pause": TriggerStatus.PAUSED, "resume": TriggerStatus.ARMED, "cancel": TriggerStatus.CANCELLED}


@dataclass(frozen=True)
class Row:
    """A trigger as a list shows it: `moves` are the buttons, `note` is why the last one was refused."""

    view: selectors.TriggerView
    moves: list[str]
    next_fire_at: datetime | None
    note: str = ""


@dataclass(frozen=True)
class LedgerRow:
    """A fire as the ledger shows it."""

    receipt: selectors.Receipt
    retryable: bool


@require_GET
def index(request: ConsoleRequest) -> HttpResponse:
    """List triggers, newest first, of a status, a kind, a session."""
    now = timezone.now()
    form = TriggerFilter(request.GET)
    wanted = form.chosen()
    found = selectors.triggers(status=wanted["status"], kind=wanted["kind"])
    found = selectors.in_sessions(found, wanted["session"]) if wanted["session"] else found
    page = page_of(found.select_related("session"), request, size=ROWS)
    rows = [_row(view) for view in selectors.views(page.rows, now=now)]
    filtered = any(wanted.values())
    template = "console/_triggers.html" if request.htmx else "console/triggers.html"
    return render(request, template, {"page": page, "rows": rows, "form": form, "filtered": filtered, "now": now})


@require_GET
def show(request: ConsoleRequest, trigger_id: UUID) -> HttpResponse:
    """Show a trigger with its ledger."""
    now = timezone.now()
    template = "console/_trigger.html" if request.htmx else "console/trigger.html"
    return render(request, template, _whole(request, trigger_id, now))


@require_POST
def pause(request: ConsoleRequest, trigger_id: UUID) -> HttpResponse:
    now = timezone.now()
    note = attempt(lambda: services.pause(trigger_id, by=who(request), now=now))
    return _answer(request, trigger_id, note, now)


@require_POST
def resume(request: ConsoleRequest, trigger_id: UUID) -> HttpResponse:
    now = timezone.now()
    note = attempt(lambda: services.resume(trigger_id, by=who(request), now=now))
    return _answer(request, trigger_id, note, now)


@require_http_methods(["GET", "POST"])
def cancel(request: ConsoleRequest, trigger_id: UUID) -> HttpResponse:
    """Cancel a trigger; a GET asks first, for whoever has no JavaScript."""
    now = timezone.now()
    if request.method == "GET":
        row = _row(selectors.views([selectors.trigger(trigger_id)], now=now)[0])
        return render(request, "console/confirm_cancel.html", {"row": row, "now": now})
    note = attempt(lambda: services.cancel(trigger_id, by=who(request), now=now))
    return _answer(request, trigger_id, note, now)


@require_POST
def hook(request: ConsoleRequest, trigger_id: UUID) -> HttpResponse:
    """Show a webhook's address again. It is in this answer only: in no message, no session, no address."""
    now = timezone.now()
    shown: dict[str, Any] = {}

    def look() -> None:
        shown["url"], shown["secret"] = services.show_hook(trigger_id, by=who(request), now=now)

    note = attempt(look)
    answer = {"hook": shown, "hook_note": note}
    if request.htmx:
        return announced(render(request, "console/_hook.html", answer))
    return render(request, "console/trigger.html", _whole(request, trigger_id, now) | answer)


@require_POST
def retry(request: ConsoleRequest, trigger_id: UUID, wake_id: UUID) -> HttpResponse:
    """Make a quarantined wake of this trigger pending again."""
    now = timezone.now()
    note = attempt(lambda: session_services.retry_wake(wake_id, now=now))
    return _answer(request, trigger_id, note, now)


def beside(session_id: UUID, now: datetime) -> list[Row]:
    """Return a session's triggers as they are shown beside its transcript."""
    found = selectors.triggers(session_id=session_id)[:BESIDE]
    return [_row(view) for view in selectors.views(found, now=now)]


def _row(view: selectors.TriggerView, note: str = "") -> Row:
    trigger = view.trigger
    moves = [verb for verb, target in _MOVES.items() if trigger.status in TRIGGERS.sources(target)]
    return Row(view, moves, trigger.next_fire_at if trigger.status == TriggerStatus.ARMED else None, note)


def _ledger_row(receipt: selectors.Receipt) -> LedgerRow:
    return LedgerRow(receipt, receipt.outcome == Outcome.QUARANTINED)


def _whole(request: ConsoleRequest, trigger_id: UUID, now: datetime, note: str = "") -> dict[str, Any]:
    view = selectors.views([selectors.trigger(trigger_id)], now=now)[0]
    page = page_of(selectors.fires(trigger_id), request, size=FIRES)
    ledger = [_ledger_row(selectors.receipt(fire)) for fire in page.rows]
    return {"row": _row(view, note), "page": page, "ledger": ledger, "now": now}


def _answer(request: ConsoleRequest, trigger_id: UUID, note: str, now: datetime) -> HttpResponse:
    """Show the trigger again as the page showed it: as a row, beside a transcript, or whole."""
    if not request.htmx:
        return back(request, note, resolve_url("console:trigger", trigger_id))
    present = _SHAPES.get(request.GET.get("shape", ""), _answer_whole)
    return announced(present(request, trigger_id, note, now))


def _answer_row(request: ConsoleRequest, trigger_id: UUID, note: str, now: datetime) -> HttpResponse:
    row = _row(selectors.views([selectors.trigger(trigger_id)], now=now)[0], note)
    return render(request, "console/_trigger_row.html", {"row": row, "now": now})


def _answer_beside(request: ConsoleRequest, trigger_id: UUID, note: str, now: datetime) -> HttpResponse:
    row = _row(selectors.views([selectors.trigger(trigger_id)], now=now)[0], note)
    return render(request, "console/_trigger_beside.html", {"row": row, "now": now})


def _answer_whole(request: ConsoleRequest, trigger_id: UUID, note: str, now: datetime) -> HttpResponse:
    return render(request, "console/_trigger.html", _whole(request, trigger_id, now, note))


_SHAPES: dict[str, Callable[[ConsoleRequest, UUID, str, datetime], HttpResponse]] = {
    "row": _answer_row,
    "beside": _answer_beside,
}
