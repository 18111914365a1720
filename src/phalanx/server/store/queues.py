"""Looking up the queues that roles and jobs name."""

from __future__ import annotations

from sqlalchemy import Connection, exists, func, or_, select

from phalanx.server.store.tables import grants, job_queues
from phalanx.workload.job import DEFAULT_QUEUE

NAMES_MAX = 200


def is_queue(connection: Connection, queue: str) -> bool:
    """Whether a user has a role in a queue, or it or one below it has had a job."""
    named = exists().where(grants.c.queue == queue)
    used = exists().where(job_queues.c.queue == queue)
    return bool(connection.execute(select(or_(named, used))).scalar())


def queue_names(connection: Connection) -> list[str]:
    """`default` and the first of these queues, by name. Jumps from name to name: there are many jobs to each."""
    names = {DEFAULT_QUEUE}
    names.update(connection.execute(select(grants.c.queue).where(grants.c.queue != "").distinct()).scalars())
    last = ""
    for _ in range(NAMES_MAX):
        found = connection.execute(select(func.min(job_queues.c.queue)).where(job_queues.c.queue > last)).scalar()
        if found is None:
            break
        names.add(found)
        last = found
    return sorted(names)
