"""Columns, constraints and indexes of sessions. Each has one writer, named in its docstring."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from sessions.ids import uuid7
from sessions.states import Action, EventType, TurnStatus, WakeSource, WakeStatus


def _choices(closed_set: Any) -> list[tuple[str, str]]:
    return [(member.value, member.value) for member in closed_set]


class AgentSession(models.Model):
    """An agent's durable conversation. Written by `services`; `last_seq` by `transcript`."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    tag = models.CharField(max_length=200, unique=True, null=True)
    title = models.CharField(max_length=200, default="")
    adapter = models.CharField(max_length=64)
    model = models.CharField(max_length=200)
    state = models.TextField(default="")  # the adapter's own, encrypted
    last_seq = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField()
    terminated_at = models.DateTimeField(null=True)
    # While held, only a person's message begins a turn. `failures` counts transport faults in a row.
    held_until = models.DateTimeField(null=True)
    hold_reason = models.CharField(max_length=500, default="")
    failures = models.PositiveIntegerField(default=0)
    # When, and how often in vain, the beat rang for wakes that nobody had taken.
    rung_at = models.DateTimeField(null=True)
    rings = models.PositiveIntegerField(default=0)

    class Meta:
        db_table = "rewake_session"


class Turn(models.Model):
    """One run of the agent over the wakes it took. Written by `turns`."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="turns", db_index=False)
    status = models.CharField(max_length=16, choices=_choices(TurnStatus), default=TurnStatus.RUNNING)
    reason = models.CharField(max_length=2000, default="")
    worker = models.CharField(max_length=200)
    triggered = models.BooleanField()  # no person's message is part of it
    depth = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    lease_expires_at = models.DateTimeField()
    deadline = models.DateTimeField()
    interrupt_requested_at = models.DateTimeField(null=True)
    interrupt_reason = models.CharField(max_length=200, default="")
    token_hash = models.CharField(max_length=64)
    history = models.TextField(default="")  # what it added to the message history, encrypted
    usage = models.JSONField(default=dict)

    class Meta:
        db_table = "rewake_turn"
        constraints = [
            models.UniqueConstraint(fields=["session"], condition=Q(status=TurnStatus.RUNNING), name="one_live_turn"),
            models.CheckConstraint(condition=Q(status__in=list(TurnStatus)), name="turn_status_known"),
        ]
        indexes = [
            models.Index(fields=["session", "started_at"], name="turn_by_session"),  # turns._STANDING, turns._HISTORIES
            # turns.expired
            models.Index(fields=["lease_expires_at"], condition=Q(status=TurnStatus.RUNNING), name="turn_leases"),
        ]


class Wake(models.Model):
    """An item in a session's inbox that will re-engage it. Written by `inbox`."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="wakes", db_index=False)
    status = models.CharField(max_length=16, choices=_choices(WakeStatus), default=WakeStatus.PENDING)
    source = models.CharField(max_length=16, choices=_choices(WakeSource))
    action = models.CharField(max_length=16, choices=_choices(Action), default=Action.MESSAGE)
    text = models.TextField()
    heading = models.JSONField(default=dict)  # what woke the session, as `runtime.prompt` shows it
    payload = models.TextField(default="")
    payload_source = models.CharField(max_length=200, default="")
    content_type = models.CharField(max_length=200, default="")
    payload_bytes = models.PositiveBigIntegerField(default=0)
    truncated = models.BooleanField(default=False)
    depth = models.PositiveIntegerField(default=0)
    idempotency_key = models.CharField(max_length=200, null=True)
    turn = models.ForeignKey(Turn, models.SET_NULL, null=True, related_name="wakes")
    deliveries = models.PositiveIntegerField(default=0)  # how often a turn took it
    losses = models.PositiveIntegerField(default=0)  # how many of those turns were lost
    reason = models.CharField(max_length=2000, default="")
    created_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "rewake_wake"
        constraints = [
            models.UniqueConstraint(fields=["session", "idempotency_key"], name="one_wake_per_idempotency_key"),
            models.CheckConstraint(condition=Q(status__in=list(WakeStatus)), name="wake_status_known"),
        ]
        indexes = [
            # inbox.pending, inbox.waiting
            models.Index(fields=["session", "created_at"], condition=Q(status=WakeStatus.PENDING), name="wake_pending"),
            # selectors.quarantined, the metrics
            models.Index(fields=["session"], condition=Q(status=WakeStatus.QUARANTINED), name="wake_quarantined"),
        ]


class Event(models.Model):
    """One line of a session's transcript. Written by `transcript`, never changed."""

    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="events", db_index=False)
    seq = models.PositiveBigIntegerField()
    type = models.CharField(max_length=32, choices=_choices(EventType))
    at = models.DateTimeField()
    payload = models.JSONField(default=dict)

    class Meta:
        db_table = "rewake_event"
        constraints = [models.UniqueConstraint(fields=["session", "seq"], name="one_event_per_seq")]


class ApiKey(models.Model):
    """A key to the REST and MCP doors, stored as its hash. Written by `keys`."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=200)
    hint = models.CharField(max_length=16)  # the first characters, to recognise it by
    hash = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField()
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "rewake_api_key"
