"""`phalanx submit` and `phalanx run`: handing a job to the server."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from phalanx.cli.client import Client, Refused, connect, job_path
from phalanx.cli.complete import template_names
from phalanx.cli.exit import Exit
from phalanx.cli.job_rows import COLUMNS, job_row
from phalanx.cli.job_text import with_file
from phalanx.cli.output import Column, Output, as_json, as_yaml, emit, output_option
from phalanx.errors import PhalanxError

Decorated = TypeVar("Decorated", bound=Callable[..., object])

TEMPLATE_COLUMNS = (Column("template"), Column("summary"))


class JobCommand(click.Command):
    """A command that takes what follows `--` as the command of a job."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta["command"] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


class RunCommand(JobCommand):
    """A command that ends with the code of a job: an error of its own has one that no job is likely to have."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **more: Any) -> click.Context:
        with _own_code():
            return super().make_context(info_name, args, *rest, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with _own_code():
            return super().invoke(ctx)


@contextmanager
def _own_code() -> Iterator[None]:
    try:
        yield
    except (click.ClickException, PhalanxError) as error:
        vars(error)["exit_code"] = Exit.RUN_ERROR
        raise


OPTIONS = (
    click.argument("files", nargs=-1, metavar="[FILE]... [-- COMMAND]"),
    click.option(
        "--template", metavar="NAME", shell_complete=template_names, help="A job of the gallery; `list` lists it."
    ),
    click.option(
        "--set", "changes", multiple=True, metavar="KEY=VALUE", help="Another value for a key of the template."
    ),
    click.option("--name", help="A name, which works in place of the id while it is unique."),
    click.option("--queue", help="The queue."),
    click.option("--priority", type=int, help="Higher goes first, where the policy minds it."),
    click.option("--gpus", type=click.IntRange(0), help="GPUs of each task."),
    click.option("--gpu-type", help="A kind of GPU."),
    click.option("--tasks", type=click.IntRange(1), help="So many equal tasks, started together."),
    click.option("--cpus", type=click.FloatRange(0), help="CPUs of each task."),
    click.option("--memory-gb", type=click.FloatRange(0), help="Memory of each task."),
    click.option("--kind", type=click.Choice(["training", "service", "interactive"])),
    click.option("--image", help="A container image to run in."),
    click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable of the job's environment."),
    click.option("--workdir", metavar="DIR", help="The folder to start in. Default: this one, if the server is here."),
    click.option("--duration", metavar="TIME", help="How long it will take, as a guess: 90s, 4h."),
    click.option("--max-run", metavar="TIME", help="Stop it after so long."),
    click.option("--max-wait", metavar="TIME", help="Have it go first once it has waited so long."),
    click.option("--begin", metavar="TIME", help="Not before this time: +2h, 2030-01-31T08:00Z."),
    click.option("--deadline", metavar="TIME", help="Wanted by this time; says whether it can be met."),
    click.option(
        "--after", multiple=True, metavar="ID", help="Only after another job, or all members of an array, succeeded."
    ),
    click.option("--array", metavar="INDICES", help="Many members: 0-31, or 0-31%4 for four at a time."),
    click.option("--retries", type=click.IntRange(0), help="Start it again so often after a failure."),
    click.option("--label", "labels", multiple=True, metavar="KEY=VALUE"),
)


def job_options(function: Decorated) -> Decorated:
    """Gives a verb everything that describes a job."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@click.command(cls=JobCommand)
@job_options
@click.option("--wait", is_flag=True, help="Wait until it is over; the exit code says how it came out.")
@click.option(
    "--follow", is_flag=True, help="Print what its first task prints, to stdout and stderr, until it is over."
)
@click.option("--dry-run", is_flag=True, help="Print the job file and submit nothing.")
@output_option
@click.pass_context
def submit(ctx: click.Context, /, wait: bool, follow: bool, dry_run: bool, output: Output, **given: Any) -> int:
    """Submit the jobs of FILE..., all or none, or one that runs COMMAND; prints them with their ids."""
    from phalanx.cli.attend import attend, follow_all

    if given["template"] == "list":
        _list_templates(output)
        return Exit.OK
    client = connect()
    if dry_run:
        click.echo("---\n".join(_wanted(ctx, given, client)), nl=False)
        return Exit.OK
    made = _hand_in(ctx, given, client, output)
    if wait:
        return next((ended.code for ended in list(attend(client, made, follow)) if ended.code), Exit.OK)
    if follow:
        follow_all(client, made)
    return Exit.OK


