"""REST: a live turn's own tools, for an agent that runs elsewhere."""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, ValidationError
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from sessions import services, turns
from sessions.api import examples
from sessions.api.door import Door
from sessions.api.forms import body_with_length
from sessions.api.schema import route
from sessions.exceptions import NotFound
from sessions.models import Turn
from sessions.tools import SessionTool, enabled_tools

REFUSED = "this needs the turn token of a turn that is live: `Authorization: Bearer rwt_…`"


class TurnToken(BaseAuthentication):
    """The token of the live turn that the path names. `request.auth` is its row."""

    def authenticate(self, request: Request) -> tuple[Turn, Turn]:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        turn_id = request.parser_context["kwargs"]["turn_id"]
        turn = turns.of_token(turn_id, token.strip() if scheme.lower() == "bearer" else "")
        if turn is None:
            raise AuthenticationFailed(REFUSED)
        return turn, turn

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="rewake turn"'


class HoldsTurn(BasePermission):
    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.auth, Turn)


class TurnTool(Door):
    authentication_classes = [TurnToken]
    permission_classes = [HoldsTurn]
    needs = "Needs the turn token of that turn while it is live."

    @route(
        "Call a session tool from within a live turn",
        id="callTool",
        tag="turns",
        body=OpenApiTypes.OBJECT,
        answers={200: OpenApiTypes.OBJECT},
        errors=[404],
        sends={"operation": "arm", "kind": "time.cron", "cron": "0 9 * * 1-5", "wake_prompt": "Look at the queue."},
        example={
            "id": examples.TRIGGER_ID,
            "kind": "time.cron",
            "status": "armed",
            "describe": "weekdays at 09:00, UTC",
        },
    )
    def post(self, request: Request, turn_id: UUID, tool: str) -> Response:
        assert isinstance(request.auth, Turn)
        args = body_with_length(request)
        if not isinstance(args, dict):
            raise ValidationError({"non_field_errors": ["the body must be a JSON object: the tool's arguments"]})
        return Response(services.call_tool(request.auth, _tool(tool), dict(args), now=timezone.now()))


def _tool(name: str) -> SessionTool:
    found = next((tool for tool in enabled_tools() if tool.name == name), None)
    if found is None:
        offered = ", ".join(tool.name for tool in enabled_tools()) or "none"
        raise NotFound(f"there is no tool of this name; on offer: {offered}")
    return found
