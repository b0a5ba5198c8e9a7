"""Columns, constraints and indexes of triggers. Each has one writer, named in its docstring."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from sessions.ids import uuid7
from sessions.models import AgentSession, Wake
from sessions.states import Action
from triggers.states import TriggerStatus


class Host(models.Model):
    """A forge that is asked, and what it has said of its limits. Written by `hosts`."""

    name = models.CharField(max_length=200, unique=True)  # what `host` names: "github.com"
    forge = models.CharField(max_length=64)  # the registry is the authority, not a list here
    base_url = models.CharField(max_length=500)
    token = models.TextField(default="")  # encrypted
    verify_tls = models.BooleanField(default=True)
    added = models.BooleanField(default=False)  # by command, not by FORGE_HOSTS
    budget_limit = models.PositiveIntegerField(null=True)
    budget_remaining = models.PositiveIntegerField(null=True)
    budget_reset_at = models.DateTimeField(null=True)
    blocked_until = models.DateTimeField(null=True)  # nothing is asked before
    strikes = models.PositiveIntegerField(default=0)  # limits in a row

    class Meta:
        db_table = "rewake_host"


class Watch(models.Model):
    """One resource of one host, polled for all triggers that look at it. Written by `polling`."""

    host = models.ForeignKey(Host, models.CASCADE, related_name="watches", db_index=False)
    key = models.CharField(max_length=400)
    next_poll_at = models.DateTimeField(null=True)  # null: nobody waits for it; while claimed, the lease's end
    claim = models.UUIDField(null=True)  # who asks now
    polled_at = models.DateTimeField(null=True)  # when it was last asked, or begun to be
    changed_at = models.DateTimeField(null=True)  # when the answer was last another than before
    memory = models.JSONField(default=dict)  # ETags, what was kept of the answers, and the forge's own notes
    failures = models.PositiveIntegerField(default=0)  # in a row, of either sort
    last_error = models.CharField(max_length=2000, default="")

    class Meta:
        db_table = "rewake_watch"
        constraints = [models.UniqueConstraint(fields=["host", "key"], name="one_watch_per_resource")]
        indexes = [
            # polling.next_poll_at, polling.poll
            models.Index(fields=["next_poll_at"], condition=Q(next_poll_at__isnull=False), name="watch_due"),
        ]


class Trigger(models.Model):
    """A durable "wake me up" record, owned by one session. Written by `services` and `engine`."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    session = models.ForeignKey(AgentSession, models.CASCADE, related_name="triggers", db_index=False)
    kind = models.CharField(max_length=64)  # the registry is the authority, not a list here
    status = models.CharField(
        max_length=16, choices=[(status.value, status.value) for status in TriggerStatus], default=TriggerStatus.ARMED
    )
    wake_prompt = models.TextField()
    action = models.CharField(max_length=16, choices=[(action.value, action.value) for action in Action])
    args = models.JSONField()
    fires = models.PositiveIntegerField(default=0)
    max_fires = models.PositiveIntegerField()
    expires_at = models.DateTimeField()
    next_fire_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    created_by = models.CharField(max_length=64)
    turn_id = models.UUIDField()  # the turn that armed it
    depth = models.PositiveIntegerField()  # that turn's place in its chain of wakes
    last_fired_at = models.DateTimeField(null=True)
    resumed_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=2000, default="")
    consecutive_failures = models.PositiveIntegerField(default=0)
    secrets = models.TextField(default="")  # encrypted, shaped by the kind
    watch = models.ForeignKey(Watch, models.SET_NULL, null=True, related_name="triggers", db_index=False)

    class Meta:
        db_table = "rewake_trigger"
        constraints = [
            models.CheckConstraint(condition=Q(status__in=list(TriggerStatus)), name="trigger_status_known"),
            models.CheckConstraint(condition=Q(fires__lte=models.F("max_fires")), name="trigger_fires_bounded"),
        ]
        indexes = [
            # engine.tick, selectors.next_instant
            models.Index(
                fields=["next_fire_at"],
                condition=Q(status=TriggerStatus.ARMED, next_fire_at__isnull=False),
                name="trigger_due",
            ),
            # engine.tick, selectors.next_instant
            models.Index(fields=["expires_at"], condition=Q(status=TriggerStatus.ARMED), name="trigger_expiry"),
            models.Index(fields=["session", "-id"], name="trigger_by_session"),  # selectors.triggers
            models.Index(fields=["status", "-id"], name="trigger_by_status"),  # selectors.triggers
            models.Index(fields=["kind", "-id"], name="trigger_by_kind"),  # selectors.triggers
            # services.armed_in
            models.Index(fields=["session"], condition=Q(status=TriggerStatus.ARMED), name="trigger_armed"),
            models.Index(fields=["watch"], condition=Q(watch__isnull=False), name="trigger_by_watch"),  # polling
        ]


class Fire(models.Model):
    """One recorded occurrence: the ledger's row. Written by `ledger`, never changed."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    trigger = models.ForeignKey(Trigger, models.CASCADE, related_name="ledger", db_index=False)
    occurrence = models.CharField(max_length=300)
    number = models.PositiveIntegerField()  # which of max_fires it is; 0 for a skipped one
    due_at = models.DateTimeField()
    fired_at = models.DateTimeField()
    reason = models.CharField(max_length=500, default="")  # why it was late, or skipped
    wake = models.OneToOneField(Wake, models.SET_NULL, null=True, related_name="fire")
    skipped = models.BooleanField(default=False)

    class Meta:
        db_table = "rewake_fire"
        constraints = [
            models.UniqueConstraint(fields=["trigger", "occurrence"], name="one_fire_per_occurrence"),
        ]
        indexes = [models.Index(fields=["trigger", "-id"], name="fire_by_trigger")]  # selectors.fires


class Beat(models.Model):
    """When the beat was last seen alive, in its one row. Written by `services`."""

    name = models.CharField(max_length=200, primary_key=True)
    at = models.DateTimeField()

    class Meta:
        db_table = "rewake_beat"
