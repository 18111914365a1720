"""`phalanx reservations`: what is reserved for which job, and from when."""

from __future__ import annotations

from typing import Any

import click

from phalanx.cli.client import Client, connect
from phalanx.cli.job_rows import where
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.state_file import state_option
from phalanx.cli.watch import shown, watch_option
from phalanx.cli.when import clock, now_ms, span

AT = Column("at")
COLUMNS = (Column("job"), AT, Column("in"), Column("where", "NODES"))


@click.command()
@state_option
@watch_option
@output_option
def reservations(state_path: str | None, watch: bool, output: Output) -> None:
    """List the reservations: which job gets which nodes, and when, as planned now."""
    if state_path is not None:
        shown(lambda: _show_saved(state_path, output), watch)
        return
    client = connect()
    shown(lambda: _show_live(client, output), watch)


def _show_live(client: Client, output: Output) -> None:
    found = client.get("/reservations")["items"]
    emit([{**row, "at": clock(row["at_ms"])} for row in _rows(found, now_ms())], COLUMNS, output)


def _show_saved(path: str, output: Output) -> None:
    """Prints how long after the saved moment they are due: what clock a saved state was kept by is not known."""
    from phalanx.cli.saved import state_from
    from phalanx.server.view.lists import reservations_in

    state = state_from(path)
    emit(_rows(reservations_in(state), state.now), [column for column in COLUMNS if column is not AT], output)


def _rows(found: list[dict[str, Any]], since_ms: int) -> list[dict[str, Any]]:
    return [{**each, "in": span(each["at_ms"] - since_ms), "where": where(each["nodes"])} for each in found]
