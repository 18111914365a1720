"""Jobs that need attention, with what is the matter in one line."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.policy.edf import last_moment_ms
from phalanx.protocol.reason import Reason
from phalanx.server.figures.loads import Loads, Said
from phalanx.server.figures.outlook import Item
from phalanx.words.phrases import how_long

STILL_MS = 600_000
"""So long a job takes no step, or does not use its GPUs, before an operator need look."""

ITEMS_MAX = 500
FAILURES_MIN = 2


def attention(state: State, loads: Loads, now: int) -> list[Item]:
    """Those jobs, the longest since first; failures that are over are found in the store."""
    items = [item for record in state.jobs.values() if record.final is None for item in _of(state, record, loads, now)]
    items.sort(key=lambda item: (item.since_ms, item.job))
    return items[:ITEMS_MAX]


def _of(state: State, record: JobRecord, loads: Loads, now: int) -> Iterator[Item]:
    said = loads.said.get(record.job.id)
    if record.running_since_ms is not None and said is not None:
        yield from _running(record, said, now)
    if record.job.deadline_ms is not None:
        yield from _late(record, record.job.deadline_ms, now)
    if record.attempt is None and record.first_start_ms is None:
        yield from _waiting(state, record, now)
    times = record.failures + record.start_failures
    if times >= FAILURES_MIN:
        since_ms = record.stopped_ms or record.submitted_ms
        yield _item("failing", record, f"it has failed {times} times and is tried again", since_ms)


def _running(record: JobRecord, said: Said, now: int) -> Iterator[Item]:
    if now - said.step_ms >= STILL_MS:
        yield _item(
            "stuck", record, f"no step since {max(said.step, 0)} for {how_long(now, said.step_ms)}", said.step_ms
        )
    elif said.measures and now - said.busy_ms >= STILL_MS:
        share = round(100 * said.gpu_busy)
        text = f"{record.gpus} GPUs are {share} % busy for {how_long(now, said.busy_ms)}"
        yield _item("idle_gpus", record, text, said.busy_ms)


def _late(record: JobRecord, deadline_ms: int, now: int) -> Iterator[Item]:
    if now > deadline_ms:
        yield _item("deadline_at_risk", record, f"its deadline passed {how_long(now, deadline_ms)} ago", deadline_ms)
        return
    start_by_ms = last_moment_ms(record, deadline_ms, now)
    if now > start_by_ms:
        late = how_long(now, start_by_ms)
        yield _item("deadline_at_risk", record, f"as long as it says it takes, it ends {late} late", start_by_ms)


def _waiting(state: State, record: JobRecord, now: int) -> Iterator[Item]:
    limit_ms = state.wait_ms(record)
    since_ms = max(record.submitted_ms, record.job.begin_ms or 0) + limit_ms
    if limit_ms and now > since_ms and not record.held:
        text = f"it waits {how_long(now, since_ms)} longer than the {how_long(limit_ms, 0)} it may"
        yield _item("past_max_wait", record, text, since_ms)
    if state.reason(record.job.id) is Reason.NEVER_FITS:
        yield _item("never_fits", record, "no part of this cluster could ever hold it", record.submitted_ms)


def _item(kind: str, record: JobRecord, text: str, since_ms: int) -> Item:
    job = record.job
    return Item(kind, job.id, job.name, job.queue, job.user, text, since_ms)
