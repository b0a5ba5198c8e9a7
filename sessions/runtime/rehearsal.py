"""The rehearsal model: a deterministic stand-in that needs no key and no network.

It calls the real tool through the real tool loop. One line is one instruction:

    in 5s: <prompt>                                every */5 * * * * [Zone]: <prompt>
    on webhook [signed]: <prompt>                  on ci owner/name ci.yml|123: <prompt>
    on pr owner/name#5 merged,ci_status: <prompt>
    triggers | cancel <id> | sleep 5s | fail | fail transport [seconds] | fail permanent

It echoes anything else. Several instructions in one prompt are handled in order.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic_ai import ModelMessage, ModelResponse, RequestUsage, TextPart, ToolCallPart
from pydantic_ai.exceptions import ModelRateLimitError, ModelRequestRejectedError, UnexpectedModelBehavior
from pydantic_ai.messages import ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from sessions.instants import iso
from sessions.runtime.prompt import INTERRUPTED, instructions_in

NAME = "rehearsal"
TOOL = "schedule_trigger"
_NOTHING = "(nothing)"  # an empty answer would be asked for again

_Clock = Callable[[], Awaitable[datetime]]
_Arguments = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """What one instruction asks for: a call of the tool, a nap, a fault, or only something to say."""

    say: str = ""
    call: Callable[[datetime], _Arguments] | None = None
    nap: float = 0
    fault: Callable[[], Exception] | None = None


def model(clock: _Clock) -> FunctionModel:
    """Return the rehearsal model, which reads the time from `clock`."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered = any(tool.name == TOOL for tool in info.function_tools)
        part = await _next_part(messages, clock=clock, offered=offered)
        said = part.content if isinstance(part, TextPart) else part.args_as_json_str()
        return ModelResponse(
            parts=[part], usage=RequestUsage(input_tokens=_words(messages), output_tokens=len(said.split()))
        )

    return FunctionModel(answer, model_name=NAME)


def read(instruction: str) -> Step:
    """Read one instruction. What is not in the grammar is an echo."""
    line = instruction.strip()
    for pattern, step in _GRAMMAR:
        if match := pattern.fullmatch(line):
            return step(match)
    return Step(say=line or _NOTHING)


async def _next_part(messages: Sequence[ModelMessage], *, clock: _Clock, offered: bool) -> TextPart | ToolCallPart:
    """Go through what is open: past what the tool has answered, to the next call or to the final text."""
    instructions, answers = _open(messages)
    left = list(answers)
    said: list[str] = []
    for step in map(read, instructions):
        if step.call and left:
            said.append(_report(left.pop(0)))
        elif step.call and offered:
            return ToolCallPart(TOOL, step.call(await clock()))
        elif step.call:
            said.append(f"{TOOL} is not on offer")
        else:
            if not left:  # otherwise it was done before the call that is answered next
                await _do(step)
            said.append(step.say)
    return TextPart("\n".join(said) or _NOTHING)


def _open(messages: Sequence[ModelMessage]) -> tuple[list[str], list[Any]]:
    """Return the instructions that no final text has answered yet, and the tool's answers so far."""
    instructions: list[str] = []
    answers: list[Any] = []
    for message in messages:
        if isinstance(message, ModelResponse) and not message.tool_calls:
            instructions, answers = [], []
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                answers.append(part.content)
            elif isinstance(part, UserPromptPart) and part.content == INTERRUPTED:
                instructions, answers = [], []
            elif isinstance(part, UserPromptPart) and isinstance(part.content, str):
                instructions.extend(instructions_in(part.content))
    return instructions, answers


async def _do(step: Step) -> None:
    if step.fault:
        raise step.fault()
    if step.nap:
        await asyncio.sleep(step.nap)


def _report(answer: Any) -> str:
    """Say in one line what the tool answered."""
    if not isinstance(answer, dict):
        return str(answer)
    if "error" in answer:
        return f"refused: {answer['error'].get('message', answer['error'])}"
    if isinstance(triggers := answer.get("triggers"), list):
        return "; ".join(_summary(trigger) for trigger in triggers) or "no triggers"
    if "describe" in answer:
        url = " (its URL is in the tool's result)" if answer.get("hook_url") else ""
        return f"{answer.get('status', 'armed')} {answer.get('id')}: {answer['describe']}{url}"
    ended = ", as it was already" if answer.get("already_terminal") else ""
    return f"{answer.get('id')} is {answer.get('status')}{ended}"


