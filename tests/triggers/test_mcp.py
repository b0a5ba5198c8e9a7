"""MCP: the SDK's own client against a real server; what is offered by credential, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any
from uuid import uuid4

import httpx
import httpx2
import pytest
from django.db import OperationalError
from django.utils import timezone
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from config.settings import BASE_DIR
from sessions import guesses, keys, services
from sessions.guesses import GUESSES_A_MINUTE
from sessions.models import AgentSession, Event
from tests import factories, live
from triggers import engine, mcp
from triggers.ledger import Occurrence
from triggers.models import Trigger

clock = timezone.now  # noqa: TID251 (the doors' own: what is armed at another now may have expired by theirs)
KEY_TOOLS = ["list_triggers", "get_trigger", "cancel_trigger"]


@pytest.fixture
def now() -> datetime:
    return clock()


@pytest.fixture(scope="module")
def running() -> Iterator[str]:
    with live.serving() as url:
        yield f"{url}/mcp"


@pytest.fixture
def server(running: str, transactional_db: None) -> str:
    guesses.KEYS.clear()
    return running


@pytest.fixture
def session(transactional_db: None, now: datetime) -> AgentSession:
    return factories.open_session(now)


def _key(*scopes: str) -> str:
    return keys.create(name="ops", scopes=scopes or ["admin"], now=clock())[1]


def _talk(url: str, secret: str, talk: Callable[[Client], Awaitable[Any]], mode: str = "auto") -> Any:
    """Connect the SDK's client, and return what `talk` with it returns."""

    async def run() -> Any:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {secret}"}, timeout=live.PATIENCE) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            return await talk(client)

    return asyncio.run(run())


def _tools(url: str, secret: str, mode: str = "auto") -> dict[str, Any]:
    async def talk(client: Client) -> dict[str, Any]:
        return {tool.name: tool for tool in (await client.list_tools()).tools}

    tools: dict[str, Any] = _talk(url, secret, talk, mode)
    return tools


def _call(url: str, secret: str, name: str, args: dict[str, Any], mode: str = "auto") -> CallToolResult:
    result: CallToolResult = _talk(url, secret, lambda client: client.call_tool(name, args), mode)
    return result


def _refusal(url: str, secret: str, name: str, mode: str = "auto") -> str:
    async def talk(client: Client) -> str:
        try:
            await client.call_tool(name, {})
        except MCPError as error:
            return str(error)
        return ""

    refusal: str = _talk(url, secret, talk, mode)
    return refusal


def _post(url: str, secret: str | None = None, **headers: str) -> httpx.Response:
    sent = {"Accept": "application/json, text/event-stream"} | ({"Authorization": f"Bearer {secret}"} if secret else {})
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    return httpx.post(url, json=body, headers=sent | headers, timeout=live.PATIENCE)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_it_offers_a_key_what_reads_and_cancels_and_nothing_that_arms(server: str, mode: str) -> None:
    tools = _tools(server, _key(), mode)

    assert list(tools) == KEY_TOOLS
    assert [tool.annotations.read_only_hint for tool in tools.values()] == [True, True, False]
    assert set(tools["list_triggers"].input_schema["properties"]) == {"session_id", "kind", "status", "limit", "cursor"}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_it_offers_a_turn_the_session_tool_with_its_own_schema(
    server: str, session: AgentSession, now: datetime, mode: str
) -> None:
    begun = factories.live_turn(session, now)

    tools = _tools(server, begun.token, mode)

    [bound] = services.bind_tools(begun.turn, clock=clock)
    assert list(tools) == ["schedule_trigger"]
    assert tools["schedule_trigger"].input_schema == bound.schema
    assert tools["schedule_trigger"].description == bound.description


