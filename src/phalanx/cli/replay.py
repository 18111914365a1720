"""`phalanx replay`: folds a journal again, and with --verify decides again and compares."""

from __future__ import annotations

from collections import Counter

import click

from phalanx.cli.output import Column, Output, emit_one, output_option
from phalanx.cli.saved import records_from, snapshot_from, start_of
from phalanx.engine.decide.cycle import decide
from phalanx.engine.fold.apply import apply
from phalanx.errors import PhalanxError
from phalanx.protocol.plan import Plan

COLUMNS = (Column("records"), Column("now_ms"), Column("digest"), Column("verified"), Column("jobs"))


class Contradiction(PhalanxError):  # noqa: N818
    """A journal that does not fold, or that decides otherwise than it did."""


@click.command()
@click.argument("journal", metavar="FILE")
@click.option("--verify", is_flag=True, help="Repeat every decision and compare the plan with that of the journal.")
@click.option(
    "--from",
    "start",
    metavar="SNAPSHOT",
    help="Start from this snapshot. Default: the start snapshot of the bundle, or an empty state.",
)
@output_option
def replay(journal: str, verify: bool, start: str | None, output: Output) -> None:
    """Rebuild the state from FILE, a journal or a debug bundle, and print a summary of it."""
    state = start_of(journal) if start is None else snapshot_from(start)
    before = state.seq
    try:
        for record, line in records_from(journal):
            if verify and isinstance(record.body, Plan) and decide(state, record.now) != record.body:
                raise Contradiction(f"{journal}: record {record.seq}: decided again, the plan differs")
            apply(state, record, line)
    except ValueError as error:
        raise Contradiction(f"{journal}: {error}") from error
    except AssertionError as error:
        # The engine asserts what none of its own journals contradicts; one from elsewhere may.
        raise Contradiction(f"{journal}: record {state.seq} contradicts those before it: {error}") from error
    states = Counter(record.state.value for record in state.jobs.values())
    jobs = dict(sorted(states.items()))
    row = {
        "records": state.seq - before,
        "now_ms": state.now,
        "digest": str(state.digest),
        "verified": verify,
        "jobs": jobs if output in ("json", "yaml") else ", ".join(f"{n:,} {state}" for state, n in jobs.items()),
    }
    emit_one(row, COLUMNS, output)
