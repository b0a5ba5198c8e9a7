"""The `schedule_trigger` session tool: how an agent arms, lists and cancels its triggers."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, ClassVar
from uuid import UUID

from django.conf import settings
from pydantic import AwareDatetime, BaseModel, BeforeValidator, Field, ValidationError

from sessions.exceptions import RewakeError
from sessions.instants import iso
from sessions.states import Action
from sessions.text import cut, storable
from sessions.tools import ToolContext, register
from triggers import selectors, services
from triggers.exceptions import Invalid, NotFound
from triggers.kinds.base import Strict
from triggers.models import Trigger
from triggers.policy import WAKE_PROMPT_MAX_CHARS
from triggers.registry import KINDS

OPERATIONS = ("arm", "list", "cancel")
LISTED_PROMPT_CHARS = 160
LISTED = 100
_ABSENT: tuple[Any, ...] = (None, "", "null", "None", "undefined")
_MEANT = {  # what models call things, by what we call them
    "tz": "timezone",
    "time_zone": "timezone",
    "prompt": "wake_prompt",
    "message": "wake_prompt",
    "expr": "cron",
    "expression": "cron",
    "schedule": "cron",
    "when": "at",
    "time": "at",
    "pr": "number",
    "id": "trigger_id",
    "repository": "repo",
    "type": "kind",
}


def _instant(value: Any) -> datetime:
    """Read an instant in the one form that leaves no doubt: a number could be seconds or milliseconds."""
    try:
        moment = datetime.fromisoformat(value.strip())
        if moment.tzinfo:
            return moment.astimezone(UTC)
    except (AttributeError, ValueError, OverflowError):  # no text, no instant, one beyond the calendar's ends
        pass
    raise ValueError(f'must be ISO 8601 with an offset, e.g. "2026-12-07T09:00:00Z", not {value!r:.80}')


class Common(Strict):
    """The fields that every kind shares."""

    wake_prompt: str = Field(
        description="What to tell your future self: name the reason and the next step. "
        f"1 to {WAKE_PROMPT_MAX_CHARS} characters.",
    )
    action: Action = Field(
        Action.MESSAGE,
        description='"message": joins a turn that runs, or the next one. "start": a turn of its own.',
    )
    max_fires: int | None = Field(None, description="How often it may fire before it is completed, from 1.")
    expires_at: Annotated[AwareDatetime, BeforeValidator(_instant)] | None = Field(
        None, description="ISO 8601 with an offset, in the future."
    )


class ScheduleTrigger:
    """Arms, lists and cancels triggers of the calling turn's own session."""

    name: ClassVar[str] = "schedule_trigger"

    @property
    def description(self) -> str:
        return _description()

    def enabled(self) -> bool:
        return bool(settings.TRIGGERS_ENABLED)

    def schema(self) -> dict[str, Any]:
        return _schema()

    def call(self, context: ToolContext, args: dict[str, Any], *, now: datetime) -> dict[str, Any]:
        try:
            return _call(context, storable(args), now)
        except RewakeError as error:
            code = error.code if error.code in ("validation", "policy", "not_found") else "validation"
            return {"error": {"code": code, "message": f"{error.reason} (it is now {iso(now.replace(microsecond=0))})"}}


def install() -> None:
    """Offer the tool to every session."""
    register(ScheduleTrigger())


def _call(context: ToolContext, args: dict[str, Any], now: datetime) -> dict[str, Any]:
    given = _normalized(args)
    operation = _operation(given)
    run: Callable[[ToolContext, dict[str, Any], datetime], dict[str, Any]]
    run = {"arm": _arm, "list": _list, "cancel": _cancel}[operation]
    return run(context, given, now)


