"""Where the batch of an elastic training is not shared out evenly."""

from __future__ import annotations

from math import lcm

from phalanx.workload.batch import VARIABLE, BatchRule, listed, parse_rule, replicas_of_model
from phalanx.workload.job import Job

TIMES_MOST = 4
"""A batch that is so many times as large is no help."""


def batch_words(job: Job) -> str:
    """At which of its sizes some ranks of a job have a sample more than others; empty if at none."""
    rule = _rule(job)
    if rule is None:
        return ""
    sizes = replicas_of_model(job.gang.roles[0], rule.ranks_each)
    uneven = [size for size in sizes if not rule.fits(size)]
    if not uneven:
        return ""
    each = "ranks" if rule.ranks_each == 1 else f"replicas of {rule.ranks_each} ranks"
    apart = lcm(*sizes)
    even = -(-rule.size // apart) * apart
    helps = f"; one of {even} is" if even <= TIMES_MOST * rule.size else ""
    return (
        f"{job.name}: at {listed(uneven)} {each} its batch of {rule.size} is not shared out evenly, some have a sample "
        f"more than others{helps}"
    )


def _rule(job: Job) -> BatchRule | None:
    try:
        return parse_rule(dict(job.execution.env)[VARIABLE])
    except (KeyError, ValueError):
        # A variable of the job's own is not ours to judge.
        return None
