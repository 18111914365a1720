"""The job files that the options of `submit` and `run` come to: of files, of a template, or of a command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from phalanx.cli.client import Client
from phalanx.cli.dependencies import dependencies, replicas
from phalanx.cli.files import text_of
from phalanx.cli.inherited import inherited
from phalanx.cli.job_text import Site, site_of
from phalanx.cli.new_job import NewJob

if TYPE_CHECKING:
    from phalanx.cli.job_draft import JobDraft
    from phalanx.cli.plain_file import PlainFile

Changeable: TypeAlias = "JobDraft | NewJob"
Draft: TypeAlias = "Changeable | PlainFile"

PLAIN_KEYS = (
    *("name", "queue", "priority", "kind", "image", "workdir"),
    *("duration", "max_run", "max_wait", "begin", "deadline", "array"),
)
"""Keys of a job file that are options of the same name."""

TASK_OPTIONS = ("gpus", "gpu_type", "cpus", "memory_gb")
NODE_NAME = "phalanx/node"
"""The label by which every node has its name."""

WEIGHTS = tuple(map(str, range(1, 101)))
PROGRAMS, JOB_FILES = (".py", ".sh"), (".yaml", ".yml", ".json")


def drafts_of(command: list[str], given: dict[str, Any], client: Client) -> list[Draft]:
    """The jobs that are to be submitted, each as its file, its template or the options have it.

    Options come before what a file or template says. A job that names no folder, and has no image with folders of its
    own, starts in this one where the server is here.
    """
    if not given["files"]:
        draft = _of_options(command, given)
        _settle(draft, given["inherit_env"], client)
        return [draft]
    from phalanx.cli.plain_file import PlainFile

    _refuse_others(given["files"], given["template"])
    if not command and not _says_anything(given):
        drafts: list[Draft] = [_as_written(path, client) for path in given["files"]]
    else:
        drafts = [_of_file(path, client) for path in given["files"]]
    try:
        for each in drafts:
            if not isinstance(each, PlainFile):
                _change(each, command, given)
            _settle(each, given["inherit_env"], client)
    except click.UsageError:
        # What is wrong with a file comes before what is wrong with options that change it.
        check_files(given["files"], site_of(client))
        raise
    return drafts


def _says_anything(given: dict[str, Any]) -> bool:
    """Whether an option says something of the job itself."""
    said = (value for key, value in given.items() if key not in ("files", "inherit_env"))
    return any(value is not None and value is not False and value != () for value in said)


def check_files(files: Sequence[str], site: Site) -> None:
    """Raises what is wrong with a job file, by its line. The server reads it anyway: this is for its errors alone."""
    for path in files:
        site.read(text_of(path), path)


def check_drafts(drafts: Sequence[Draft], files: Sequence[str], site: Site) -> None:
    """Raises what is wrong with job files, or with what options have made of them."""
    check_files(files, site)
    for draft in drafts if files else ():
        if draft.changes:
            site.read(draft.text, f"{draft.source}, as changed by options")


def _refuse_others(files: Sequence[str], template: str | None) -> None:
    """Refuses what is no job file at all."""
    if template:
        raise click.UsageError(f"--template {template} and FILE {files[0]}: name one of them")
    if not os.path.exists(files[0]) and not files[0].endswith(JOB_FILES):
        raise click.UsageError(
            f"there is no job file '{files[0]}'; a command goes after `--`, as in `phalanx submit -- {' '.join(files)}`"
        )


def _as_written(path: str, client: Client) -> Draft:
    """A file that no option changes: YAML is read only where its lines do not tell enough."""
    from phalanx.cli.plain_file import plain_file

    return plain_file(_job_text(path), path) or _of_file(path, client)


def _of_file(path: str, client: Client) -> JobDraft:
    from phalanx.cli.job_draft import JobDraft, NoTree

    text = _job_text(path)
    try:
        return JobDraft(text, path)
    except NoTree:
        check_files([path], site_of(client))
        raise


def _job_text(path: str) -> str:
    """The text of a job file; a program is told how it is run."""
    text = text_of(path)
    if path.endswith(PROGRAMS) or text.startswith("#!"):
        runs = f"python {path}" if path.endswith(".py") else f"sh {path}"
        unread = "; its #SBATCH lines are not read: give them as options" if "\n#SBATCH" in text else ""
        raise click.UsageError(f"{path} is a program and no job file: run it with `phalanx submit -- {runs}`{unread}")
    return text


def _of_options(command: list[str], given: dict[str, Any]) -> Changeable:
    draft: Changeable = NewJob()
    if given["template"]:
        from phalanx.cli.job_draft import JobDraft
        from phalanx.cli.templates import template

        draft = JobDraft(template(given["template"]).text, f"template {given['template']}")
    elif given["changes"]:
        raise click.UsageError("--set changes a FILE or a template: name one")
    elif not command and not given["image"]:
        raise click.UsageError("expected FILE, --template NAME, or a command after --, as in `phalanx submit -- true`")
    _change(draft, command, given)
    return draft


def _change(draft: Changeable, command: list[str], given: dict[str, Any]) -> None:
    """Has the options count before what the file says."""
    if not isinstance(draft, NewJob):
        for change in given["changes"]:
            draft.put_text(*pair(change, "--set"))
    for key in PLAIN_KEYS:
        if given[key] is not None:
            draft.put([key], given[key])
    task = {key: given[key] for key in TASK_OPTIONS if given[key] is not None}
    draft.put_task(task | ({"replicas": replicas(given["tasks"])} if given["tasks"] is not None else {}))
    for key, option in (("env", "--env"), ("labels", "--label"), ("node_selector", "--node-selector")):
        draft.put_pairs(key, dict(pair(text, option) for text in given[key]))
    if given["node"] is not None:
        draft.put_pairs("node_selector", {NODE_NAME: given["node"]})
    if given["exclude"]:
        draft.put_pairs("node_selector", {NODE_NAME: _excluded(given)})
    if given["prefer"]:
        draft.put_pairs("prefer", dict(_weighed(text) for text in given["prefer"]))
    after = dependencies(given)
    if after:
        draft.put(["after"], after)
    if given["retries"] is not None:
        draft.put(["retry"], {"limit": given["retries"]})
    if command:
        draft.put(["command"], command)


def _excluded(given: dict[str, Any]) -> str:
    """The selector of nodes that keeps the job off some."""
    named = [pair(text, "--node-selector")[0] for text in given["node_selector"]]
    if given["node"] is not None or NODE_NAME in named:
        raise click.UsageError("--exclude beside --node: the job runs on nodes that are named, or on any but some")
    names = [name.strip() for text in given["exclude"] for name in text.split(",")]
    wrong = [name for name in names if not name or set(name) & set("!=[] \t")]
    if wrong:
        raise click.UsageError(f"--exclude {','.join(names)}: expected names of nodes, as n1,n3; got {wrong[0]!r}")
    return f"!{','.join(names)}"


def _weighed(text: str) -> tuple[str, int]:
    """A label and its weight: 1 where none is said. The value of a label may have a colon, but no number behind it."""
    label, _, weight = text.rpartition(":")
    if not weight.removeprefix("-").isdigit():
        label, weight = text, "1"
    pair(label, "--prefer")
    if weight not in WEIGHTS:
        raise click.UsageError(f"--prefer {text}: expected a weight from 1 to 100, got {weight[:20]}")
    return label, int(weight)


def _settle(draft: Draft, wanted: bool | None, client: Client) -> None:
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
    here = os.getcwd()
    if closed := _closed_to_jobs(here):
        click.echo(f"jobs do not run as root and cannot enter {closed}: it starts in a folder of its own", err=True)
        return ""
    return here


def _inherit(draft: Draft) -> None:
    """Has the job find the programs that this shell finds."""
    variables = inherited(os.environ)
    home = variables.get("VIRTUAL_ENV") or variables.get("CONDA_PREFIX")
    if home and (closed := _closed_to_jobs(home)):
        click.echo(
            f"jobs do not run as root and cannot enter {closed}: they do not find the Python of {home}", err=True
        )
    draft.add_pairs("env", variables)


def _closed_to_jobs(place: str) -> str | None:
    """The folder on the way to a place that jobs submitted by root, which run as other users, cannot pass."""
    if os.getuid():
        return None
    folders = [os.path.abspath(place)]
    while folders[-1] != os.path.dirname(folders[-1]):
        folders.append(os.path.dirname(folders[-1]))
    return next((each for each in folders if os.path.isdir(each) and not os.stat(each).st_mode & 0o001), None)


def _tell_of_workdir(draft: Draft) -> None:
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
