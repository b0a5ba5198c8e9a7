"""Triggers and fires on the wire."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from sessions.api.forms import Choice, Form, PageForm
from sessions.api.shapes import Instant, Shape
from sessions.states import Action
from triggers.registry import KINDS
from triggers.states import Outcome, TriggerStatus


class NullableText(serializers.CharField):
    """Text that is null on the wire where there is none."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_null=True, **options)

    def to_representation(self, value: Any) -> str | None:  # type: ignore[override]
        return str(value) or None


class Provenance(Shape):
    turn_id = serializers.UUIDField(help_text="The turn that armed it.")
    depth = serializers.IntegerField(help_text="That turn's place in its chain of wakes, 0 for a person's.")


class TriggerShape(Shape):
    id = serializers.UUIDField()
    session_id = serializers.UUIDField()
    kind = serializers.CharField()
    status = serializers.ChoiceField(choices=list(TriggerStatus))
    wake_prompt = serializers.CharField()
    action = serializers.ChoiceField(choices=list(Action))
    args = serializers.DictField(help_text="What is particular to the kind.")
    fires = serializers.IntegerField()
    max_fires = serializers.IntegerField()
    expires_at = Instant()
    next_fire_at = Instant(allow_null=True)
    created_at = Instant()
    created_by = serializers.CharField()
    provenance = Provenance(source="*")
    last_fired_at = Instant(allow_null=True)
    last_error = NullableText()
    consecutive_failures = serializers.IntegerField()


class TriggersShape(Shape):
    triggers = TriggerShape(many=True)
    next = serializers.CharField(allow_null=True)


class FireShape(Shape):
    id = serializers.UUIDField(source="fire.pk")
    trigger_id = serializers.UUIDField(source="fire.trigger_id")
    occurrence = serializers.CharField(source="fire.occurrence", help_text="What makes this firing unique.")
    due_at = Instant(source="fire.due_at")
    fired_at = Instant(source="fire.fired_at")
    outcome = serializers.ChoiceField(choices=list(Outcome))
    reason = NullableText()
    payload = serializers.CharField()
    payload_bytes = serializers.IntegerField(help_text="The size before anything was cut off.")
    truncated = serializers.BooleanField()
    wake_id = serializers.UUIDField(source="fire.wake_id", allow_null=True)
    turn_id = serializers.UUIDField(allow_null=True)
    turn_started_at = Instant(allow_null=True)
    turn_ended_at = Instant(allow_null=True)
    attempts = serializers.IntegerField()


class FiresShape(Shape):
    fires = FireShape(many=True)
    next = serializers.CharField(allow_null=True)


class CancelledShape(Shape):
    id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=list(TriggerStatus))


class HookShape(Shape):
    hook_url = serializers.CharField()
    signing_secret = serializers.CharField(allow_null=True)


class SessionTriggersQuery(PageForm):
    kind = Choice(sorted(KINDS.by_name), required=False)
    status = Choice(list(TriggerStatus), required=False)


class TriggersQuery(SessionTriggersQuery):
    session_id = serializers.UUIDField(required=False)


class StatusForm(Form):
    status = Choice([TriggerStatus.PAUSED, TriggerStatus.ARMED])
