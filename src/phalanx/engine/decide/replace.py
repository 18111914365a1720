"""Jobs that lost hardware and go on where they were."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.recovery.again import Again
from phalanx.engine.state.records import JobRecord


def replace_lost(builder: PlanBuilder) -> Iterator[JobRecord]:
    """Starts jobs that lost hardware on what they had and what takes the place of the rest; those that it starts.

    They come before all candidates: what is left of their nodes was kept for them, and spares are for no other job.
    Other nodes are for one only if no pending job has a higher priority; else it may have them when it is its turn.
    """
    state = builder.state
    pending = [record for job in state.replacing if (record := state.jobs[job]).queued is not None]
    heads = [state.jobs[each.head[1]].job for each in state.classes.values() if each.jobs]
    highest = max([job.priority for job in heads], default=0)
    for record in sorted(pending, key=state.key):
        if record.former is None or record.kept is not None or not state.has_lost(record.former):
            continue
        if state.shortfall(record) is not None:
            continue
        others = state.topology.everything if record.job.priority >= highest else 0
        found = Again(builder.transaction, record, record.former, others).place()
        if found is not None:
            builder.start_at(record, *found)
            yield record
