"""What drf-spectacular cannot know of the OpenAPI document: scopes, tokens, and the routes that are plain views."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema

from sessions.states import SessionStatus, WakeStatus
from triggers.api.schema import HOOK_PATH, hook_route
from triggers.states import TriggerStatus

# What drf-spectacular calls the closed sets; it finds them by their members.
SESSION_STATUSES = [(status.value, status.value) for status in SessionStatus]
TRIGGER_STATUSES = [(status.value, status.value) for status in TriggerStatus]
WAKE_STATUSES = [(status.value, status.value) for status in WakeStatus]
ARMED_OR_PAUSED = [(status.value, status.value) for status in (TriggerStatus.PAUSED, TriggerStatus.ARMED)]
TERMINATED = [(SessionStatus.TERMINATED.value, SessionStatus.TERMINATED.value)]


class DoorSchema(AutoSchema):
    """Says of each route what a caller needs to be let in."""

    def get_description(self) -> str:  # type: ignore[override]
        needs = getattr(self.view, "needs", "")
        scope = getattr(self.view, "scopes", {}).get(self.method)
        return needs or (f"Needs the scope `{scope}`." if scope else "")


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "config.api.KeyAuthentication"
    name = ["key", "keyHeader"]

    def get_security_requirement(self, auto_schema: AutoSchema) -> list[dict[str, list[Any]]]:
        return [{"key": []}, {"keyHeader": []}]

    def get_security_definition(self, auto_schema: AutoSchema) -> list[dict[str, Any]]:
        return [
            {"type": "http", "scheme": "bearer", "description": "An API key, `rwk_…`."},
            {"type": "apiKey", "in": "header", "name": "X-API-KEY", "description": "An API key, `rwk_…`."},
        ]


class TurnTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "sessions.api.turns.TurnToken"
    name = "turnToken"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        return {"type": "http", "scheme": "bearer", "description": "The token of one live turn, `rwt_…`."}


def add_plain_routes(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the routes that are no REST views: the capability URL, and what operations ask for."""
    paths = result["paths"] | {HOOK_PATH: hook_route()} | _operations()
    for name, shape in result["components"]["schemas"].items():
        if name.endswith("Request"):
            shape["additionalProperties"] = False  # `Form` refuses what it does not know
    return result | {"paths": dict(sorted(paths.items()))}


def _operations() -> dict[str, Any]:
    status = {"type": "string", "enum": ["ok", "not_ready"]}
    ready = {
        "type": "object",
        "properties": {"status": status, "checks": {"type": "object", "additionalProperties": {"type": "string"}}},
        "required": ["status", "checks"],
    }
    checks = {"database": "ok", "migrations": "ok", "broker": "ok", "beat": "ok"}
    stopped = checks | {"beat": "last seen 95 s ago"}
    return {
        "/healthz": _read("healthz", "Is this process alive?", {"200": _json({"type": "object"}, {"status": "ok"})}),
        "/readyz": _read(
            "readyz",
            "Is all there that it needs? Names what is not",
            {
                "200": _json(ready, {"status": "ok", "checks": checks}),
                "503": _json(ready, {"status": "not_ready", "checks": stopped}),
            },
        ),
        "/metrics": _read(
            "metrics",
            "How is it doing? In Prometheus' text format",
            {"200": {"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}},
        ),
        "/api/schema": _read("schema", "This document", {"200": _json({"type": "object"}, {"openapi": "3.1.0"})}),
        "/api/docs": _read(
            "docs",
            "This document, to be read and tried",
            {"200": {"description": "A page.", "content": {"text/html": {"schema": {"type": "string"}}}}},
        ),
    }


def _read(identity: str, summary: str, responses: dict[str, Any]) -> dict[str, Any]:
    operation = {"operationId": identity, "summary": summary, "tags": ["operations"], "security": []}
    return {"get": operation | {"responses": responses}}


def _json(schema: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    content = {"schema": schema, "examples": {"Example": {"value": example}}}
    return {
        "description": "Yes." if example.get("status") != "not_ready" else "No.",
        "content": {"application/json": content},
    }
