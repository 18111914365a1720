"""`phalanx exec`: a command beside a running task."""

from __future__ import annotations

import click

from phalanx.cli.complete import job_argument
from phalanx.cli.context import current_context
from phalanx.cli.line import AllKeys, attended, is_terminal, open_line, piped, size_asked


@click.command(context_settings={"ignore_unknown_options": True})
@job_argument
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option("--rank", "--task", type=click.IntRange(0), default=0, show_default=True, help="Number of the task.")
def exec(job: str, command: tuple[str, ...], rank: int) -> int | None:  # noqa: A001
    """Run COMMAND, by default a shell, beside a task of the job ID in its environment. It is audited."""
    at_terminal = is_terminal()
    argv = command or (("sh", "-i") if at_terminal else ("sh",))
    query = [("rank", str(rank)), *(("arg", word) for word in argv)]
    with open_line(current_context(), job, "exec", query + (size_asked() if at_terminal else [])) as line:
        return attended(line, AllKeys()) if at_terminal else piped(line)