def test_it_says_who_it_is(server: str) -> None:
    async def talk(client: Client) -> tuple[Any, Any]:
        return client.server_info, client.instructions

    info, instructions = _talk(server, _key(), talk)

    assert (info.name, info.title) == ("rewake", "Rewake")
    assert "from within its own turn" in instructions


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_it_arms_in_the_turn_of_the_token_with_the_call_in_the_transcript(
    server: str, session: AgentSession, now: datetime, mode: str
) -> None:
    begun = factories.live_turn(session, now)
    args = {"operation": "arm", "kind": "time.cron", "cron": "0 9 * * 1-5", "wake_prompt": "Look at the queue."}

    result = _call(server, begun.token, "schedule_trigger", args, mode)

    trigger = Trigger.objects.get()
    assert result.is_error is False
    assert result.structured_content["id"] == str(trigger.pk)
    assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
    assert (trigger.session_id, trigger.turn_id) == (session.pk, begun.turn.pk)
    events = Event.objects.filter(session=session).order_by("seq")
    assert [event.type for event in events][-3:] == ["tool_call", "trigger_armed", "tool_result"]
    assert events[2].payload["args"] == args


def test_it_shows_a_hook_to_the_agent_and_masks_it_in_the_transcript(
    server: str, session: AgentSession, now: datetime
) -> None:
    begun = factories.live_turn(session, now)
    args = {"operation": "arm", "kind": "webhook", "wake_prompt": "Look."}

    result = _call(server, begun.token, "schedule_trigger", args)

    secret = result.structured_content["hook_url"].rsplit("/", 1)[1]
    assert secret.startswith("rwh_")
    assert secret not in json.dumps(list(Event.objects.values_list("payload", flat=True)))


def test_it_answers_a_bad_call_of_the_tool_with_an_error_to_learn_from(
    server: str, session: AgentSession, now: datetime
) -> None:
    begun = factories.live_turn(session, now)

    result = _call(server, begun.token, "schedule_trigger", {"operation": "arm", "kind": "time.cron", "cron": "* *"})

    assert result.is_error is True
    assert result.structured_content["error"]["code"] == "validation"
    assert Trigger.objects.count() == 0


def test_it_works_on_no_other_session(server: str, session: AgentSession, now: datetime) -> None:
    others = factories.armed_session(now)
    begun = factories.live_turn(session, now)

    result = _call(server, begun.token, "schedule_trigger", {"operation": "cancel", "trigger_id": str(others.pk)})

    assert result.structured_content["error"]["code"] == "not_found"
    assert Trigger.objects.get().status == "armed"


def test_it_has_no_use_for_a_token_once_its_turn_has_ended(server: str, session: AgentSession, now: datetime) -> None:
    begun = factories.live_turn(session, now)
    assert _post(server, begun.token).status_code == 200

    factories.end_turn(begun.turn, now)
    factories.live_turn(session, now)  # the session's next turn has a token of its own

    answer = _post(server, begun.token)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="rewake", error="invalid_token"'


def test_it_does_nothing_for_a_turn_that_ends_during_the_call(session: AgentSession, now: datetime) -> None:
    begun = factories.live_turn(session, now)
    factories.end_turn(begun.turn, now)

    answer = mcp._answer(begun.turn, "schedule_trigger", {"operation": "list"})

    assert "this turn is over" in answer["error"]["message"]


def test_it_offers_a_turn_nothing_while_triggers_are_off(
    server: str, session: AgentSession, now: datetime, settings: Any
) -> None:
    settings.TRIGGERS_ENABLED = False

    assert _tools(server, factories.live_turn(session, now).token) == {}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_it_lists_triggers_page_by_page(server: str, session: AgentSession, now: datetime, mode: str) -> None:
    ids = [str(factories.arm(session, now).trigger.pk) for _ in range(3)]
    factories.armed_session(now)
    secret = _key("triggers.read")

    first = _call(server, secret, "list_triggers", {"session_id": str(session.pk), "limit": 2}, mode)
    again = {"session_id": str(session.pk), "limit": "2", "cursor": first.structured_content["next"], "kind": None}
    second = _call(server, secret, "list_triggers", again, mode)

    shown = [*first.structured_content["triggers"], *second.structured_content["triggers"]]
    assert [trigger["id"] for trigger in shown] == ids[::-1]
    assert second.structured_content["next"] is None
    assert shown[0]["describe"]


