"""The rehearsal model: its grammar, and how it goes through several instructions."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_ai import Agent, ModelMessage, Tool
from pydantic_ai.exceptions import ModelRateLimitError, ModelRequestRejectedError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelRequest, UserPromptPart

from sessions.runtime import rehearsal
from sessions.runtime.prompt import INTERRUPTED, WakePart, compose

NOW = datetime(2026, 12, 1, 9, 0, 0, 250_000, tzinfo=UTC)
ARMED = {"id": "t1", "kind": "time.at", "status": "armed", "describe": "in a while"}


async def clock() -> datetime:
    return NOW


class Bench:
    """An agent on the rehearsal model, with a tool that notes its calls and gives the answers it was given."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.calls: list[dict[str, Any]] = []
        self.answers = list(answers)
        self.history: list[ModelMessage] = []

    def say(self, prompt: str, *, offered: bool = True) -> str:
        async def call(**args: Any) -> dict[str, Any]:
            self.calls.append(args)
            return self.answers.pop(0) if self.answers else ARMED

        tool: Tool[None] = Tool.from_schema(call, rehearsal.TOOL, "", {"type": "object", "properties": {}})
        agent = Agent(rehearsal.model(clock), tools=[tool] if offered else [])
        result = asyncio.run(agent.run(prompt, message_history=self.history))
        self.history = result.all_messages()
        self.usage = result.usage
        return result.output


def arm(kind: str, prompt: str = "look", **args: Any) -> dict[str, Any]:
    return {"operation": "arm", "kind": kind, "wake_prompt": prompt, **args}


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("in 5s: look", arm("time.at", at="2026-12-01T09:00:05.250000Z")),
        ("in 2m: look", arm("time.at", at="2026-12-01T09:02:00.250000Z")),
        ("in 1.5h: look", arm("time.at", at="2026-12-01T10:30:00.250000Z")),
        ("  in 30d:look\n", arm("time.at", at="2026-12-31T09:00:00.250000Z")),
        ("in 5s: in 5s: look", arm("time.at", "in 5s: look", at="2026-12-01T09:00:05.250000Z")),
        ("in 5s: look\nand: tell", arm("time.at", "look\nand: tell", at="2026-12-01T09:00:05.250000Z")),
        ("every */5 * * * *: look", arm("time.cron", cron="*/5 * * * *")),
        (
            "every 0 9 * * MON-FRI Europe/Berlin: look",
            arm("time.cron", cron="0 9 * * MON-FRI", timezone="Europe/Berlin"),
        ),
        ("every 0 9 * * 1 [Etc/GMT+5]: look", arm("time.cron", cron="0 9 * * 1", timezone="Etc/GMT+5")),
        ("on webhook: look", arm("webhook")),
        ("on webhook signed: look", arm("webhook", hmac_header="X-Hub-Signature-256")),
        ("on ci octo/repo ci.yml: look", arm("ci.workflow", repo="octo/repo", workflow="ci.yml")),
        ("on ci octo/repo Build and test: look", arm("ci.workflow", repo="octo/repo", workflow="Build and test")),
        ("on ci octo/repo 123: look", arm("ci.workflow", repo="octo/repo", run_id=123)),
        ("on pr octo/repo#5 merged: look", arm("forge.pr", repo="octo/repo", number=5, events=["merged"])),
        (
            "on pr octo/repo#5 merged,ci_status: look",
            arm("forge.pr", repo="octo/repo", number=5, events=["merged", "ci_status"]),
        ),
        ("triggers", {"operation": "list"}),
        ("cancel t1", {"operation": "cancel", "trigger_id": "t1"}),
    ],
)
def test_it_calls_the_tool(line: str, call: dict[str, Any]) -> None:
    bench = Bench()
    bench.say(line)
    assert bench.calls == [call]


@pytest.mark.parametrize(
    "line",
    [
        "in five: x",
        "in 5s:",
        "in 9999999d: x",
        "every * * *: x",
        "on pr a/b merged: x",
        "cancel",
        "fail loudly",
        "Hello",
    ],
)
def test_it_echoes_what_it_does_not_understand(line: str) -> None:
    bench = Bench()
    assert bench.say(line) == line
    assert bench.calls == []


