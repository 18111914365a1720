"""`phalanx why`: why a job waits, on the live server or in a saved state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from phalanx.cli.complete import job_argument
from phalanx.cli.exit import Exit
from phalanx.cli.files import journal_from
from phalanx.cli.output import Column, Output, emit_one, output_option
from phalanx.cli.why_live import why_live
from phalanx.cli.words import because, evidence, offer, sooner
from phalanx.engine.explain import Explanation
from phalanx.engine.state import State, UnknownJobError
from phalanx.engine.turn import replay
from phalanx.engine.why import why as answer
from phalanx.errors import PhalanxError

COLUMNS = (
    Column("job"),
    Column("state"),
    Column("reason"),
    Column("why"),
    Column("sooner"),
    Column("other_ways"),
    Column("then"),
    Column("held_by"),
    Column("next_to_end"),
    Column("free_gpus"),
    Column("not_healthy"),
    Column("not_before"),
)
ALWAYS = ("job", "state", "reason", "why")
"""Lines that are printed even if there is nothing in them."""


class NoSuchJob(PhalanxError):  # noqa: N818
    """The saved state knows no such job."""

    exit_code = Exit.NOT_FOUND


@click.command()
@job_argument
@click.option(
    "--state",
    "state_path",
    metavar="FILE",
    help="A saved state: a journal, or a run saved by `phalanx simulate --save`. Default: the live server.",
)
@output_option
def why(job: str, state_path: str | None, output: Output) -> None:
    """Say why the job ID waits: one dominant reason, what would let it start now, and the counts behind both."""
    if state_path is None:
        why_live(job, output)
        return
    state = state_from(state_path)
    try:
        explanation = answer(state, job)
    except UnknownJobError as error:
        raise NoSuchJob(f"{state_path}: {error}") from error
    row = as_data(explanation)
    if output not in ("json", "yaml"):
        row |= evidence(explanation, state.now)
    emit_one(row, [column for column in COLUMNS if column.key in ALWAYS or row.get(column.key)], output)


def state_from(path: str) -> State:
    """The State of a journal or of a saved run."""
    from phalanx.simulate.saved import MAGIC, load

    try:
        with Path(path).open("rb") as file:
            is_run = file.read(len(MAGIC)) == MAGIC
    except OSError:
        is_run = False
    return load(path).run.state if is_run else replay(journal_from(path))


def as_data(explanation: Explanation) -> dict[str, Any]:
    """The whole Explanation as plain data, with its lines of text."""
    data: dict[str, Any] = msgspec.to_builtins(explanation)
    refusal = explanation.refusal
    for change, plain in zip(explanation.changes, data["changes"], strict=True):
        plain["text"] = offer(change)
    return data | {
        "why": because(explanation),
        "sooner": sooner(explanation),
        "ruled_out": dict(refusal.ruled_out) if refusal else {},
        "gpus_free": refusal.gpus_free if refusal else None,
        "gpus_needed": refusal.gpus_needed if refusal else None,
    }