def _summary(trigger: dict[str, Any]) -> str:
    return " ".join(str(trigger[key]) for key in ("id", "kind", "status") if key in trigger)


def _words(messages: Sequence[ModelMessage]) -> int:
    """Count the words of all that the model was sent."""
    return sum(len(text.split()) for message in messages for text in _texts(message))


def _texts(message: ModelMessage) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            yield part.model_response_str()
        elif isinstance(part, UserPromptPart | TextPart) and isinstance(part.content, str):
            yield part.content
        elif isinstance(part, ToolCallPart):
            yield part.args_as_json_str()


def _arm(kind: str, prompt: str, **args: Any) -> _Arguments:
    given = {name: value for name, value in args.items() if value is not None}
    return {"operation": "arm", "kind": kind, "wake_prompt": prompt, **given}


def _in(match: re.Match[str]) -> Step:
    delay = timedelta(seconds=_seconds(match))
    return Step(call=lambda now: _arm("time.at", match["prompt"], at=iso(now + delay)))


def _every(match: re.Match[str]) -> Step:
    return _call(_arm("time.cron", match["prompt"], cron=match["cron"], timezone=match["zone"]))


def _webhook(match: re.Match[str]) -> Step:
    return _call(_arm("webhook", match["prompt"], hmac_header="X-Hub-Signature-256" if match["signed"] else None))


def _ci(match: re.Match[str]) -> Step:
    run = match["run"]
    which = {"run_id": int(run)} if re.fullmatch("[0-9]+", run) else {"workflow": run}
    return _call(_arm("ci.workflow", match["prompt"], repo=match["repo"], **which))


def _pr(match: re.Match[str]) -> Step:
    events = match["events"].replace(" ", "").split(",")
    return _call(_arm("forge.pr", match["prompt"], repo=match["repo"], number=int(match["number"]), events=events))


def _sleep(match: re.Match[str]) -> Step:
    return Step(say=f"slept {match['count']}{match['unit']}", nap=_seconds(match))


def _fail(match: re.Match[str]) -> Step:
    if match["how"] == "transport":
        wait = float(match["wait"]) if match["wait"] else None
        return Step(fault=lambda: ModelRateLimitError(NAME, "a transport fault was asked for", retry_after=wait))
    if match["how"] == "permanent":
        return Step(fault=lambda: ModelRequestRejectedError(NAME, "a permanent fault was asked for"))
    return Step(fault=lambda: UnexpectedModelBehavior("a fault of the agent was asked for"))


def _call(arguments: _Arguments) -> Step:
    return Step(call=lambda now: arguments)


def _seconds(match: re.Match[str]) -> float:
    return float(match["count"]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match["unit"]]


_DELAY = r"(?P<count>[0-9]{1,6}(\.[0-9]{1,3})?) ?(?P<unit>[smhd])"
_REPO = r"(?P<repo>[^\s:#]+/[^\s:#]+)"
_PROMPT = r" ?: *(?P<prompt>\S.*)"
_GRAMMAR: list[tuple[re.Pattern[str], Callable[[re.Match[str]], Step]]] = [
    (re.compile(f"in {_DELAY}{_PROMPT}", re.DOTALL), _in),
    (re.compile(r"every (?P<cron>[^\s:]+( [^\s:]+){4})( \[?(?P<zone>[\w+/-]+)\]?)?" + _PROMPT, re.DOTALL), _every),
    (re.compile(r"on webhook(?P<signed> \[?signed\]?)?" + _PROMPT, re.DOTALL), _webhook),
    (re.compile(f"on ci {_REPO} (?P<run>[^:\n]+?){_PROMPT}", re.DOTALL), _ci),
    (re.compile(f"on pr {_REPO}#(?P<number>[0-9]+) (?P<events>[a-z_, ]+?){_PROMPT}", re.DOTALL), _pr),
    (re.compile("triggers"), lambda match: _call({"operation": "list"})),
    (re.compile(r"cancel (?P<id>\S+)"), lambda match: _call({"operation": "cancel", "trigger_id": match["id"]})),
    (re.compile(f"sleep {_DELAY}"), _sleep),
    (re.compile(r"fail( (?P<how>transport|permanent)(?(how)( (?P<wait>[0-9]+(\.[0-9]+)?))?))?"), _fail),
]
