"""`phalanx replay`: folds a journal again, and with --verify decides again and compares."""

from __future__ import annotations

from collections import Counter

import click

from phalanx.cli.files import journal_from
from phalanx.cli.output import Column, Output, emit_one, output_option
from phalanx.engine.turn import replay as fold
from phalanx.engine.turn import verify as decide_again
from phalanx.errors import PhalanxError

COLUMNS = (Column("records"), Column("now_ms"), Column("digest"), Column("verified"), Column("jobs"))


class Contradiction(PhalanxError):  # noqa: N818
    """A journal that does not fold, or that decides otherwise than it did."""


@click.command()
@click.argument("journal", metavar="FILE")
@click.option("--verify", is_flag=True, help="Decide again at every decision and compare the plans.")
@output_option
def replay(journal: str, verify: bool, output: Output) -> None:
    """Fold the journal FILE into a state and say what it comes to."""
    records = journal_from(journal)
    try:
        state = decide_again(records) if verify else fold(records)
    except ValueError as error:
        raise Contradiction(f"{journal}: {error}") from error
    states = Counter(record.state.value for record in state.jobs.values())
    row = {
        "records": len(records.records),
        "now_ms": state.now,
        "digest": str(state.digest),
        "verified": verify,
        "jobs": dict(sorted(states.items())),
    }
    emit_one(row, COLUMNS, output)
