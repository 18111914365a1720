"""The job files that the options of `submit` and `run` come to: of files, of a template, or of a command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from phalanx.cli.client import Client
from phalanx.cli.files import text_of
from phalanx.cli.inherited import inherited
from phalanx.cli.job_draft import JobDraft
from phalanx.cli.job_text import Site, site_of

PLAIN_KEYS = (
    *("name", "queue", "priority", "kind", "image", "workdir"),
    *("duration", "max_run", "max_wait", "begin", "deadline", "array"),
)
"""Keys of a job file that are options of the same name."""

TASK_OPTIONS = ("gpus", "gpu_type", "cpus", "memory_gb")
PROGRAMS, JOB_FILES = (".py", ".sh"), (".yaml", ".yml", ".json")


def drafts_of(command: list[str], given: dict[str, Any], client: Client) -> list[JobDraft]:
    """The jobs that are to be submitted, each as its file, its template or the options have it.

    Options come before what a file or template says. A job that names no folder, and has no image with folders of its
    own, starts in this one where the server is here.
    """
    drafts = _of_files(command, given, client) if given["files"] else [_of_options(command, given)]
    for draft in drafts:
        _settle(draft, given["inherit_env"], client)
    return drafts


def _of_files(command: list[str], given: dict[str, Any], client: Client) -> list[JobDraft]:
    files: tuple[str, ...] = given["files"]
    if given["template"]:
        raise click.UsageError(f"--template {given['template']} and FILE {files[0]}: name one of them")
    if not os.path.exists(files[0]) and not files[0].endswith(JOB_FILES):
        raise click.UsageError(
            f"there is no job file '{files[0]}'; a command goes after `--`, as in `phalanx submit -- {' '.join(files)}`"
        )
    site = site_of(client)
    drafts = [_of_file(path, site) for path in files]
    for draft in drafts:
        _change(draft, command, given)
        if draft.changes:
            site.read(draft.text, f"{draft.source}, as changed by options")
    return drafts


def _of_file(path: str, site: Site) -> JobDraft:
    text = text_of(path)
    if path.endswith(PROGRAMS) or text.startswith("#!"):
        runs = f"python {path}" if path.endswith(".py") else f"sh {path}"
        raise click.UsageError(f"{path} is a program and no job file: run it with `phalanx submit -- {runs}`")
    site.read(text, path)
    return JobDraft(text, path)


def _of_options(command: list[str], given: dict[str, Any]) -> JobDraft:
    if given["template"]:
        from phalanx.cli.templates import template

        draft = JobDraft(template(given["template"]).text, f"template {given['template']}")
    elif given["changes"]:
        raise click.UsageError("--set changes a FILE or a template: name one")
    elif not command and not given["image"]:
        raise click.UsageError("expected FILE, --template NAME, or a command after --, as in `phalanx submit -- true`")
    else:
        draft = JobDraft("", "")
    _change(draft, command, given)
    return draft


def _change(draft: JobDraft, command: list[str], given: dict[str, Any]) -> None:
    """Has the options count before what the file says."""
    for change in given["changes"]:
        key, value = pair(change, "--set")
        draft.put_text(key, value)
    for key in PLAIN_KEYS:
        if given[key] is not None:
            draft.put([key], given[key])
    task = {key: given[key] for key in TASK_OPTIONS if given[key] is not None}
    draft.put_task(task | ({"replicas": given["tasks"]} if given["tasks"] else {}))
    for key, option in (("env", "--env"), ("labels", "--label")):
        draft.put_pairs(key, dict(pair(text, option) for text in given[key]))
    if given["after"]:
        draft.put(["after"], list(given["after"]))
    if given["retries"] is not None:
        draft.put(["retry"], {"limit": given["retries"]})
    if command:
        draft.put(["command"], command)


def _settle(draft: JobDraft, wanted: bool | None, client: Client) -> None:
    """Adds where the job starts and what it takes over from this shell, unless it says so itself.

    A server elsewhere has other folders, so that there it must be asked for.
    """
    if draft.has("image"):
        return
    if wanted is None and draft.has("inherit_env"):
        wanted = draft.value("inherit_env") == "true"
    if not draft.has("workdir") and (folder := _here(client.is_here or wanted is True)):
        told = list(draft.changes)
        draft.put(["workdir"], folder)
        draft.changes = told
    if wanted if wanted is not None else client.is_here:
        _inherit(draft)
    if client.is_here:
        _tell_of_workdir(draft)


def _here(is_shared: bool) -> str:
    """The folder that jobs start in: this one, if the server has it and its jobs, which are never root, can pass."""
    if not is_shared:
        return ""
    here = Path.cwd()
    if closed := _closed_to_jobs(here):
        click.echo(f"jobs do not run as root and cannot enter {closed}: it starts in a folder of its own", err=True)
        return ""
    return str(here)


def _inherit(draft: JobDraft) -> None:
    """Has the job find the programs that this shell finds."""
    variables = inherited(os.environ)
    home = variables.get("VIRTUAL_ENV") or variables.get("CONDA_PREFIX")
    if home and (closed := _closed_to_jobs(Path(home))):
        click.echo(
            f"jobs do not run as root and cannot enter {closed}: they do not find the Python of {home}", err=True
        )
    draft.add_pairs("env", variables)


def _closed_to_jobs(place: Path) -> Path | None:
    """The folder on the way to a place that jobs submitted by root, which run as other users, cannot pass."""
    if os.getuid():
        return None
    return next((each for each in (place, *place.parents) if each.is_dir() and not each.stat().st_mode & 0o001), None)


def _tell_of_workdir(draft: JobDraft) -> None:
    """Says before the job starts that it could not as things are. It is taken all the same: a job before may help."""
    folder = draft.value("workdir")
    if folder and not os.path.isdir(folder):
        click.echo(
            f"workdir '{folder}': there is no such folder on this machine, where the job runs: make it before the job "
            "starts, or it fails",
            err=True,
        )


def pair(text: str, option: str) -> tuple[str, str]:
    """A name and its value."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"{option} {text}: expected NAME=VALUE")
    return key, value
