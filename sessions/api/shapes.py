"""Sessions, events, wakes and keys on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rest_framework import serializers

from sessions.api.forms import Choice, Form, PageForm, Text
from sessions.instants import iso
from sessions.keys import Scope
from sessions.secrecy import mask
from sessions.services import MAX_MESSAGE_CHARS
from sessions.states import EventType, SessionStatus, TurnStatus, WakeStatus

SEQ_MAX = 2**63 - 1
WAIT_MAX_SECONDS = 55
_DONE_REASONS = ["", *(status for status in TurnStatus if status != TurnStatus.RUNNING), SessionStatus.TERMINATED]


class Instant(serializers.DateTimeField):
    """An instant as ISO 8601 in UTC with `Z`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(read_only=True, **options)

    def to_representation(self, value: datetime) -> str:
        return iso(value)


class Shape(serializers.Serializer[Any]):
    """An answer. No secret of ours is in one, unless it says so."""

    def to_representation(self, instance: Any) -> Any:
        return mask(super().to_representation(instance))


class ErrorDetail(Shape):
    code = serializers.CharField(help_text="For programs: what went wrong.")
    reason = serializers.CharField(help_text="For people: what went wrong, and what would be right.")
    retryable = serializers.BooleanField(help_text="Whether the same request may succeed later.")
    fields = serializers.DictField(  # type: ignore[assignment]
        child=serializers.CharField(), required=False, help_text="What is wrong, by field."
    )


class ErrorShape(Shape):
    error = ErrorDetail()


class LastEvent(Shape):
    seq = serializers.IntegerField()
    type = serializers.ChoiceField(choices=list(EventType))
    at = Instant()


class EventShape(LastEvent):
    payload = serializers.DictField()


class SessionShape(Shape):
    id = serializers.UUIDField(source="session.pk")
    tag = serializers.CharField(source="session.tag", allow_null=True)
    title = serializers.CharField(source="session.title")
    adapter = serializers.CharField(source="session.adapter")
    model = serializers.CharField(source="session.model")
    status = serializers.ChoiceField(choices=list(SessionStatus))
    pending_wakes = serializers.IntegerField()
    quarantined_wakes = serializers.IntegerField()
    armed_triggers = serializers.IntegerField(source="facts.armed_triggers")
    last_event = LastEvent(allow_null=True)
    held_until = Instant(source="session.held_until", allow_null=True)
    hold_reason = serializers.CharField(source="session.hold_reason")
    created_at = Instant(source="session.created_at")
    terminated_at = Instant(source="session.terminated_at", allow_null=True)


class SessionsShape(Shape):
    sessions = SessionShape(many=True)
    next = serializers.CharField(allow_null=True)


class EventsShape(Shape):
    events = EventShape(many=True)
    next = serializers.IntegerField(
        allow_null=True, help_text="`after` for what follows; null when there is no more yet."
    )
    status = serializers.ChoiceField(choices=list(SessionStatus))
    running = serializers.BooleanField()
    done_reason = serializers.ChoiceField(
        choices=_DONE_REASONS, help_text="How the last turn ended; empty while one runs."
    )


class QueryShape(Shape):
    session_id = serializers.UUIDField()
    wake_id = serializers.UUIDField()


class MessageShape(Shape):
    wake_id = serializers.UUIDField()


class InterruptShape(Shape):
    interrupted = serializers.BooleanField()


class TerminatedShape(Shape):
    session_id = serializers.UUIDField(source="session.pk")
    status = serializers.ChoiceField(choices=[SessionStatus.TERMINATED])
    terminated_at = Instant()
    cancelled_triggers = serializers.IntegerField()


class WakeShape(Shape):
    id = serializers.UUIDField()
    session_id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=list(WakeStatus))
    reason = serializers.CharField()
    attempts = serializers.IntegerField(source="deliveries")
    created_at = Instant()


class KeyShape(Shape):
    id = serializers.UUIDField()
    name = serializers.CharField()
    hint = serializers.CharField(help_text="The key's first characters, to recognise it by.")
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=list(Scope)))
    created_at = Instant()
    last_used_at = Instant(allow_null=True, help_text="To the minute.")
    revoked_at = Instant(allow_null=True)


class NewKeyShape(KeyShape):
    key = serializers.CharField(help_text="The key itself: it is shown this once.")


class KeysShape(Shape):
    keys = KeyShape(many=True)
    next = serializers.CharField(allow_null=True)


class OpenForm(Form):
    tag = Text(
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=200,
        help_text="A name of your own: a known tag returns its session.",
    )
    title = Text(required=False, allow_null=True, allow_blank=True, max_length=200)
    adapter = Text(
        required=False, allow_null=True, max_length=64, help_text="How the agent is invoked; `builtin` if absent."
    )
    model = Text(required=False, allow_null=True, allow_blank=True, max_length=200, help_text="AGENT_MODEL if absent.")


class SessionsQuery(PageForm):
    status = Choice(list(SessionStatus), required=False)


class EventsQuery(Form):
    after = serializers.IntegerField(
        min_value=0, max_value=SEQ_MAX, default=0, help_text="The last sequence number seen."
    )
    limit = serializers.IntegerField(min_value=1, max_value=200, default=50, help_text="How many at most.")
    wait = serializers.FloatField(
        min_value=0, max_value=WAIT_MAX_SECONDS, default=0, help_text="Seconds to wait for an event, if there is none."
    )


class QueryForm(Form):
    query = Text(max_length=MAX_MESSAGE_CHARS)


class MessageForm(Form):
    text = Text(max_length=MAX_MESSAGE_CHARS)


class KeyForm(Form):
    name = Text(max_length=200)
    scopes = serializers.ListField(child=Choice(list(Scope)), min_length=1, max_length=20)
