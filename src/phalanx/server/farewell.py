"""What a server says when it is stopped: what goes on without it, and how it comes back."""

from __future__ import annotations

import shlex
from contextlib import closing

from phalanx.server.options import Options
from phalanx.server.store.database import StoreError, open_reader
from phalanx.server.store.jobs import state_totals

BUSY = ("starting", "running", "suspended", "stopping")


def farewell(options: Options) -> str:
    """One line for whoever has stopped a server."""
    again = f"`phalanx up --data {shlex.quote(options.data)}`, with the same options,"
    try:
        with closing(open_reader(options.store_url)) as database, database.reading() as connection:
            totals = state_totals(connection)
    except StoreError:
        return f"the server stops; {again} starts it again"
    busy, pending = sum(totals.get(state, 0) for state in BUSY), totals.get("waiting", 0)
    rest = f"; {_jobs(pending)} {'stays' if pending == 1 else 'stay'} pending until then" if pending else ""
    if options.backend == "rehearsal":
        return f"the server stops, and simulated jobs with it; {again} goes on{rest}"
    if not busy:
        return f"the server stops; no job runs; {again} starts it again{rest}"
    goes = "goes on without it and keeps its" if busy == 1 else "go on without it and keep their"
    return f"the server stops; {_jobs(busy)} {goes} GPUs; {again} finds {'it' if busy == 1 else 'them'} again{rest}"


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"
