"""Feeds GitHub's readers the official examples that npm carries, and expects no error and no unknown word.

    python -m tests.triggers.forges.official

They are installed into a temporary folder. Where there is no npm, or it reaches no registry, this says so and
fails nothing: the fixtures, which are held against the same description, stand for them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from triggers.forges import github

PACKAGES = ["@octokit/openapi@23.0.2", "@octokit/webhooks-examples@7.6.1"]


def main() -> int:
    """Install the examples, read them all, and return an exit code."""
    npm = shutil.which("npm")
    if npm is None:
        print("GitHub's official examples: NOT READ, there is no npm here")
        return 0
    with tempfile.TemporaryDirectory(prefix="rewake-examples-") as folder:
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", folder, *PACKAGES]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            print(f"GitHub's official examples: NOT READ, npm could not install them: {done.stderr.strip()[-300:]}")
            return 0
        return report(list(examples(Path(folder) / "node_modules" / "@octokit")))


def report(found: list[tuple[str, str, Any]]) -> int:
    """Read examples (where from, what they are, the JSON), print what went wrong, and return an exit code."""
    faults = [f"{where}: {fault}" for where, what, body in found if (fault := fault_of(what, body))]
    print("\n".join([*faults, f"GitHub's official examples: {len(found)} read, {len(faults)} wrong"]))
    return 1 if faults or not found else 0


def fault_of(what: str, body: Any) -> str:
    """Return what is wrong with how an example is read, "" if nothing is."""
    try:
        kept = READERS[what](body)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    words = [
        *kept.get("unknown", []),
        *(word for item in kept.get("items", []) if isinstance(item, dict) for word in item["unknown"]),
    ]
    return f"unknown words: {', '.join(words)}" if words else ""


def examples(root: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield every example of what is polled: of each version of the REST API, and of the webhooks' same objects."""
    for file in sorted((root / "openapi" / "generated").glob("*.json")):
        if ".deref" not in file.name:
            for name, example in json.loads(file.read_text("utf-8"))["components"]["examples"].items():
                if name in READERS:
                    yield f"{file.name} {name}", name, example["value"]
    for file in sorted((root / "webhooks-examples").glob("*/index.json")):
        for event in json.loads(file.read_text("utf-8")):
            if event["name"] in READERS:
                for number, example in enumerate(event["examples"]):
                    yield f"{file.parent.name} {event['name']} {number}", event["name"], example


READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "workflow-run-paginated": github._keep_runs,
    "workflow-run": github._keep_run,
    "check-run-paginated": github._keep_checks,
    "combined-commit-status": github._keep_statuses,
    "pull-request": github._keep_pull,
    "workflow_run": lambda body: github._keep_run(body["workflow_run"]),
    "check_run": lambda body: github._keep_checks({"total_count": 1, "check_runs": [body["check_run"]]}),
    "status": lambda body: github._keep_statuses({"total_count": 1, "statuses": [body]}),
    "pull_request": lambda body: github._keep_pull(body["pull_request"]),
}

if __name__ == "__main__":
    sys.exit(main())
