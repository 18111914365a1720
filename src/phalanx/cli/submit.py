"""`phalanx submit`: handing a job to the server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from phalanx.cli.client import Client, Refused, Unreachable, connect, job_path
from phalanx.cli.complete import node_names, queue_names, template_names
from phalanx.cli.exit import Exit
from phalanx.cli.job_rows import COLUMNS, job_row
from phalanx.cli.job_text import Site, site_of, tell_of_batches, with_file
from phalanx.cli.job_wish import Draft, check_drafts, drafts_of
from phalanx.cli.output import Column, Output, as_json, as_yaml, emit, output_option, say

Decorated = TypeVar("Decorated", bound=Callable[..., object])

TEMPLATE_COLUMNS = (Column("template"), Column("summary"))


class JobCommand(click.Command):
    """A command that takes what follows `--` as the command of a job."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_apart = "--" in args
        if is_apart:
            at = args.index("--")
            ctx.meta["command"] = args[at + 1 :]
            args = args[:at]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.UsageError(_unknown(error, is_apart), ctx) from None


def _unknown(error: click.NoSuchOption, is_apart: bool) -> str:
    """What is said of an option that there is not. Those of a command are taken for ours where no `--` is between."""
    from phalanx.cli.slurm_options import hint

    told = hint(error.option_name)
    words = f"No such option {error.option_name!r}. {told}" if told else error.format_message()
    apart = "the command of a job goes after `--`, as in `phalanx submit -- python train.py`"
    return words if is_apart else f"{words} If it is one of a command: {apart}."


OPTIONS = (
    click.argument("files", nargs=-1, metavar="[FILE]... [-- COMMAND]"),
    click.option(
        "--template", metavar="NAME", shell_complete=template_names, help="A job template; `list` lists them."
    ),
    click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Set a key of FILE or of the template."),
    click.option("--name", help="Job name. Verbs accept it in place of the id while it is unique."),
    click.option("--queue", shell_complete=queue_names, help="Queue of the job."),
    click.option("--priority", type=int, help="Priority; higher goes first, if the policy uses priorities."),
    click.option("--gpus", type=click.IntRange(0), help="GPUs per task."),
    click.option("--gpu-type", help="GPU type, such as H100."),
    click.option(
        "--tasks",
        metavar="N|MIN:MAX",
        help="Number of tasks, started together; MIN:MAX, as in 2:8, makes the job elastic.",
    ),
    click.option("--cpus", type=click.FloatRange(0), help="CPUs per task."),
    click.option("--memory-gb", type=click.FloatRange(0), help="Memory per task, in GB."),
    click.option(
        "--kind", type=click.Choice(["training", "service", "interactive"]), help="Kind of job. Default: training."
    ),
    click.option("--image", help="Container image to run in."),
    click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment variable of the job."),
    click.option(
        "--workdir",
        metavar="DIR",
        help="Working directory. Default: the current one, if the server runs on this machine.",
    ),
    click.option(
        "--inherit-env/--no-inherit-env",
        default=None,
        help="Use PATH and the virtual environment of this shell, never its secrets. Default: if the server runs here.",
    ),
    click.option("--duration", metavar="TIME", help="Estimated run time: 90s, 4h."),
    click.option("--max-run", metavar="TIME", help="Maximum run time, after which the job is stopped."),
    click.option("--max-wait", metavar="TIME", help="Maximum wait, after which the job goes first."),
    click.option("--begin", metavar="TIME", help="Earliest start: +2h, 2030-01-31T08:00Z."),
    click.option(
        "--deadline", metavar="TIME", help="Time by which the job should end; submitting tells if that is possible."
    ),
    click.option("--node", shell_complete=node_names, help="Run only on this node."),
    click.option(
        "--exclude",
        multiple=True,
        metavar="NODE[,NODE…]",
        shell_complete=node_names,
        help="Run on no such node.",
    ),
    click.option("--node-selector", multiple=True, metavar="KEY=VALUE", help="Run only on nodes with this label."),
    click.option(
        "--prefer", multiple=True, metavar="KEY=VALUE[:WEIGHT]", help="Prefer nodes with this label, from 1 to 100."
    ),
    click.option(
        "--after", multiple=True, metavar="ID", help="Start after this job, or all members of this array, succeeded."
    ),
    click.option("--after-any", multiple=True, metavar="ID", help="Start after this job ended, succeeded or not."),
    click.option("--after-failure", multiple=True, metavar="ID", help="Start after this job failed."),
    click.option("--after-start", multiple=True, metavar="ID", help="Start after this job started."),
    click.option(
        "--dependency",
        multiple=True,
        metavar="KIND:ID[,…]",
        help="Dependencies as for sbatch: afterok:12:13,afterany:14.",
    ),
    click.option(
        "--keep-unmet",
        is_flag=True,
        help="Keep the job pending if a dependency can no longer be met. Default: cancel it.",
    ),
    click.option(
        "--array", metavar="INDICES", help="Submit an array of jobs: 0-31, or 0-31%4 for at most four at a time."
    ),
    click.option("--retries", type=click.IntRange(0), help="Maximum number of retries after failures."),
    click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label of the job, for `jobs --label`."),
)


