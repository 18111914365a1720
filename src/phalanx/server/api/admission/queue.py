"""The queue of a job: refused where there is no such queue, so that a misspelt one is not taken for a new one.

Where the cluster file has queues or virtual clusters, the engine refuses others. Where it has none, the queues are
`default`, those in which a user has a role, and those that have had jobs.
"""

from __future__ import annotations

from phalanx.cluster.queues import unknown_queue
from phalanx.server.accounts.roles import Account
from phalanx.server.api.context import Context
from phalanx.server.refusal import Refusal
from phalanx.server.store.queues import is_queue, queue_names
from phalanx.server.store.virtual_clusters import virtual_clusters_of
from phalanx.workload.job import DEFAULT_QUEUE


async def need_queue(queue: str, account: Account, context: Context, index: int = 0) -> None:
    """Refuses a queue that there is not; `index` is the place of its job among those beside it."""
    if queue == DEFAULT_QUEUE or queue in context.known_queues:
        return
    if (await context.recent_cluster()).get("queues"):
        return
    # Queues may have been configured a moment ago.
    if (await context.cluster()).get("queues") or await context.read(virtual_clusters_of):
        return
    if await context.read(is_queue, queue):
        context.known_queues[queue] = None
        return
    known = [name for name in await context.read(queue_names) if account.sees(name)]
    raise Refusal(
        "invalid",
        f"{unknown_queue(queue, 'the job', known)}. An admin adds a queue by `queues:` in a file for "
        "phalanx apply, or by giving a user a role in it",
        {"index": index},
    )
