"""The capability URL in the OpenAPI document: it is a plain view, so what DRF would say is said here."""

from __future__ import annotations

from typing import Any

HOOK_PATH = "/api/triggers/hook/{trigger_id}/{secret}"


def hook_route() -> dict[str, Any]:
    """Return the path item of the capability URL."""
    return {
        "post": {
            "operationId": "postHook",
            "summary": "Wake a session: whoever has the URL may",
            "description": (
                "No key: the id and the secret are the credential. With or without a slash at the end. Whatever is "
                "wrong (the id, the secret, the signature, the trigger's status), the answer is the same 404. A "
                "delivery id seen before is answered 202 and fires nothing."
            ),
            "tags": ["triggers"],
            "security": [],
            "parameters": [
                _parameter("trigger_id", "path", "The trigger's id.", required=True),
                _parameter("secret", "path", "The trigger's secret.", required=True),
                *(_parameter(name, "header", "The delivery's id.") for name in _DELIVERY_HEADERS),
            ],
            "requestBody": {
                "description": "Anything, up to 25 MiB. The first TRIGGERS_WEBHOOK_PAYLOAD_MAX_BYTES are kept.",
                "content": {"*/*": {"schema": {}, "examples": {"Example": {"value": {"state": "success"}}}}},
            },
            "responses": {
                "202": _answer("The fire is committed, or the delivery is known.", _ACCEPTED, {"accepted": True}),
                **{status: _refusal(description, code) for status, (code, description) in _REFUSALS.items()},
            },
        }
    }


_DELIVERY_HEADERS = ("X-GitHub-Delivery", "X-Gitea-Delivery", "X-Gitlab-Event-UUID", "webhook-id", "Idempotency-Key")
_ACCEPTED = {"type": "object", "properties": {"accepted": {"type": "boolean", "const": True}}, "required": ["accepted"]}
_REFUSALS = {
    "400": ("bad_request", "The body broke off before its end."),
    "404": ("not_found", "There is nothing to wake here; which of all reasons it is cannot be told."),
    "405": ("method_not_allowed", "Only POST is answered, on right and wrong URLs alike."),
    "411": ("length_required", "A chunked body, which this server cannot read."),
    "413": ("too_large", "The body is larger than 25 MiB."),
    "503": ("unavailable", "The database cannot be reached just now; nothing has been recorded."),
}


def _parameter(name: str, place: str, description: str, *, required: bool = False) -> dict[str, Any]:
    parameter = {"name": name, "in": place, "description": description, "schema": {"type": "string"}}
    return parameter | ({"required": True} if required else {})


def _refusal(description: str, code: str) -> dict[str, Any]:
    example = {"error": {"code": code, "reason": description, "retryable": code == "unavailable"}}
    return _answer(description, {"$ref": "#/components/schemas/ErrorShape"}, example)


def _answer(description: str, schema: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    content = {"schema": schema, "examples": {"Example": {"value": example}}}
    return {"description": description, "content": {"application/json": content}}
