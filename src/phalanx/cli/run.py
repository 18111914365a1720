"""`phalanx run`: a job that is waited for, as a command would be.

It has the options of `submit`, in a module of its own: there are many, and `submit` builds them once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from phalanx.cli.attend import attend
from phalanx.cli.client import Client, connect, job_path
from phalanx.cli.exit import Exit
from phalanx.cli.submit import JobCommand, hand_in, job_options, list_templates, misfits
from phalanx.errors import PhalanxError


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


@click.command(cls=RunCommand)
@job_options
@click.pass_context
def run(ctx: click.Context, /, **given: Any) -> int:
    """Submit a job, print its output, and wait for its end. Exits with the code of the job, or 125 if it has none.

    A job that can never start here is cancelled at once; `submit` keeps it until the cluster has grown. Ctrl-C stops
    waiting; the job continues.
    """
    if given["template"] == "list":
        list_templates("table")
        return Exit.OK
    client = connect()
    made = hand_in(ctx, given, client, "table")
    _need_start(client, made)
    return next((ended.own_code for ended in list(attend(client, made, follow=True)) if ended.code), Exit.OK)


def _need_start(client: Client, made: list[dict[str, Any]]) -> None:
    """Cancels jobs of which one can never start on this cluster, instead of waiting for it in vain."""
    lines = list(misfits(client, made))
    if lines:
        for job in made:
            client.post(job_path(job.get("array_of") or job["id"], ":cancel"))
        cancelled = "it is cancelled" if len(made) == 1 else "all are cancelled"
        raise PhalanxError(
            "\n".join([*lines, f"{cancelled}: `phalanx submit` keeps such a job until the cluster has grown"])
        )
