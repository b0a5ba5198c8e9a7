"""Holds what the fakes serve against the forges' published descriptions, as packages carry them.

A fixture is small: it leaves out most of what a forge sends. What it has must be in the description, under
that name and of that type, so that no invented field and no invented word passes.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

# docs.gitlab.com, REST API: "Pipelines", "Merge requests", "Commits". No package carries these shapes as types.
_GITLAB_USER = {"id": int, "username": str, "name": str, "state": str, "web_url": str, "avatar_url": str | None}
GITLAB_LISTED = {
    "id": int,
    "iid": int,
    "project_id": int,
    "status": str,
    "source": str,
    "ref": str,
    "sha": str,
    "name": str | None,
    "web_url": str,
    "created_at": str,
    "updated_at": str,
}
# Forgejo's OpenAPI document, ActionRun: the one shape in which it differs from Gitea here.
FORGEJO_RUN = {
    "id": int,
    "title": str,
    "workflow_id": str,
    "index_in_repo": int,
    "prettyref": str,
    "commit_sha": str,
    "event": str,
    "trigger_event": str,
    "status": str,
    "trigger_user": {"id": int, "login": str},
    "is_fork_pull_request": bool,
    "need_approval": bool,
    "html_url": str,
    "created": str,
    "started": str,
    "stopped": str,
    "updated": str,
}
GITLAB: dict[str, dict[str, Any]] = {
    "pipeline": GITLAB_LISTED
    | {
        "before_sha": str,
        "tag": bool,
        "yaml_errors": str | None,
        "user": _GITLAB_USER,
        "started_at": str | None,
        "finished_at": str | None,
        "committed_at": str | None,
        "duration": int | None,
        "queued_duration": int | None,
        "coverage": str | None,
    },
    "merge_request": {
        "id": int,
        "iid": int,
        "project_id": int,
        "title": str,
        "state": str,
        "sha": str,
        "web_url": str,
        "author": _GITLAB_USER,
        "merge_user": {**_GITLAB_USER} | {"": None},
        "closed_by": {**_GITLAB_USER} | {"": None},
        "merged_at": str | None,
        "closed_at": str | None,
        "created_at": str,
        "updated_at": str,
        "source_branch": str,
        "target_branch": str,
        "source_project_id": int | None,
        "target_project_id": int,
        "merge_commit_sha": str | None,
        "detailed_merge_status": str,
        "head_pipeline": GITLAB_LISTED | {"": None},
    },
    "status": {
        "id": int,
        "sha": str,
        "ref": str,
        "status": str,
        "name": str,
        "target_url": str | None,
        "description": str | None,
        "created_at": str,
        "started_at": str | None,
        "finished_at": str | None,
        "allow_failure": bool,
        "coverage": float | None,
        "author": _GITLAB_USER,
        "pipeline_id": int | None,
    },
}
_GITLAB_CI_WORDS = (
    "created waiting_for_resource waiting_for_callback preparing pending running success failed canceled canceling "
    "skipped manual scheduled"
)
GITLAB_WORDS = {
    "pipeline": _GITLAB_CI_WORDS,
    "merge_request": "opened closed locked merged",
    "status": _GITLAB_CI_WORDS,
}


class NotDescribed(AssertionError):
    """The forge's description knows no such thing."""


def check(forge: str, what: str, data: Any) -> None:
    """Raise `NotDescribed` if a body is not what the forge's description allows."""
    if forge == "forgejo":
        _check_documented(FORGEJO_RUN, data, what)
        return
    if forge == "gitlab":
        _check_documented(GITLAB[what], data, what)
        word = data.get("state" if what == "merge_request" else "status")
        if word not in GITLAB_WORDS[what].split():
            raise NotDescribed(f"{what}: {word!r} is no documented word")
        return
    _check_model(_models(forge)[what], data, what)


@cache
def _models(forge: str) -> dict[str, type[BaseModel]]:
    if forge == "github":
        from githubkit_schemas.v2026_03_10 import models as github

        return {
            "run": github.WorkflowRun,
            "pull": github.PullRequest,
            "check": github.CheckRun,
            "status": github.SimpleCommitStatus,
            "combined": github.CombinedCommitStatus,
        }
    from gitea_async.models.action_workflow_run import ActionWorkflowRun
    from gitea_async.models.commit_status import CommitStatus
    from gitea_async.models.pull_request import PullRequest

    return {"run": ActionWorkflowRun, "pull": PullRequest, "status": CommitStatus}


def _check_model(model: type[BaseModel], data: Any, where: str) -> None:
    if not isinstance(data, Mapping):
        raise NotDescribed(f"{where}: is no object")
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for name, value in data.items():
        if name not in fields:
            raise NotDescribed(f"{where}.{name}: {model.__name__} has no such field")
        _check_type(fields[name].annotation, value, f"{where}.{name}")


def _check_type(annotation: Any, value: Any, where: str) -> None:
    """Check a value against a type; objects only by the fields that they have."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _check_type(get_args(annotation)[0], value, where)
    if origin in (Union, types.UnionType):
        return _check_any(get_args(annotation), value, where)
    if origin is list and isinstance(value, list):
        for number, item in enumerate(value):
            _check_type(get_args(annotation)[0], item, f"{where}[{number}]")
        return None
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _check_model(annotation, value, where)
    try:
        TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        raise NotDescribed(f"{where}: {error}") from error
    return None


def _check_any(options: tuple[Any, ...], value: Any, where: str) -> None:
    faults = []
    for option in options:
        try:
            return _check_type(option, value, where)
        except NotDescribed as error:
            faults.append(str(error))
    raise NotDescribed("; or ".join(faults))


def _check_documented(described: Mapping[str, Any], data: Any, where: str) -> None:
    for name, value in data.items():
        if name not in described:
            raise NotDescribed(f"{where}.{name}: is not documented")
        kind = described[name]
        if isinstance(kind, Mapping):
            if value is not None or "" not in kind:
                _check_documented(kind, value, f"{where}.{name}")
        elif not isinstance(value, kind):
            raise NotDescribed(f"{where}.{name}: {value!r} is not of the documented type")
