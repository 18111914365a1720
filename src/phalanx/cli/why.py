"""`phalanx why`: why a job waits, from a saved state."""

from __future__ import annotations

import click

from phalanx.cli.exit import Exit
from phalanx.cli.files import journal_from
from phalanx.cli.output import Column, Output, emit_one, output_option
from phalanx.cli.words import because
from phalanx.engine.explain import explain
from phalanx.engine.state import UnknownJobError
from phalanx.engine.turn import replay
from phalanx.errors import PhalanxError

COLUMNS = (Column("job"), Column("state"), Column("reason"), Column("why"))


class NoSuchJob(PhalanxError):  # noqa: N818
    """The saved state knows no such job."""

    exit_code = Exit.NOT_FOUND


@click.command()
@click.argument("job", metavar="ID")
@click.option("--state", "state_path", required=True, metavar="FILE", help="A saved state: a journal.")
@output_option
def why(job: str, state_path: str, output: Output) -> None:
    """Say why the job ID waits, with one dominant reason and the counts behind it."""
    state = replay(journal_from(state_path))
    try:
        explanation = explain(state, job)
    except UnknownJobError as error:
        raise NoSuchJob(f"{state_path}: {error}") from error
    refusal = explanation.refusal
    row = {
        "job": job,
        "state": explanation.state.value,
        "reason": explanation.reason.value if explanation.reason else None,
        "why": because(explanation),
        "ruled_out": dict(refusal.ruled_out) if refusal else {},
        "gpus_free": refusal.gpus_free if refusal else None,
        "gpus_needed": refusal.gpus_needed if refusal else None,
    }
    emit_one(row, COLUMNS, output)
