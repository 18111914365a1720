"""What a trace asks for at most: beyond that, nodes change nothing."""

from __future__ import annotations

from itertools import pairwise

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.formats.limits import NODES_MAX
from phalanx.simulate.studies.nodes import kind_of, node_like
from phalanx.simulate.trace import Trace

ROOM = 1.5
"""So many times the peak: gangs leave holes, starts and stops take time, and arrivals are drawn anew."""

LARGE_GAP = 0.25


def peak_gpus(trace: Trace) -> int:
    """The most GPUs that jobs would hold at once if each started when it was submitted."""
    changes: dict[int, int] = {}
    for job in trace.jobs:
        gpus = max(job.gpus, job.max_gpus)
        changes[job.submit_ms] = changes.get(job.submit_ms, 0) + gpus
        end_ms = job.submit_ms + max(job.duration_ms, 1)
        changes[end_ms] = changes.get(end_ms, 0) - gpus
    held = most = 0
    for at_ms in sorted(changes):
        held += changes[at_ms]
        most = max(most, held)
    return most


def most_nodes(cluster: Cluster, trace: Trace, like: str = "") -> int:
    """A number of nodes with which hardly any job of the trace could wait for nodes of this kind."""
    model = node_like(cluster, like)
    others = sum(kind_of(node) != kind_of(model) for node in cluster.nodes)
    each = max(model.gpus, 1)
    # A task that leaves part of a node free may take a whole one.
    wide = max((job.gpus for job in trace.jobs), default=0)
    needed = round(ROOM * peak_gpus(trace) / each) + -(-wide // each) + 1
    return min(max(others + needed, len(cluster.nodes)), NODES_MAX)


def fewest_nodes(cluster: Cluster, like: str = "") -> int:
    """The fewest nodes a cluster can have where only those of one kind vary."""
    model = node_like(cluster, like)
    return max(sum(kind_of(node) != kind_of(model) for node in cluster.nodes), 1)


def gap_ms(trace: Trace) -> tuple[int, int]:
    """The longest time without a submission, and the time from the first to the last."""
    if len(trace.jobs) < 2:
        return 0, 0
    longest = max(later.submit_ms - earlier.submit_ms for earlier, later in pairwise(trace.jobs))
    return longest, trace.jobs[-1].submit_ms - trace.jobs[0].submit_ms