def job_options(function: Decorated) -> Decorated:
    """Gives a verb everything that describes a job."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


@click.command(cls=JobCommand)
@job_options
@click.option("--wait", is_flag=True, help="Wait until the job has ended; the exit code tells how it ended.")
@click.option(
    "--follow", is_flag=True, help="Print the output of its first task, to stdout and stderr, until the job has ended."
)
@click.option("--dry-run", is_flag=True, help="Print the job file and submit nothing.")
@output_option
@click.pass_context
def submit(ctx: click.Context, /, wait: bool, follow: bool, dry_run: bool, output: Output, **given: Any) -> int:
    """Submit the jobs of FILE..., all or none, or a job that runs COMMAND, and print their ids."""
    if given["template"] == "list":
        list_templates(output)
        return Exit.OK
    client = connect()
    if dry_run:
        drafts = drafts_of(ctx.meta.get("command", []), given, client)
        check_drafts(drafts, given["files"], site_of(client) if given["files"] else Site())
        _show(drafts)
        return Exit.OK
    made = hand_in(ctx, given, client, output)
    for line in misfits(client, made):
        say(line, err=True)
    if wait or follow:
        from phalanx.cli.attend import attend, follow_all

        if wait:
            return next((ended.code for ended in list(attend(client, made, follow)) if ended.code), Exit.OK)
        follow_all(client, made)
    return Exit.OK


def _show(drafts: list[Draft]) -> None:
    """Prints the job files, and to stderr what options changed in those of others."""
    for draft in drafts:
        for change in draft.changes if draft.source else ():
            click.echo(f"{draft.source}: {change}", err=True)
    click.echo("---\n".join(draft.text for draft in drafts), nl=False)


def hand_in(ctx: click.Context, given: dict[str, Any], client: Client, output: Output) -> list[dict[str, Any]]:
    """Submits the jobs, tells of them, and gives them as the server does."""
    drafts = drafts_of(ctx.meta.get("command", []), given, client)
    texts = [draft.sent for draft in drafts]
    try:
        made = [client.post_yaml("/jobs", texts[0], forecast=True)] if len(texts) == 1 else _submit_all(client, texts)
    except Refused as refused:
        check_drafts(drafts, given["files"], site_of(client) if given["files"] else Site())
        raise with_file(refused, given["files"]) from None
    except Unreachable:
        check_drafts(drafts, given["files"], Site())
        raise
    _tell(made, output)
    _tell_of_start(made)
    _tell_of_deadlines(client, texts, made)
    tell_of_batches(texts, client)
    return made


def _submit_all(client: Client, texts: list[str]) -> list[dict[str, Any]]:
    """Submits several jobs, all or none, and shows each as it is; of an array the first member, with the ids of all."""
    submitted: dict[str, list[str]] = {}
    for job in client.post("/jobs:batch", {"jobs": texts})["ids"]:
        submitted.setdefault(job.partition(".")[0], []).append(job)
    return [{**client.get(job_path(ids[0])), "members": ids if len(ids) > 1 else []} for ids in submitted.values()]


def list_templates(output: Output) -> None:
    """Prints the gallery of jobs."""
    from phalanx.templates.gallery import templates

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
            say(line, err=True)


def misfits(client: Client, made: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each job that can never start on this cluster as it is, with what would let it."""
    for job in made:
        # One of several is looked up when it may not have been decided on yet.
        if job.get("reason") == "never_fits" or (len(made) > 1 and job.get("reason") == "undecided"):
            told = client.get(job_path(job["id"], "/why"))
            if told["reason"] == "never_fits":
                helps = told["sooner"] or told["evidence"].get("then")
                yield f"job {job['id']} can never start: {told['why']}{f'; {helps}' if helps else ''}"
