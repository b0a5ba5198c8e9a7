"""The built-in adapter: on the rehearsal model, on scripted models, and on real providers' own clients."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from pydantic_ai import ModelMessage, ModelResponse, TextPart, ToolCallPart, exceptions
from pydantic_ai.messages import ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from sessions.runtime.adapters import builtin
from sessions.runtime.adapters.base import AdapterError, Fault
from sessions.runtime.adapters.builtin import Builtin
from sessions.runtime.prompt import FAILED, INTERRUPTED
from tests.sessions.adapters.contract import Rig, Stage

RIG = Rig(
    model="rehearsal",
    say=lambda word: f"say {word}",
    call_tool="in 5s: look again",
    be_busy="sleep 1h",
    fail={Fault.TRANSPORT: "fail transport 3", Fault.PERMANENT: "fail permanent", Fault.AGENT: "fail"},
)

ARM = ToolCallPart("schedule_trigger", {"operation": "list"})


class Script:
    """A model that gives the answers it was given, and keeps what it was sent."""

    def __init__(self, *answers: list[Any] | Exception) -> None:
        self.answers = list(answers)
        self.sent: list[list[ModelMessage]] = []
        self.instructions = ""
        self.meanwhile: Callable[[], None] = lambda: None

    async def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.sent.append(list(messages))
        self.instructions = info.instructions or ""
        self.meanwhile()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ModelResponse(parts=answer)


@pytest.fixture
def stage() -> Stage:
    return Stage("scripted")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Script]:
    def play(*answers: list[Any] | Exception) -> Script:
        script = Script(*answers)
        monkeypatch.setattr(builtin, "_model", lambda name, clock: FunctionModel(script))
        return script

    return play


def texts(messages: list[ModelMessage]) -> list[object]:
    return [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]


def test_it_does_not_import_the_library_before_it_is_needed() -> None:
    code = "import sys, sessions.runtime.adapters.builtin; sys.exit('pydantic_ai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_it_tells_the_agent_what_it_is_and_the_time(play: Callable[..., Script], stage: Stage) -> None:
    script = play([TextPart("done")])
    Builtin().run(stage.request("go"))
    assert "durable session" in script.instructions
    assert "arm a trigger with the tool schedule_trigger" in script.instructions
    assert script.instructions.endswith("The time is 2026-12-01T09:00:00Z (UTC).")


def test_it_keeps_no_instructions_in_the_history(play: Callable[..., Script], stage: Stage) -> None:
    play([TextPart("done")])
    assert "durable session" not in json.dumps(Builtin().run(stage.request("go")).history)


def test_it_emits_a_text_before_the_tools_that_come_with_it(play: Callable[..., Script], stage: Stage) -> None:
    play([TextPart("let me see"), ARM, TextPart(" "), TextPart("one moment")], [TextPart("done")])
    assert Builtin().run(stage.request("go")).text == "done"
    assert stage.types() == ["assistant", "assistant", "tool_call", "tool_result", "assistant"]


def test_it_redirects_a_run_that_has_given_its_final_text(play: Callable[..., Script], stage: Stage) -> None:
    stage.steering = [[], ["and this?"]]  # before the request, before the final text is taken as such
    script = play([TextPart("done")], [TextPart("done, too")])
    result = Builtin().run(stage.request("go"))
    assert result.text == "done, too"
    assert texts(script.sent[1]) == ["go", "and this?"]


def test_it_steers_between_a_tools_answer_and_the_next_request(play: Callable[..., Script], stage: Stage) -> None:
    stage.steering = [[], [], ["one", "two"]]
    script = play([ARM], [TextPart("done")])
    Builtin().run(stage.request("go"))
    assert texts(script.sent[1]) == ["go", "one", "two"]


def test_it_calls_no_tool_after_an_interrupt(play: Callable[..., Script], stage: Stage) -> None:
    play([TextPart("let me see"), ARM]).meanwhile = stage.stop.set
    result = Builtin().run(stage.request("go"))
    assert stage.types() == ["assistant"]
    assert result.text == "let me see"
    assert _is_whole(result.history)


def test_it_keeps_a_tools_answer_when_interrupted(play: Callable[..., Script], stage: Stage) -> None:
    script = play([ARM], [TextPart("never")])
    stage.stop_in_tool(id="t77")
    result = Builtin().run(stage.request("go"))
    assert len(script.sent) == 1
    assert "t77" in json.dumps(result.history)
    assert _is_whole(result.history)


def test_it_asks_for_nothing_when_interrupted_at_once(play: Callable[..., Script], stage: Stage) -> None:
    script = play()
    stage.stop.set()
    result = Builtin().run(stage.request("go"))
    assert script.sent == []
    assert [part["content"] for part in result.history[0]["parts"]] == ["go", INTERRUPTED]
    assert result.usage == {"requests": 0, "input_tokens": 0, "output_tokens": 0}


def test_it_keeps_what_was_steered_into_a_request_that_is_cancelled(stage: Stage) -> None:
    stage.model = "rehearsal"
    stage.steering = [["pebble"]]
    stage.stop_after(0.05)
    result = Builtin().run(stage.request("sleep 1h"))
    assert [part["content"] for part in result.history[0]["parts"]] == ["sleep 1h", "pebble", INTERRUPTED]


def test_it_keeps_what_was_steered_in_before_the_tool_that_was_its_last(
    play: Callable[..., Script], stage: Stage
) -> None:
    play([ARM], [TextPart("never")])
    stage.steering = [[], ["pebble"]]
    stage.stop_in_tool(id="t77")
    assert "pebble" in json.dumps(Builtin().run(stage.request("go")).history)


@pytest.mark.parametrize("args", ["[1]", "{", '"in 5s"', "7"])
def test_it_lets_the_model_mend_arguments_that_are_no_object(
    play: Callable[..., Script], stage: Stage, args: str
) -> None:
    script = play([ToolCallPart("schedule_trigger", args)], [ARM], [TextPart("done")])
    assert Builtin().run(stage.request("go")).text == "done"
    assert stage.types() == ["tool_call", "tool_result", "assistant"]
    assert any(isinstance(part, ToolReturnPart) for part in script.sent[1][-1].parts)


@pytest.mark.parametrize("args", [None, "", {}])
def test_it_takes_no_arguments_for_an_empty_object(play: Callable[..., Script], stage: Stage, args: Any) -> None:
    play([ToolCallPart("schedule_trigger", args)], [TextPart("done")])
    Builtin().run(stage.request("go"))
    assert stage.events[0] == ("tool_call", {})


def test_it_fails_a_model_that_never_mends_its_arguments(play: Callable[..., Script], stage: Stage) -> None:
    play(*[[ToolCallPart("schedule_trigger", "[1]")]] * 9)
    assert _error(stage).fault is Fault.AGENT


def test_it_ends_a_turn_that_asks_for_ever(
    play: Callable[..., Script], stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin, "MAX_REQUESTS", 3)
    script = play(*[[ARM]] * 9)
    assert _error(stage).fault is Fault.AGENT
    assert len(script.sent) == 3


@pytest.mark.parametrize("history", [["nonsense"], [{"kind": "request"}], {"kind": "request"}])
def test_it_refuses_a_history_that_is_not_its_own(play: Callable[..., Script], stage: Stage, history: Any) -> None:
    play()
    error = _error(stage, history=history)
    assert error.fault is Fault.PERMANENT
    assert "history cannot be read" in error.message


HTTP = exceptions.ModelHTTPError


@pytest.mark.parametrize(
    ("error", "fault", "says"),
    [
        (exceptions.ModelRateLimitError("m", "slow down", retry_after=7), Fault.TRANSPORT, "slow down"),
        (exceptions.ModelOverloadedError("m", "full"), Fault.TRANSPORT, "full"),
        (exceptions.ModelServerError("m", "broken"), Fault.TRANSPORT, "broken"),
        (exceptions.ModelConnectionError("m", "refused"), Fault.TRANSPORT, "refused"),
        (exceptions.ModelTimeoutError("m", "too long"), Fault.TRANSPORT, "too long"),
        (exceptions.ModelRequestTimeout("m", 5), Fault.TRANSPORT, "timed out"),
        (exceptions.ModelAPIError("m", "who knows"), Fault.TRANSPORT, "who knows"),
        (HTTP(503, "m", "down"), Fault.TRANSPORT, "down"),
        (HTTP(408, "m"), Fault.TRANSPORT, "408"),
        (HTTP(418, "m", "teapot"), Fault.PERMANENT, "teapot"),
        (exceptions.ModelAuthenticationError("m", "no"), Fault.PERMANENT, "SCRIPTED_API_KEY"),
        (exceptions.ModelNotFoundError("m", "what?"), Fault.PERMANENT, "AGENT_MODEL"),
        (exceptions.ModelContextWindowExceededError("m", "too much"), Fault.PERMANENT, "whole history"),
        (exceptions.ModelQuotaExceededError("m", "pay"), Fault.PERMANENT, "top up"),
        (exceptions.ModelRequestRejectedError("m", "bad"), Fault.PERMANENT, "refused the request"),
        (exceptions.UserError("not supported"), Fault.PERMANENT, "not supported"),
        (exceptions.UnexpectedModelBehavior("odd"), Fault.AGENT, "odd"),
        (exceptions.ContentFilterError("filtered"), Fault.AGENT, "filtered"),
        (exceptions.UsageLimitExceeded("enough"), Fault.AGENT, "enough"),
    ],
)
def test_it_tells_faults_apart(
    play: Callable[..., Script], stage: Stage, error: Exception, fault: Fault, says: str
) -> None:
    play(error)
    raised = _error(stage)
    assert raised.fault is fault
    assert says in raised.message
    assert raised.retry_after == getattr(error, "retry_after", None)


def test_it_tells_what_a_turn_did_before_it_failed(play: Callable[..., Script], stage: Stage) -> None:
    play([ARM], exceptions.ModelRateLimitError("m", "slow down"))
    stage.answer = lambda args: {"id": "t77"}
    raised = _error(stage)
    assert raised.reached is not None
    assert "t77" in json.dumps(raised.reached.history)
    assert _is_whole(raised.reached.history, FAILED)


def test_a_turn_that_never_got_an_answer_has_done_nothing(play: Callable[..., Script], stage: Stage) -> None:
    play(exceptions.ModelRateLimitError("m", "slow down"))
    assert _error(stage).reached is None


def test_it_does_not_swallow_what_it_cannot_foresee(play: Callable[..., Script], stage: Stage) -> None:
    play(ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError):
        Builtin().run(stage.request("go"))


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("nonsense", "Unknown model: nonsense"),
        ("nobody:nothing", "Unknown model: nobody:nothing"),
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("anthropic:claude", "ANTHROPIC_API_KEY"),
        ("groq:llama", "pydantic-ai-slim[groq]"),
    ],
)
def test_it_names_what_a_model_misses(monkeypatch: pytest.MonkeyPatch, stage: Stage, model: str, says: str) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    stage.model = model
    error = _error(stage)
    assert error.fault is Fault.PERMANENT
    assert says in error.message
    assert "AGENT_MODEL" in error.message


@pytest.mark.parametrize(
    ("base", "name", "spoken"),
    [
        ("", "openai:m", "openai:m"),
        ("https://api.openai.com/v1", "openai:m", "openai:m"),
        ("https://eu.api.openai.com/v1", "openai:m", "openai:m"),
        ("http://127.0.0.1:11434/v1", "openai:m", "openai-chat:m"),
        ("http://127.0.0.1:11434/v1", "openai-responses:m", "openai-responses:m"),
        ("http://127.0.0.1:11434/v1", "anthropic:m", "anthropic:m"),
        ("https://notopenai.com/v1", "openai:m", "openai-chat:m"),
    ],
)
def test_it_speaks_chat_completions_to_a_local_server(
    monkeypatch: pytest.MonkeyPatch, base: str, name: str, spoken: str
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", base)
    assert builtin._spoken(name) == spoken


@dataclass
class Provider:
    """A provider's server on this machine: answers what it was given to answer, keeps what it was asked."""

    answers: list[tuple[int, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    hold: Event = field(default_factory=Event)
    url: str = ""

    def answer(self, status: int, body: dict[str, Any], **headers: str) -> None:
        self.answers.append((status, {name.replace("_", "-"): value for name, value in headers.items()}, body))


@contextmanager
def _served(provider: Provider) -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            provider.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            provider.paths.append(self.path)
            provider.hold.wait(5)
            status, headers, body = provider.answers.pop(0)
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            content = json.dumps(body).encode()
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    provider.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield provider
    finally:
        provider.hold.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with _served(Provider()) as provider:
        provider.hold.set()
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        monkeypatch.setenv("OPENAI_API_KEY", "a key")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "a key")
        yield provider


@pytest.fixture
def local(stage: Stage, provider: Provider) -> Stage:
    stage.model = "openai:local-model"
    return stage


def _completion(**message: Any) -> dict[str, Any]:
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": None, **message}}
    usage = {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def _tool_call() -> dict[str, Any]:
    function = {"name": "schedule_trigger", "arguments": '{"operation": "list"}'}
    return _completion(tool_calls=[{"id": "call_1", "type": "function", "function": function}])


def test_it_runs_an_openai_model(provider: Provider, local: Stage) -> None:
    provider.answer(200, _tool_call())
    provider.answer(200, _completion(content="Nothing is armed."))
    result = Builtin().run(local.request("What is armed?"))
    assert result.text == "Nothing is armed."
    assert result.usage == {"requests": 2, "input_tokens": 22, "output_tokens": 8}
    assert local.events[0] == ("tool_call", {"operation": "list"})
    assert provider.paths == ["/v1/chat/completions"] * 2
    assert provider.asked[0]["model"] == "local-model"
    assert provider.asked[0]["tools"][0]["function"]["name"] == "schedule_trigger"
    assert json.loads(provider.asked[1]["messages"][-1]["content"])["status"] == "armed"


def test_it_hands_an_openai_model_its_whole_history(provider: Provider, local: Stage) -> None:
    provider.answer(200, _completion(content="Four."))
    provider.answer(200, _completion(content="Five."))
    first = Builtin().run(local.request("Two and two?"))
    Builtin().run(local.request("And one more?", first.history))
    assert [message["role"] for message in provider.asked[1]["messages"]] == ["system", "user", "assistant", "user"]


def test_it_needs_no_key_for_a_local_server(provider: Provider, local: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    provider.answer(200, _completion(content="Hello."))
    assert Builtin().run(local.request("Hello")).text == "Hello."


@pytest.mark.parametrize(
    ("status", "headers", "body", "fault", "says", "wait"),
    [
        (429, {"Retry_After": "7"}, {"message": "slow"}, Fault.TRANSPORT, "slow", (7, 7)),
        (429, {"Retry_After": "Fri, 31 Dec 2100 23:59:59 GMT"}, {"message": "slow"}, Fault.TRANSPORT, "", (1e9, 1e10)),
        (429, {}, {"message": "pay", "code": "insufficient_quota"}, Fault.PERMANENT, "top up", None),
        (500, {}, {"message": "broken"}, Fault.TRANSPORT, "broken", None),
        (503, {"Retry_After": "2"}, {"message": "down"}, Fault.TRANSPORT, "down", (2, 2)),
        (401, {}, {"message": "bad key"}, Fault.PERMANENT, "set OPENAI_API_KEY", None),
        (404, {}, {"message": "no such", "code": "model_not_found"}, Fault.PERMANENT, "OPENAI_BASE_URL", None),
        (400, {}, {"message": "long", "code": "context_length_exceeded"}, Fault.PERMANENT, "whole history", None),
        (400, {}, {"message": "bad"}, Fault.PERMANENT, "refused the request", None),
    ],
)
def test_it_translates_what_an_openai_server_answers(
    provider: Provider,
    local: Stage,
    status: int,
    headers: dict[str, str],
    body: dict[str, Any],
    fault: Fault,
    says: str,
    wait: tuple[float, float] | None,
) -> None:
    provider.answer(status, {"error": {"type": "x", "code": None, "param": None, **body}}, **headers)
    error = _error(local)
    assert error.fault is fault
    assert says in error.message
    assert (error.retry_after is None) is (wait is None)
    assert wait is None or wait[0] <= (error.retry_after or 0) <= wait[1]
    assert len(provider.asked) == 1  # the client does not retry: the inbox does


def test_it_reports_a_server_that_is_not_there(local: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert _error(local).fault is Fault.TRANSPORT


def test_it_cancels_a_request_that_is_under_way(provider: Provider, local: Stage) -> None:
    provider.hold.clear()
    provider.answer(200, _completion(content="Too late."))
    local.stop_after(0.15)
    start = monotonic()
    result = Builtin().run(local.request("Hello"))
    assert monotonic() - start < 3
    assert result.text == ""
    assert "Hello" in json.dumps(result.history)


@pytest.mark.parametrize(
    ("status", "type_", "fault", "says"),
    [
        (401, "authentication_error", Fault.PERMANENT, "set ANTHROPIC_API_KEY"),
        (429, "rate_limit_error", Fault.TRANSPORT, "could not answer"),
        (529, "overloaded_error", Fault.TRANSPORT, "could not answer"),
    ],
)
def test_it_translates_what_an_anthropic_server_answers(
    provider: Provider, stage: Stage, status: int, type_: str, fault: Fault, says: str
) -> None:
    stage.model = "anthropic:some-model"
    provider.answer(status, {"type": "error", "error": {"type": type_, "message": "no"}})
    error = _error(stage)
    assert error.fault is fault
    assert says in error.message
    assert len(provider.asked) == 1


def test_it_does_not_occupy_the_loop_of_whoever_calls_it(play: Callable[..., Script], stage: Stage) -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    play([TextPart("done")]).meanwhile = lambda: loops.append(asyncio.get_running_loop())

    async def main() -> asyncio.AbstractEventLoop:
        await sync_to_async(Builtin().run)(stage.request("go"))
        return asyncio.get_running_loop()

    assert loops != [asyncio.run(main())]
    assert len(loops) == 1


def _error(stage: Stage, **changes: Any) -> AdapterError:
    with pytest.raises(AdapterError) as raised:
        Builtin().run(stage.request("go", **changes))
    return raised.value


def _is_whole(history: list[Any], last: str = INTERRUPTED) -> bool:
    """Tell whether every tool call has its answer and the last word is `last`."""
    parts = [part for message in history for part in message["parts"]]
    called = [part["tool_call_id"] for part in parts if part["part_kind"] == "tool-call"]
    answered = [part["tool_call_id"] for part in parts if part["part_kind"] == "tool-return"]
    return bool(called) and called == answered and parts[-1].get("content") == last
