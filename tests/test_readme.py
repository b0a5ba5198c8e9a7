"""The README's tour, pasted into a shell as a newcomer would."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests import stack
from tests.stack import KEY, ROOT, Stack

pytestmark = pytest.mark.own_stack

_STEP = re.compile(r"```sh\n(?P<commands>.*?)```(?:\n\n```text\n(?P<prints>.*?)```)?", re.DOTALL)
_VARYING = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>"),
    (r"rewake [0-9a-f]{16}", "rewake <mark>"),
    (r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b", "<day>"),
    (r"\d{4}-\d\d-\d\d", "<date>"),
    (r"\d\d:\d\d:\d\d", "<time>"),
]


@pytest.fixture(scope="module")
def product() -> Iterator[Stack]:
    with stack.embedded() as running:
        running.start("embedded")
        running.wait_until_ready()
        yield running


def test_its_tour_prints_what_it_says(product: Stack) -> None:
    tour = (ROOT / "README.md").read_text("utf-8").split("## Five minutes")[1].split("## A real model")[0]
    steps = [step for step in _STEP.finditer(tour) if "export KEY" not in step["commands"]]
    port = product.of("embedded")[0].port
    script = f"REWAKE=http://127.0.0.1:{port}\nKEY={KEY}\n"
    for step in steps:
        script += f"{step['commands']}\necho =====\n"

    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, timeout=90, check=False)

    printed = _settled(done.stdout).split("=====\n")
    wanted = [step["prints"] or "" for step in steps]
    assert printed[:-1] == wanted, done.stdout + done.stderr


def _settled(text: str) -> str:
    for pattern, name in _VARYING:
        text = re.sub(pattern, name, text)
    return text
