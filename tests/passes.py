"""Run the suite on SQLite, then on PostgreSQL, and fail if anything failed or was skipped in either.

python -m tests.servers python -m tests.passes [pytest's arguments]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

_SUMMARY = re.compile(r"^=+ .*\b(passed|failed|errors?|no tests ran)\b.* in [0-9.]+s.* =+$")


@dataclass(frozen=True)
class Pass:
    """What one run of the suite came to."""

    name: str
    code: int
    summary: str

    def good(self) -> bool:
        """Tell whether tests were run, all passed and none was skipped."""
        return self.code == 0 and "passed" in self.summary and "skipped" not in self.summary


def main(arguments: Sequence[str]) -> int:
    """Run both passes, print how each ended, and return an exit code."""
    sqlite = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    postgres = sqlite | {"DATABASE_URL": os.environ["TEST_DATABASE_URL"]}
    others = [*arguments, "-m", "not own_stack"]  # those start the product on databases of their own: once is enough
    passes = [_run("SQLite", arguments, sqlite), _run("PostgreSQL", others, postgres)]
    for one in passes:
        print(f"\n{one.name}: {'good' if one.good() else 'NOT GOOD (failed, skipped or ran nothing)'}")
        print(one.summary)
    return 0 if all(one.good() for one in passes) else 1


def _run(name: str, arguments: Sequence[str], environment: dict[str, str]) -> Pass:
    print(f"\nThe suite on {name}", flush=True)
    command = [sys.executable, "-m", "pytest", *arguments]
    summary = f"(pytest did not come to its end on {name})"
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stdout
        for line in process.stdout:
            print(line, end="", flush=True)
            if _SUMMARY.match(line.strip()):
                summary = line.strip()
    return Pass(name, process.returncode, summary)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