def _normalized(args: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten what models send: absent values left out, `args` unpacked whether an object or JSON in a string."""
    if not isinstance(args, Mapping):
        raise Invalid("the arguments must be a JSON object")
    given = {name: value for name, value in args.items() if not _is_absent(value)}
    nested = given.pop("args", {})
    if isinstance(nested, str):
        nested = _from_json(nested)
    if not isinstance(nested, Mapping):
        raise Invalid("args: must be an object, or left out: every field can be given directly")
    for name, value in nested.items():
        if _is_absent(value):
            continue
        if name in given and given[name] != value:
            raise Invalid(f"{name}: is given twice, directly and within args, with different values")
        given[name] = value
    return given


def _is_absent(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip() in _ABSENT
    return value is None or value in ([], {})


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"args: is not JSON ({type(error).__name__}); give an object, or every field directly") from error


def _operation(given: dict[str, Any]) -> str:
    operation = given.pop("operation", "arm" if "kind" in given else None)
    if not isinstance(operation, str) or operation.strip().lower() not in OPERATIONS:
        raise Invalid(f"operation: must be one of {', '.join(OPERATIONS)}, not {operation!r:.80}")
    return operation.strip().lower()


def _arm(context: ToolContext, given: dict[str, Any], now: datetime) -> dict[str, Any]:
    name = given.pop("kind", None)
    if not isinstance(name, str):
        raise Invalid(f"kind: is required, one of {', '.join(sorted(KINDS.by_name))}")
    kind = services.kind_of(name.strip())
    own = kind.Args.model_fields
    common = {field: given.pop(field) for field in list(given) if field in Common.model_fields}
    _refuse_foreign(given, allowed=own, what=f"a {kind.name} trigger")
    if "wake_prompt" not in common:
        raise Invalid("wake_prompt: is required; write what you want to be told when you are woken")
    shared = _read_common(common)
    order = services.Order(kind.name, given, shared.wake_prompt, shared.action, shared.max_fires, shared.expires_at)
    return _armed(services.arm(context, order, now=now))


def _armed(armed: services.Armed) -> dict[str, Any]:
    row = armed.trigger
    answer: dict[str, Any] = {
        "id": str(row.pk),
        "kind": row.kind,
        "status": row.status,
        "next_fire_at": iso(row.next_fire_at),
        "expires_at": iso(row.expires_at),
        "max_fires": row.max_fires,
        "describe": armed.describe,
    }
    if "url" in armed.secrets:
        answer["hook_url"] = services.hook_url(row, armed.secrets)
    if "signing" in armed.secrets:
        answer["signing_secret"] = armed.secrets["signing"]
    return answer | ({"notes": armed.notes} if armed.notes else {})


def _list(context: ToolContext, given: dict[str, Any], now: datetime) -> dict[str, Any]:
    _refuse_foreign(given, allowed=(), what="the operation list")
    rows = list(selectors.triggers(session_id=context.session_id)[: LISTED + 1])
    answer: dict[str, Any] = {"triggers": [_listed(row, now) for row in rows[:LISTED]]}
    return answer | ({"more": True} if len(rows) > LISTED else {})


def _listed(row: Trigger, now: datetime) -> dict[str, Any]:
    shown = {
        "id": str(row.pk),
        "kind": row.kind,
        "status": row.status,
        "describe": selectors.describe(row, now=now),
        "wake_prompt": cut(row.wake_prompt, LISTED_PROMPT_CHARS),
        "fires": row.fires,
        "max_fires": row.max_fires,
        "next_fire_at": iso(row.next_fire_at),
        "expires_at": iso(row.expires_at),
    }
    return shown | ({"last_error": row.last_error} if row.last_error else {})


def _cancel(context: ToolContext, given: dict[str, Any], now: datetime) -> dict[str, Any]:
    wanted = given.pop("trigger_id", None)
    _refuse_foreign(given, allowed=(), what="the operation cancel")
    if wanted is None:
        raise Invalid("trigger_id: is required, the id that arming returned; the operation list shows them")
    try:
        trigger_id = UUID(str(wanted).strip())
    except ValueError as error:
        raise NotFound(
            f"there is no trigger {str(wanted)[:80]!r} in this session; the operation list shows them"
        ) from error
    trigger, changed = services.cancel(trigger_id, by="agent", now=now, session_id=context.session_id)
    answer = {"id": str(trigger.pk), "status": trigger.status}
    return answer | ({} if changed else {"already_terminal": True})


def _read_common(given: Mapping[str, Any]) -> Common:
    try:
        return Common.model_validate({name: _lowered(name, value) for name, value in given.items()})
    except ValidationError as error:
        raise services.refusal([services.problem(item) for item in error.errors()]) from error


def _lowered(name: str, value: Any) -> Any:
    return value.strip().lower() if name == "action" and isinstance(value, str) else value


def _refuse_foreign(given: Mapping[str, Any], *, allowed: Any, what: str) -> None:
    foreign = [name for name in given if name not in allowed]
    if not foreign:
        return
    fields = ", ".join(allowed) or "none"
    problems = [
        (name, f"is not a field of {what}{_hint(name, allowed)}; its own fields are: {fields}") for name in foreign
    ]
    raise services.refusal(problems)


def _hint(name: str, allowed: Any) -> str:
    if owners := [kind.name for kind in KINDS.by_name.values() if name in kind.Args.model_fields]:
        return f" ({', '.join(owners)} has it)"
    known = [*allowed, *Common.model_fields, "kind", "operation", "trigger_id"]
    meant = _MEANT.get(name.lower()) or next(iter(difflib.get_close_matches(name.lower(), known, 1)), "")
    return f" (did you mean {meant}?)" if meant in known and meant != name else ""


@cache
def _description() -> str:
    kinds = "; ".join(f"{kind.name} {kind.summary}" for kind in KINDS.by_name.values())
    return (
        "Be woken later, in this same session, with a prompt that you write now for your future self. Arm a trigger, "
        "then end your turn: nothing is spent while you wait, and polling or sleeping is never needed. "
        f"Kinds: {kinds}. Operations: arm (kind, wake_prompt and the kind's own fields), list, cancel (trigger_id). "
        "Give only the fields of the kind you arm."
    )


@cache
def _schema() -> dict[str, Any]:
    """Return the flat JSON schema, made from the kinds' own models."""
    properties: dict[str, Any] = {
        "operation": {"type": "string", "enum": list(OPERATIONS), "description": "What to do."},
        "kind": {"type": "string", "enum": list(KINDS.by_name), "description": "What to wait for (arm)."},
    }
    properties |= _properties(Common)
    users: dict[str, list[str]] = {}
    for kind in KINDS.by_name.values():
        for field, shape in _properties(kind.Args).items():
            users.setdefault(field, []).append(kind.name)
            properties.setdefault(field, shape)
    for field, kinds in users.items():
        properties[field] = properties[field] | {
            "description": f"{', '.join(kinds)}: {properties[field].get('description', '')}".strip()
        }
    properties["trigger_id"] = {"type": "string", "description": "Which trigger (cancel)."}
    return {"type": "object", "properties": properties, "required": ["operation"], "additionalProperties": False}


def _properties(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    shapes: dict[str, Any] = {}
    for field, shape in schema["properties"].items():
        shapes[field] = _plain(shape, schema.get("$defs", {}))
    return shapes


def _plain(shape: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field's shape without references, titles, defaults and the null that stands for absence."""
    options = [option for option in shape.get("anyOf", []) if option.get("type") != "null"]
    if len(options) == 1:
        shape = shape | options[0]
    if "$ref" in shape:
        shape = definitions[shape["$ref"].rsplit("/", 1)[-1]] | shape
    left_out = ("title", "default", "anyOf", "$ref")
    plain = {name: value for name, value in shape.items() if name not in left_out}
    if isinstance(plain.get("items"), dict):
        plain["items"] = _plain(plain["items"], definitions)
    return plain
