"""Lists of queues, nodes and reservations as all users see them, of a State: live, or saved and read where there is no
store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from phalanx.cluster.queues import Queue, Quota, ancestors
from phalanx.engine.state.records import UNSAID_MS, JobState
from phalanx.engine.state.state import State
from phalanx.server.view.devices import devices_of, out_of_service
from phalanx.server.view.rows import Row, node_row, text_of
from phalanx.server.view.virtual_clusters import about_virtual_clusters

COUNTS = ("waiting", "running", "gpus_used", "gpus_waiting")
NOTHING = Counter(dict.fromkeys(COUNTS, 0))

FACTS: dict[str, Any] = {
    "gpus": 0,
    "gpu_type": "",
    "gpu_memory_gb": 0.0,
    "cpus_milli": 0,
    "memory_mb": 0,
    "path": [],
    "spot": False,
}
"""What is shown of a node as its owner described it."""


def queue_rows(
    counted: Iterable[tuple[str, str, int, int]],
    quotas: Mapping[str, Row],
    spent: Mapping[str, int],
    owners: Mapping[str, Row],
    used: Mapping[str, Row],
) -> list[Row]:
    """All queues that have a job, a quota or cells, with what waits and runs in each and in those inside.

    `counted` are the jobs that are not over: queue, state, how many, and their GPUs.
    """
    own = queue_totals(counted)
    totals = _with_those_inside(own)
    return [
        {
            "name": name,
            **totals.get(name, NOTHING),
            "quota": quotas.get(name),
            "quota_used": used.get(name),
            "budget_spent_gpu_ms": spent.get(name),
            "virtual_cluster": owners.get(name),
        }
        for name in sorted({*(total["name"] for total in own), *quotas, *owners})
    ]


def queue_totals(counted: Iterable[tuple[str, str, int, int]]) -> list[Row]:
    """What waits and runs in every queue that has a job."""
    totals: dict[str, Row] = {}
    for queue, state, count, gpus in counted:
        total = totals.setdefault(queue, {"name": queue, "waiting": 0, "running": 0, "gpus_used": 0, "gpus_waiting": 0})
        kind, of = ("waiting", "gpus_waiting") if state == JobState.WAITING.value else ("running", "gpus_used")
        total[kind] += count
        total[of] += gpus
    return [totals[name] for name in sorted(totals)]


def _with_those_inside(totals: list[Row]) -> dict[str, Counter[str]]:
    """What waits and runs in each queue and in those that lie in it."""
    found: dict[str, Counter[str]] = {}
    for total in totals:
        counts = {key: total[key] for key in COUNTS}
        for path in ancestors(total["name"]):
            found.setdefault(path, Counter(dict.fromkeys(COUNTS, 0))).update(counts)
    return found


def queues_in(state: State) -> list[Row]:
    """The queues of a State."""
    live = (record for record in state.jobs.values() if record.final is None)
    counted = ((record.job.queue, record.state.value, 1, record.gpus) for record in live)
    return queue_rows(counted, quotas_in(state), spent_in(state), about_virtual_clusters(state), used_in(state))


def quotas_in(state: State) -> dict[str, Row]:
    """What the cluster file allots to each queue."""
    return {queue.path: _quota(_added_up(state, queue)) for queue in state.cluster.queues}


def _added_up(state: State, queue: Queue) -> Queue:
    """A queue around other queues, with what it does not say taken from these, if any of them says something."""
    account = state.quotas.accounts.get(queue.path)
    if account is None or not account.inside:
        return queue
    summed = account.queue
    return replace(
        summed,
        guaranteed=_where_said(queue.guaranteed, summed.guaranteed),
        deserved=_where_said(queue.deserved, summed.deserved),
    )


def _where_said(own: Quota, summed: Quota) -> Quota:
    """A sum of nothing is as if nothing had been said."""
    return Quota(*(said if said is not None else amount or None for said, amount in zip(own, summed, strict=True)))


def _quota(queue: Queue) -> Row:
    told: Row = msgspec.to_builtins(queue)
    told.pop("path")
    for amount in ("guaranteed", "deserved", "limit"):
        told[amount] = getattr(queue, amount)._asdict()
    return told


def spent_in(state: State) -> dict[str, int]:
    """The GPU time that queues with a budget have had."""
    budgeted = (queue.path for queue in state.cluster.queues if queue.budget_gpu_ms is not None)
    return {path: state.spending.spent(path, state.now) // 1000 for path in budgeted}


def used_in(state: State) -> dict[str, Row]:
    """What queues with a quota have of it, with those inside: parts of GPUs count as what they are."""
    accounts = state.quotas.accounts
    return {queue.path: Quota(*accounts[queue.path].used)._asdict() for queue in state.cluster.queues}


def node_item(facts: Mapping[str, Any]) -> Row:
    """What of the facts of a node is shown."""
    return {**{key: facts.get(key, default) for key, default in FACTS.items()}, "labels": dict(facts.get("labels", ()))}


def nodes_in(state: State) -> list[Row]:
    """The nodes of a State. Why one is not healthy is not known: people are told, nothing is decided by it."""
    rows = ((_listed(node_row(state, node.name)), node) for node in state.topology.nodes)
    return [
        {**row, "jobs": msgspec.json.decode(row["jobs"]), "reason": "", **node_item(msgspec.json.decode(text_of(node)))}
        for row, node in rows
    ]


def _listed(row: Row) -> Row:
    """A node without what is told of each device."""
    listed = {key: value for key, value in row.items() if key not in ("devices", "seq")}
    return {**listed, "gpus_out": out_of_service(devices_of(row["devices"]))}


def reservations_in(state: State) -> list[Row]:
    """The jobs that have nodes reserved, and from when on, where that is known."""
    return [
        {
            "job": each.job,
            "at_ms": each.at_ms if each.at_ms < UNSAID_MS else None,
            "nodes": list(each.placement.nodes),
        }
        for each in state.reservations
    ]