def _wanted(ctx: click.Context, given: dict[str, Any], client: Client) -> list[str]:
    """The job files that the options come to."""
    return _texts(ctx.meta.get("command", []), given, "" if given["workdir"] else _here(client), client)


def _hand_in(ctx: click.Context, given: dict[str, Any], client: Client, output: Output) -> list[dict[str, Any]]:
    """Submits the jobs, tells of them, and gives them as the server does."""
    texts = _wanted(ctx, given, client)
    try:
        made = [client.post_yaml("/jobs", texts[0], forecast=True)] if len(texts) == 1 else _submit_all(client, texts)
    except Refused as refused:
        raise with_file(refused, given["files"]) from None
    _tell(made, output)
    _tell_of_start(made)
    _tell_of_deadlines(client, texts, made)
    _tell_of_misfits(client, made)
    return made


def _here(client: Client) -> str:
    """The folder that jobs start in: this one, if the server is here and its jobs, which are never root, can pass."""
    if not client.is_here:
        return ""
    here = Path.cwd()
    closed = next((folder for folder in (here, *here.parents) if not folder.stat().st_mode & 0o001), None)
    if os.getuid() == 0 and closed is not None:
        click.echo(f"jobs do not run as root and cannot enter {closed}: it starts in a folder of its own", err=True)
        return ""
    return str(here)


def _submit_all(client: Client, texts: list[str]) -> list[dict[str, Any]]:
    """Submits several jobs, all or none, and shows each as it is; of an array the first member, with the ids of all."""
    submitted: dict[str, list[str]] = {}
    for job in client.post("/jobs:batch", {"jobs": texts})["ids"]:
        submitted.setdefault(job.partition(".")[0], []).append(job)
    return [{**client.get(job_path(ids[0])), "members": ids if len(ids) > 1 else []} for ids in submitted.values()]


@click.command(cls=RunCommand)
@job_options
@click.pass_context
def run(ctx: click.Context, /, **given: Any) -> int:
    """Submit a job, print what it prints, and wait for its end; exits with the code of the job, or 125 without one."""
    from phalanx.cli.attend import attend

    if given["template"] == "list":
        _list_templates("table")
        return Exit.OK
    client = connect()
    made = _hand_in(ctx, given, client, "table")
    return next((ended.own_code for ended in list(attend(client, made, follow=True)) if ended.code), Exit.OK)


def _texts(command: list[str], given: dict[str, Any], here: str, client: Client) -> list[str]:
    """The job files to be submitted: from files, from a template, or from options and a command.

    A job that names no folder, and has no image with folders of its own, starts `here`.
    """
    keys = _keys(given)
    if given["files"]:
        from phalanx.cli.job_text import site_of, started_in

        if command or keys or given["template"]:
            raise click.UsageError(
                "options that describe a job, and a command, go with no FILE; change the file instead"
            )
        site = site_of(client)
        return [started_in(path, here, site) for path in given["files"]]
    if given["changes"] and not given["template"]:
        raise click.UsageError("--set changes a template: say which with --template")
    if given["template"]:
        keys = _from_template(given["template"], given["changes"]) | keys
    if command:
        keys["command"] = command
    if "command" not in keys and "image" not in keys:
        raise click.UsageError("expected FILE, --template NAME, or a command after --, as in `phalanx submit -- true`")
    if here and "image" not in keys:
        keys.setdefault("workdir", here)
    return [_job_file(keys)]


def _job_file(keys: dict[str, Any]) -> str:
    """A job file of these keys, a line each. JSON is YAML."""
    import json

    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in keys.items())


