"""How routes are described in the OpenAPI document: one way for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema

from sessions.api.shapes import ErrorShape

F = TypeVar("F", bound=Callable[..., Any])

_ERRORS = {
    400: ("validation", "The request is not what it must be; `fields` says which part.", False),
    401: ("unauthorized", "No key, a wrong key, or a revoked one.", False),
    403: ("forbidden", "The key lacks the scope that the reason names.", False),
    404: ("not_found", "There is no such thing.", False),
    409: ("conflict", "The status of the thing does not allow this.", False),
    410: ("session_terminated", "The session has been terminated; it can only be read.", False),
    411: ("length_required", "The body has no Content-Length.", False),
    413: ("too_large", "The body is too large.", False),
    415: ("unsupported_media_type", "The body is not `application/json`.", False),
    429: ("throttled", "Too many wrong keys from this address; `Retry-After` says when to try again.", True),
    503: ("unavailable", "The database cannot be reached just now.", True),
}
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="A message sent twice under one key is posted once. Another text under the same key is 409.",
)
_ALWAYS = (401, 403, 429, 503)
_WITH_BODY = (400, 411, 413, 415)


def route(
    summary: str,
    *,
    id: str,
    tag: str,
    answers: Mapping[int, Any],
    errors: Sequence[int] = (),
    body: Any = None,
    parameters: Sequence[Any] = (),
    example: Any = None,
    sends: Any = None,
) -> Callable[[F], F]:
    """Describe one method of a view. `example` is what it answers, `sends` what it is sent."""
    success = {
        status: OpenApiResponse(shape, description=_described(status), examples=_examples(example, "response", status))
        for status, shape in answers.items()
    }
    refusals = {status: _refusal(status) for status in sorted({*errors, *_ALWAYS, *(_WITH_BODY if body else ())})}
    return extend_schema(
        operation_id=id,
        summary=summary,
        tags=[tag],
        request=body,
        parameters=list(parameters),
        responses=success | refusals,
        examples=_examples(sends, "request"),
    )


def _described(status: int) -> str:
    return {200: "Done.", 201: "Created.", 202: "Accepted."}[status]


def _examples(value: Any, side: str, status: int = 200) -> list[OpenApiExample]:
    if value is None:
        return []
    if side == "request":
        return [OpenApiExample("Example", value=value, request_only=True)]
    return [OpenApiExample("Example", value=value, response_only=True, status_codes=[str(status)])]


def _refusal(status: int) -> OpenApiResponse:
    code, description, retryable = _ERRORS[status]
    example = {"error": {"code": code, "reason": description, "retryable": retryable}}
    return OpenApiResponse(
        ErrorShape,
        description=description,
        examples=[OpenApiExample(code, value=example, response_only=True, status_codes=[str(status)])],
    )