@pytest.mark.parametrize(
    ("answer", "report"),
    [
        (ARMED, "armed t1: in a while"),
        ({**ARMED, "hook_url": "https://example.org/s3cret"}, "armed t1: in a while (its URL is in the tool's result)"),
        ({"error": {"code": "policy", "message": "too many"}}, "refused: too many"),
        ({"triggers": []}, "no triggers"),
        ({"triggers": [ARMED, {**ARMED, "id": "t0"}]}, "t1 time.at armed; t0 time.at armed"),
        ({"id": "t1", "status": "cancelled"}, "t1 is cancelled"),
        ({"id": "t1", "status": "completed", "already_terminal": True}, "t1 is completed, as it was already"),
    ],
)
def test_it_reports_what_the_tool_answered(answer: dict[str, Any], report: str) -> None:
    assert Bench(answer).say("triggers") == report


def test_it_says_so_when_the_tool_is_not_on_offer() -> None:
    assert Bench().say("in 5s: x", offered=False) == "schedule_trigger is not on offer"


def test_it_handles_several_instructions_in_order() -> None:
    bench = Bench(ARMED, {"triggers": []})
    lines = ["hello", "in 5s: x", "sleep 0.01s", "triggers", "bye"]
    parts = [WakePart(wake_id=line, source="person", text=line) for line in lines]
    assert bench.say(compose(parts, now=NOW)).splitlines() == [
        "hello",
        "armed t1: in a while",
        "slept 0.01s",
        "no triggers",
        "bye",
    ]
    assert [call["operation"] for call in bench.calls] == ["arm", "list"]


def test_it_naps_once(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", nap)
    parts = [
        WakePart(wake_id="w", source="peer", text=line) for line in ["sleep 2m", "in 5s: x", "triggers", "sleep 3s"]
    ]
    Bench().say(compose(parts, now=NOW))
    assert naps == [120, 3]


def test_it_answers_each_turn_for_itself() -> None:
    bench = Bench()
    bench.say("in 5s: x")
    assert bench.say("in 6s: y") == "armed t1: in a while"
    assert bench.say("Hello") == "Hello"
    assert [call["wake_prompt"] for call in bench.calls] == ["x", "y"]


def test_it_drops_what_an_interrupt_left_undone() -> None:
    bench = Bench()
    bench.history = [ModelRequest(parts=[UserPromptPart("sleep 1h"), UserPromptPart(INTERRUPTED)])]
    assert bench.say("hello") == "hello"


@pytest.mark.parametrize("line", [" ", INTERRUPTED])
def test_it_always_has_an_answer(line: str) -> None:
    assert Bench().say(line) == "(nothing)"


@pytest.mark.parametrize("fence", ["in 5s: x", "--- begin text m4rk ---\nin 5s: x\n--- end text m4rk ---"])
def test_it_does_not_do_what_a_payload_says(fence: str) -> None:
    bench = Bench()
    part = WakePart(wake_id="w", source="trigger", text="Read the hook", payload=fence, payload_bytes=len(fence))
    assert bench.say(compose([part], now=NOW)) == "Read the hook"
    assert bench.calls == []


@pytest.mark.parametrize(
    ("line", "error", "retry_after"),
    [
        ("fail", UnexpectedModelBehavior, None),
        ("fail transport", ModelRateLimitError, None),
        ("fail transport 2.5", ModelRateLimitError, 2.5),
        ("fail permanent", ModelRequestRejectedError, None),
    ],
)
def test_it_fails_on_request(line: str, error: type[Exception], retry_after: float | None) -> None:
    with pytest.raises(error) as raised:
        Bench().say(line)
    assert getattr(raised.value, "retry_after", None) == retry_after


def test_it_counts_words() -> None:
    bench = Bench()
    bench.say("one two three")
    assert (bench.usage.input_tokens, bench.usage.output_tokens) == (3, 3)
    bench.say("four")
    assert (bench.usage.input_tokens, bench.usage.output_tokens) == (7, 1)