def _from_template(name: str, changes: tuple[str, ...]) -> dict[str, Any]:
    import yaml

    from phalanx.cli.templates import template

    found: dict[str, Any] = yaml.safe_load(template(name).text)
    for change in changes:
        key, value = _pair(change, "--set")
        _put(found, key.split("."), yaml.safe_load(value))
    return found


def _put(tree: Any, path: list[str], value: object) -> None:
    """Sets a key deep in a tree: `gang.0.replicas` is the replicas of the first role."""
    for key in path[:-1]:
        try:
            tree = tree[int(key) if isinstance(tree, list) else key]
        except (KeyError, IndexError, ValueError, TypeError):
            raise click.UsageError(f"--set {'.'.join(path)}: the template has no '{key}'") from None
    tree[int(path[-1]) if isinstance(tree, list) else path[-1]] = value


PLAIN_KEYS = (
    *("name", "queue", "priority", "kind", "image", "workdir"),
    *("duration", "max_run", "max_wait", "begin", "deadline", "array"),
)
"""Keys of a job file that are options of the same name."""


def _keys(given: dict[str, Any]) -> dict[str, Any]:
    """The keys of a job file that the options come to."""
    keys = {key: given[key] for key in PLAIN_KEYS if given[key] is not None}
    task = {key: given[key] for key in ("gpus", "gpu_type", "cpus", "memory_gb") if given[key] is not None}
    if given["tasks"]:
        keys["gang"] = [{"role": "worker", "replicas": given["tasks"], **task}]
    else:
        keys |= task
    for key, option in (("env", "--env"), ("labels", "--label")):
        if given[key]:
            keys[key] = dict(_pair(text, option) for text in given[key])
    if given["after"]:
        keys["after"] = list(given["after"])
    if given["retries"] is not None:
        keys["retry"] = {"limit": given["retries"]}
    return keys


def _pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"{option} {text}: expected NAME=VALUE")
    return key, value


def _list_templates(output: Output) -> None:
    from phalanx.cli.templates import templates

    emit([{"template": each.name, "summary": each.summary} for each in templates()], TEMPLATE_COLUMNS, output)


def _tell(made: list[dict[str, Any]], output: Output) -> None:
    """One job is told as one object, several as a list."""
    if output in ("json", "yaml") and len(made) == 1:
        click.echo(as_json(made[0]) if output == "json" else as_yaml(made[0]))
    elif output in ("json", "yaml", "name"):
        emit(made, COLUMNS, output)
    elif sys.stdout.isatty() or output == "wide":
        emit([job_row(job) for job in made], COLUMNS, output)
    else:
        for job in made:
            members = f", {len(job['members'])} members" if job.get("members") else ""
            click.echo(f"submitted job {job.get('array_of') or job['id']}{members}")


def _tell_of_start(made: list[dict[str, Any]]) -> None:
    """Says when a job will start that does not start at once, as far as the server knows; that is kept with the job."""
    from phalanx.cli.when import clock, now_ms, span

    for job in made:
        told_ms = job.get("told_start_ms")
        if told_ms is not None:
            click.echo(f"expected to start in {span(told_ms - now_ms())}, at {clock(told_ms)}", err=True)


def _tell_of_deadlines(client: Client, texts: list[str], made: list[dict[str, Any]]) -> None:
    """Says at once whether jobs with a deadline can meet it."""
    for text, job in zip(texts, made, strict=True):
        if "deadline" in text and (line := client.get(job_path(job["id"], "/why")).get("deadline")):
            click.echo(line, err=True)


def _tell_of_misfits(client: Client, made: list[dict[str, Any]]) -> None:
    """Says at once which jobs can never start on this cluster, and what would let them. They wait all the same."""
    for job in made:
        # One of several is looked up when it may not have been decided on yet.
        if job.get("reason") == "never_fits" or (len(made) > 1 and job.get("reason") == "undecided"):
            told = client.get(job_path(job["id"], "/why"))
            if told["reason"] == "never_fits":
                helps = told["sooner"] or told["evidence"].get("then")
                click.echo(f"job {job['id']} can never start: {told['why']}{f'; {helps}' if helps else ''}", err=True)