def test_it_filters_triggers_by_kind_and_status(server: str, session: AgentSession, now: datetime) -> None:
    secret, hook = _key("triggers.read"), factories.arm(session, now).trigger
    at = {"at": "2099-01-01T00:00:00Z"}
    alarm = factories.arm(session, now, "time.at", args=at, expires_at=None).trigger

    async def talk(client: Client) -> list[list[str]]:
        found = []
        for wanted in ({"kind": "webhook"}, {"kind": "time.at"}, {"status": "armed"}, {"status": "cancelled"}):
            result = await client.call_tool("list_triggers", wanted)
            found.append([trigger["id"] for trigger in result.structured_content["triggers"]])
        return found

    expected = [[hook.pk], [alarm.pk], [alarm.pk, hook.pk], []]
    assert _talk(server, secret, talk) == [[str(pk) for pk in ids] for ids in expected]


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ({"kind": "time.never"}, "time.cron"),
        ({"status": "bogus"}, "status"),
        ({"limit": 201}, "limit"),
        ({"limit": True}, "limit"),
        ({"session_id": "x"}, "session_id"),
        ({"color": "red"}, "session_id, kind, status, limit, cursor"),
    ],
)
def test_it_refuses_by_name_what_it_does_not_know(server: str, args: dict[str, Any], named: str) -> None:
    result = _call(server, _key("triggers.read"), "list_triggers", args)

    assert result.is_error is True
    assert result.structured_content["error"]["code"] == "validation"
    assert named in result.structured_content["error"]["message"]


def test_it_shows_a_trigger_with_its_last_fires_and_no_secret(server: str, now: datetime) -> None:
    trigger = factories.armed_session(now)
    for number in range(mcp.LAST_FIRES + 2):
        engine.fire(trigger.pk, Occurrence(f"delivery {number}", now, payload="x" * 5000), now=now)

    result = _call(server, _key("triggers.read"), "get_trigger", {"trigger_id": str(trigger.pk)})

    shown = result.structured_content
    assert (shown["id"], shown["fires"], len(shown["last_fires"])) == (str(trigger.pk), 12, mcp.LAST_FIRES)
    assert shown["last_fires"][0]["occurrence"] == "delivery 11"
    assert len(shown["last_fires"][0]["payload"]) == mcp.PAYLOAD_CHARS
    assert "rwh_" not in json.dumps(shown)


def test_it_cancels_a_trigger_once(server: str, now: datetime) -> None:
    trigger = factories.armed_session(now)
    secret, args = _key("triggers.manage"), {"trigger_id": str(trigger.pk)}

    first, second = (_call(server, secret, "cancel_trigger", args).structured_content for _ in range(2))

    assert first == {"id": str(trigger.pk), "status": "cancelled"}
    assert second == first | {"already_terminal": True}
    assert Event.objects.filter(type="trigger_status").get().payload["by"] == "key:ops"


def test_it_names_the_scope_that_a_key_lacks(server: str, now: datetime) -> None:
    trigger = factories.armed_session(now)
    args = {"trigger_id": str(trigger.pk)}

    cancelled = _call(server, _key("triggers.read"), "cancel_trigger", args)
    read = _call(server, _key("sessions.read"), "get_trigger", args)

    assert (cancelled.is_error, read.is_error) == (True, True)
    assert "triggers.manage" in cancelled.structured_content["error"]["message"]
    assert "triggers.read" in read.structured_content["error"]["message"]
    assert Trigger.objects.get().status == "armed"


def test_it_does_not_know_a_trigger_that_is_none(server: str, transactional_db: None) -> None:
    result = _call(server, _key(), "get_trigger", {"trigger_id": str(uuid4())})

    assert result.structured_content["error"]["code"] == "not_found"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_it_has_no_tool_that_arms_for_a_key(server: str, session: AgentSession, mode: str) -> None:
    refusal = _refusal(server, _key(), "schedule_trigger", mode)

    assert refusal == f"there is no tool 'schedule_trigger' for an API key; on offer: {', '.join(KEY_TOOLS)}"


def test_it_has_no_tool_of_a_key_for_a_turn(server: str, session: AgentSession, now: datetime) -> None:
    refusal = _refusal(server, factories.live_turn(session, now).token, "list_triggers")

    assert refusal == "there is no tool 'list_triggers' for a turn token; on offer: schedule_trigger"


