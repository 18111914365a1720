"""The State of a past moment: of a journal or bundle, or of the live server by its debug bundle."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from phalanx.cli.client import connect
from phalanx.cli.files import FileError
from phalanx.cli.saved import Kind, kind_of, records_from, state_at
from phalanx.cli.when import clock, past
from phalanx.document.units import decimal, duration_ms, time_ms
from phalanx.engine.state.state import State


def state_then(path: str | None, at: str) -> State:
    """The State at a moment, as `--at` says it."""
    if path is not None:
        return _of_file(path, at)
    at_ms = past(at, "--at")
    with tempfile.TemporaryDirectory(prefix="phalanx-at-") as folder:
        bundle = Path(folder, "bundle.zip")
        with bundle.open("wb") as out:
            for piece in connect().stream("/debug/bundle"):
                out.write(piece)
        return _state(str(bundle), at, at_ms, "the server's journal")


def _of_file(path: str, at: str) -> State:
    if kind_of(path) in (Kind.RUN, Kind.SNAPSHOT):
        raise FileError(f"{path}: it is the state of one moment; --at needs a journal or a debug bundle")
    return _state(path, at, _moment(path, at), path)


def _moment(path: str, at: str) -> int:
    """A moment as it is said; a length of time is before the last record."""
    length_ms = duration_ms(at) if decimal(at.strip()) is None else None
    if length_ms is not None:
        return max((record.now for record, _ in records_from(path)), default=0) - length_ms
    at_ms = time_ms(at, 0)
    if at_ms is None:
        raise click.UsageError(f"--at {at}: expected a time such as 2026-01-31T08:00Z, or a length of time such as 3h")
    return at_ms


def _state(path: str, at: str, at_ms: int, source: str) -> State:
    first, _ = next(records_from(path))
    if at_ms < first.now:
        raise FileError(f"{source}: --at {at} is before its first record, which is of {clock(first.now)}")
    state = state_at(path, at_ms)
    click.echo(f"note: as it was at {clock(state.now)}, after record {state.seq}", err=True)
    return state
