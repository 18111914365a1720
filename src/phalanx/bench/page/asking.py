"""How soon `why` is answered while very many jobs are pending, and how soon it can say when: by the first forecast."""

from __future__ import annotations

import time
from random import Random

from phalanx.bench.page.site import BATCH, long_job, submit
from phalanx.bench.row import Row, Tell, quantile, row
from phalanx.bench.server.live import API, LiveServer

PATIENCE_S = 300.0
SEED = 1


def asking(server: LiveServer, pending: int, times: int, tell: Tell) -> list[Row]:
    """Submits so many jobs more than fit, and asks about the last of them until a forecast is there."""
    tell(f"page: why of one of {pending} that are pending")
    ids: list[str] = []
    for first in range(0, pending, BATCH):
        ids += submit(server, [long_job(number) for number in range(first, min(first + BATCH, pending))])
    begun_s = time.monotonic()
    first_s = _why(server, ids[-1])[0]
    while not _why(server, ids[-1])[1]:
        if time.monotonic() - begun_s > PATIENCE_S:
            raise RuntimeError(f"no forecast within {PATIENCE_S:g} s; see the log folder of the server")
        time.sleep(0.2)
    told_s = time.monotonic() - begun_s
    rng = Random(SEED)
    later_s = [_why(server, rng.choice(ids))[0] for _ in range(times)]
    return [
        row(f"why of one of {pending} pending: first answer after their submission", first_s, "s"),
        row("why: with a forecast, after", told_s, "s"),
        row(f"why: answers after that, median of {times}", quantile(later_s, 0.5), "s"),
        row("why: answers after that, longest", max(later_s), "s"),
    ]


def _why(server: LiveServer, job: str) -> tuple[float, bool]:
    """How long the answer took, and whether it knows a forecast."""
    begun_s = time.monotonic()
    status, body = server.ask("GET", f"{API}/jobs/{job}/why")
    if status != 200:
        raise RuntimeError(f"why was not answered: {status} {body}")
    return time.monotonic() - begun_s, body["forecast"] is not None
