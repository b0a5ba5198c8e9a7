"""What can go wrong, a class a cause; each message is for the one who must act on it."""

from __future__ import annotations

from typing import ClassVar


class RewakeError(Exception):
    """An error with an answer for the outside: `code`, HTTP `status`, `reason`, `fields`."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 400
    retryable: ClassVar[bool] = False

    def __init__(self, reason: str, *, fields: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fields = fields or {}


class Invalid(RewakeError):
    """The input is not what it must be; `fields` says which part and what would be right."""

    code = "validation"
    status = 400


class NotFound(RewakeError):
    """There is no such thing, or it is not the caller's."""

    code = "not_found"
    status = 404


class Conflict(RewakeError):
    """The thing is in a status that does not allow this."""

    code = "conflict"
    status = 409


class TurnActive(RewakeError):
    """The session has a live turn."""

    code = "turn_active"
    status = 409
    retryable = True


class SessionTerminated(RewakeError):
    """The session has been terminated; only reading goes on."""

    code = "session_terminated"
    status = 410
