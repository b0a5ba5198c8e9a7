"""REST: API keys."""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from sessions import keys
from sessions.api import examples
from sessions.api.door import Door
from sessions.api.forms import PageForm, body_of, page, query_of
from sessions.api.schema import route
from sessions.api.shapes import KeyForm, KeyShape, KeysShape, NewKeyShape
from sessions.keys import Scope


class Keys(Door):
    scopes = {"GET": Scope.ADMIN, "POST": Scope.ADMIN}

    @route(
        "List API keys, newest first",
        id="listKeys",
        tag="keys",
        parameters=[PageForm],
        answers={200: KeysShape},
        errors=[400],
        example={"keys": [examples.KEY], "next": None},
    )
    def get(self, request: Request) -> Response:
        rows, following = page(keys.listed(), query_of(request, PageForm))
        return Response({"keys": KeyShape(rows, many=True).data, "next": following})

    @route(
        "Make an API key; the answer is the only place where it is shown",
        id="createKey",
        tag="keys",
        body=KeyForm,
        answers={201: NewKeyShape},
        sends={"name": "ci", "scopes": ["sessions.read", "triggers.read"]},
        example=examples.KEY | {"key": "rwk_3kQz…"},
    )
    def post(self, request: Request) -> Response:
        row, secret = keys.create(**body_of(request, KeyForm), now=timezone.now())
        return Response(KeyShape(row).data | {"key": secret}, status=201)


class Key(Door):
    scopes = {"DELETE": Scope.ADMIN}

    @route(
        "Revoke an API key for good",
        id="revokeKey",
        tag="keys",
        answers={200: KeyShape},
        errors=[404],
        example=examples.KEY | {"revoked_at": "2026-12-01T12:00:00Z"},
    )
    def delete(self, request: Request, key_id: UUID) -> Response:
        return Response(KeyShape(keys.revoke(key_id, now=timezone.now())).data)
