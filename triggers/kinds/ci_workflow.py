"""`ci.workflow`: fires when a run of a CI workflow completes."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, ClassVar

from pydantic import Field, field_validator, model_validator

from triggers.kinds import base
from triggers.observations import Conclusion, Observation, Resource, RunSeen, Scope, Verdict

_WORDS = [*Conclusion, Verdict.PASSING, Verdict.FAILING]
_SHA = re.compile(r"[0-9a-fA-F]{40}")


class WorkflowArgs(base.RepoArgs):
    run_id: Annotated[
        int | None, Field(description="One run, by its id. Give either this or workflow.", ge=1, lt=2**63)
    ] = None
    workflow: Annotated[
        str | None,
        Field(description='All runs of a workflow that end from now on: its display name or file name, e.g. "ci.yml".'),
    ] = None
    ref: Annotated[
        str | None,
        Field(description='Only runs of this branch or tag, or of this full commit id; "owner:branch" for a fork\'s.'),
    ] = None
    conclusions: Annotated[
        base.TextList | None, Field(description=f"Only runs that end so: a list of {', '.join(_WORDS)}.", min_length=1)
    ] = None

    @field_validator("ref")
    @classmethod
    def _is_short(cls, value: str | None) -> str | None:
        return re.sub(r"^refs/(heads|tags)/", "", value) if value else None

    @field_validator("conclusions")
    @classmethod
    def _are_known(cls, value: list[str] | None) -> list[str] | None:
        words = list(dict.fromkeys(word.lower() for word in value or []))
        if unknown := [word for word in words if word not in _WORDS]:
            raise ValueError(f"{', '.join(map(repr, unknown))} is none of {', '.join(_WORDS)}")
        return words or None

    @model_validator(mode="after")
    def _names_one(self) -> WorkflowArgs:
        if bool(self.run_id) == bool(self.workflow):
            given = "both are given" if self.run_id else "neither is given"
            raise base.ArgsError("workflow", f"exactly one of run_id and workflow is needed, and {given}")
        return self


class CiWorkflow(base.EventKind[WorkflowArgs]):
    name: ClassVar[str] = "ci.workflow"
    summary: ClassVar[str] = "fires when a CI run of a repository completes"
    Args = WorkflowArgs

    def describe(self, args: WorkflowArgs, *, now: datetime) -> str:
        what = f"CI run {args.run_id}" if args.run_id else f"each run of {args.workflow}"
        of = f", {args.ref}" if args.ref else ""
        ends = f" ends as {' or '.join(args.conclusions)}" if args.conclusions else " completes"
        return f"{what} in {args.place}{of}{ends}"

    def notes(self, args: WorkflowArgs) -> list[str]:
        if args.run_id is None:
            return []
        note = f"if run {args.run_id} has ended already, only a re-run of it will fire this: look at it once more"
        return [f"{note} before you end your turn"]

    def resource(self, args: WorkflowArgs) -> Resource:
        return Resource(Scope.RUN if args.run_id else Scope.RUNS, args.repo, args.run_id)

    def matches(self, args: WorkflowArgs, observation: Observation) -> bool:
        if not isinstance(observation, RunSeen) or observation.conclusion is None:
            return False
        if args.run_id not in (None, observation.run_id):
            return False
        if args.workflow and not _is_named(args.workflow, observation):
            return False
        if args.ref and not _is_of(args.ref, observation):
            return False
        return not args.conclusions or not {observation.conclusion, observation.verdict}.isdisjoint(args.conclusions)


def _is_named(workflow: str, run: RunSeen) -> bool:
    """Return whether that is the workflow's display name or its file, with or without the folder."""
    return workflow in (run.name, run.file) or (bool(run.file) and workflow.endswith(f"/workflows/{run.file}"))


def _is_of(ref: str, run: RunSeen) -> bool:
    """Return whether a run is of that ref. A fork's branch is never taken for ours of the same name."""
    if _SHA.fullmatch(ref):
        return ref.lower() == run.sha
    return ref == (f"{run.owner}:{run.ref}" if run.owner else run.ref)
