"""Pairs: what two jobs that share a GPU get done, each with half of it, beside what each would get done alone."""

from __future__ import annotations

from phalanx.workload.gang import Gang
from phalanx.workload.share import fraction_ask

HALF = fraction_ask(500)

HALF_MARK = "/2"
"""Behind the name of a GPU type it stands for half a GPU of that type."""

GAINS = {"V100": 1.24, "P100": 1.18, "K80": 1.07}
"""How many times as much a pair gets done as one job at a time, by GPU type.

Derived from the throughputs that were measured for Gavel (Narayanan et al., OSDI 2020; simulation_throughputs.json, MIT
licence): the sum of both jobs' steps a second over what each has alone, the geometric mean over all pairs that ran.
"""

GAIN_ELSEWHERE = GAINS["V100"]


def pair_speed(gpu_type: str) -> float:
    """How fast a job is with half a GPU beside another, where it is 1 with the whole."""
    return GAINS.get(gpu_type, GAIN_ELSEWHERE) / 2


def may_pair(gang: Gang) -> bool:
    """Whether a gang is one task of one whole GPU."""
    if len(gang.roles) != 1 or gang.roles[0].members or gang.elastic:
        return False
    role = gang.roles[0]
    return role.replicas_max == 1 and role.task.gpus == 1 and role.task.share is None
