"""An adapter that notes when it starts, for benchmarks.

A worker gets it by `--include=tests.benchmarks.probe`; `python -m tests.benchmarks.probe serve` is `manage.py serve`
with it. Each start is a line of JSON in the file that PROBE_FILE names. Asked to arm, it arms a trigger for now with
the tool that it was given, and ends its turn.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management import execute_from_command_line

from sessions.runtime.adapters.base import TurnRequest, TurnResult
from sessions.services import ADAPTERS

ARM = "arm a trigger for now"


class Probe:
    name = "probe"

    def warm(self) -> None:
        pass

    def run(self, request: TurnRequest) -> TurnResult:
        started = time.time()
        if ARM in request.prompt:
            _arm(request)
        else:
            _note(session=str(request.session_id), started=started)
        return TurnResult("noted")


def _arm(request: TurnRequest) -> None:
    tool = next(tool for tool in request.tools if tool.name == "schedule_trigger")
    due = time.time()
    instant = datetime.fromtimestamp(due, UTC).isoformat()
    answer = tool.call({"operation": "arm", "kind": "time.at", "at": instant, "wake_prompt": "go on"})
    _note(session=str(request.session_id), due=due, refused=answer.get("error"))


def _note(**fields: Any) -> None:
    line = json.dumps(fields) + "\n"
    with Path(os.environ["PROBE_FILE"]).open("a") as file:  # one short write in append mode is never torn
        file.write(line)


ADAPTERS.by_name[Probe.name] = Probe()

if __name__ == "__main__":
    execute_from_command_line(["manage.py", *sys.argv[1:]])
