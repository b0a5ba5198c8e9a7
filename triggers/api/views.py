"""REST: triggers and their ledgers. None is made here: arming belongs to the agent's own turn."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from sessions import selectors as session_selectors
from sessions.api.callers import caller
from sessions.api.door import Door
from sessions.api.examples import TRIGGER_ID
from sessions.api.forms import Nothing, PageForm, body_of, no_body, page, query_of
from sessions.api.schema import route
from sessions.keys import Scope
from triggers import selectors, services
from triggers.api import examples
from triggers.api.shapes import (
    CancelledShape,
    FireShape,
    FiresShape,
    HookShape,
    SessionTriggersQuery,
    StatusForm,
    TriggerShape,
    TriggersQuery,
    TriggersShape,
)
from triggers.states import TriggerStatus

READ, MANAGE = Scope.TRIGGERS_READ, Scope.TRIGGERS_MANAGE
_LIST = {"triggers": [examples.TRIGGER], "next": None}


class Triggers(Door):
    scopes = {"GET": READ}

    @route(
        "List triggers, newest first",
        id="listTriggers",
        tag="triggers",
        parameters=[TriggersQuery],
        answers={200: TriggersShape},
        errors=[400],
        example=_LIST,
    )
    def get(self, request: Request) -> Response:
        return _listed(query_of(request, TriggersQuery))


class SessionTriggers(Door):
    scopes = {"GET": READ}

    @route(
        "List a session's triggers, newest first",
        id="listSessionTriggers",
        tag="triggers",
        parameters=[SessionTriggersQuery],
        answers={200: TriggersShape},
        errors=[400, 404],
        example=_LIST,
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        query = query_of(request, SessionTriggersQuery)
        return _listed(query | {"session_id": session_selectors.session(session_id).pk})


class Trigger(Door):
    scopes = {"GET": READ, "PATCH": MANAGE, "DELETE": MANAGE}

    @route(
        "Read a trigger",
        id="getTrigger",
        tag="triggers",
        answers={200: TriggerShape},
        errors=[404],
        example=examples.TRIGGER,
    )
    def get(self, request: Request, trigger_id: UUID) -> Response:
        return Response(TriggerShape(selectors.trigger(trigger_id)).data)

    @route(
        "Pause a trigger, or arm it again",
        id="changeTrigger",
        tag="triggers",
        body=StatusForm,
        answers={200: TriggerShape},
        errors=[404, 409],
        sends={"status": "paused"},
        example=examples.TRIGGER | {"status": "paused"},
    )
    def patch(self, request: Request, trigger_id: UUID) -> Response:
        status = body_of(request, StatusForm)["status"]
        move = services.pause if status == TriggerStatus.PAUSED else services.resume
        return Response(TriggerShape(move(trigger_id, by=caller(request), now=timezone.now())).data)

    @route(
        "Cancel a trigger; one that has ended stays as it is",
        id="cancelTrigger",
        tag="triggers",
        answers={200: CancelledShape},
        errors=[404],
        example={"id": TRIGGER_ID, "status": "cancelled"},
    )
    def delete(self, request: Request, trigger_id: UUID) -> Response:
        trigger, _ = services.cancel(trigger_id, by=caller(request), now=timezone.now())
        return Response(CancelledShape(trigger).data)


class Fires(Door):
    scopes = {"GET": READ}

    @route(
        "Read a trigger's ledger, newest first: each fire with what became of it",
        id="listFires",
        tag="triggers",
        parameters=[PageForm],
        answers={200: FiresShape},
        errors=[400, 404],
        example={"fires": [examples.FIRE], "next": None},
    )
    def get(self, request: Request, trigger_id: UUID) -> Response:
        query = query_of(request, PageForm)
        rows, following = page(selectors.fires(selectors.trigger(trigger_id).pk), query)
        receipts = [selectors.receipt(row) for row in rows]
        return Response({"fires": FireShape(receipts, many=True).data, "next": following})


class HookUrl(Door):
    scopes = {"POST": MANAGE}

    @route(
        "Show a webhook trigger's URL and signing secret again",
        id="showHookUrl",
        tag="triggers",
        body=Nothing,
        answers={200: HookShape},
        errors=[404, 409, 410],
        example={
            "hook_url": f"https://rewake.example.org/api/triggers/hook/{TRIGGER_ID}/rwh_…",
            "signing_secret": "rws_…",
        },
    )
    def post(self, request: Request, trigger_id: UUID) -> Response:
        no_body(request)
        url, signing = services.show_hook(trigger_id, by=caller(request), now=timezone.now())
        return Response({"hook_url": url, "signing_secret": signing})


def _listed(query: dict[str, Any]) -> Response:
    wanted = {name: query.get(name) for name in ("session_id", "kind", "status")}
    rows, following = page(selectors.triggers(**wanted), query)
    return Response({"triggers": TriggerShape(rows, many=True).data, "next": following})