def test_it_asks_for_a_credential(server: str) -> None:
    without, revoked = _post(server), keys.create(name="old", scopes=["admin"], now=clock())
    keys.revoke(revoked[0].pk, now=clock())
    wrong = [_post(server, secret) for secret in ("rwk_wrong", "rwt_wrong", "geheim", revoked[1])]

    assert without.headers["WWW-Authenticate"] == 'Bearer realm="rewake"'
    assert without.json()["error"]["code"] == "unauthorized"
    assert {answer.status_code for answer in [without, *wrong]} == {401}


def test_it_takes_a_key_in_either_header(server: str) -> None:
    answer = _post(server, **{"X-API-KEY": _key()})

    assert [tool["name"] for tool in answer.json()["result"]["tools"]] == KEY_TOOLS


def test_it_tells_caches_and_browsers_to_be_careful(server: str) -> None:
    answers = [_post(server, _key()), _post(server), _post(server, "rwk_wrong"), httpx.get(server)]

    assert {answer.headers["Cache-Control"] for answer in answers} == {"no-store"}
    assert {answer.headers["X-Content-Type-Options"] for answer in answers} == {"nosniff"}


def test_it_slows_down_who_guesses(server: str) -> None:
    answers = [_post(server, "rwk_guess") for _ in range(GUESSES_A_MINUTE + 1)]

    assert [answer.status_code for answer in answers] == [401] * GUESSES_A_MINUTE + [429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert _post(server, _key()).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[broken"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Host": "localhost:1234"}, 200),
    ],
)
def test_it_answers_for_its_own_hosts_only(server: str, headers: dict[str, str], status: int) -> None:
    assert _post(server, _key(), **headers).status_code == status


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "HEAD"])
def test_it_answers_no_method_but_post(server: str, method: str) -> None:
    answer = httpx.request(method, server, headers={"Accept": "text/event-stream", "X-API-KEY": _key()})

    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"[" * 100_000, b'{"jsonrpc": "2.0", "id": 1, "method": "nothing"}']
)
@pytest.mark.parametrize("version", [None, "2025-06-18", "2026-07-28", "1999-01-01"])
def test_it_answers_what_is_no_request_with_an_error(server: str, body: bytes, version: str | None) -> None:
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json", "X-API-KEY": _key()}
    headers |= {"MCP-Protocol-Version": version} if version else {}

    answer = httpx.post(server, content=body, headers=headers, timeout=live.PATIENCE)

    assert answer.status_code in {200, 400, 404}
    assert answer.json()["error"]["code"] < 0


def test_it_refuses_a_body_that_is_too_large(server: str) -> None:
    headers = {"Content-Type": "application/json", "X-API-KEY": _key()}

    assert httpx.post(server, content=b" " * (mcp.BODY_MAX_BYTES + 1), headers=headers).status_code == 413


def test_it_says_when_the_database_cannot_be_reached(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = _key()

    def broken(*_: object, **__: object) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr("triggers.mcp.selectors.triggers", broken)
    result = _call(server, secret, "list_triggers", {})
    monkeypatch.setattr("triggers.mcp.keys.of_secret", broken)
    answer = _post(server, secret)

    assert result.structured_content["error"]["code"] == "unavailable"
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


def test_it_leaves_the_rest_to_django(server: str) -> None:
    rest = httpx.get(server.removesuffix("/mcp") + "/healthz")

    assert rest.json() == {"status": "ok"}
    assert _post(f"{server}/", _key()).status_code == 200
    assert _post(f"{server}x", _key()).status_code == 404


def test_its_page_names_every_tool_with_its_scope_and_arguments() -> None:
    page = (BASE_DIR / "docs" / "mcp.md").read_text("utf-8")

    for tool in mcp.KEY_TOOLS:
        [row] = [line for line in page.splitlines() if line.startswith(f"| `{tool.name}` |")]
        assert [name for name in tool.args.model_fields if f"`{name}`" not in row] == []
        assert f"`{tool.scope}`" in page
