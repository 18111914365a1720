"""Demands: what makes waiting jobs of any queue alike for whoever looks for devices and quota."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache

from phalanx.placement.fit import Ask
from phalanx.policy.view import Usage


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """The GPUs without which a job cannot start, what it takes of quotas, and what its tasks ask of nodes.

    `reach` are the nodes on which one of its tasks could ever run, `least` the GPUs that its smallest task takes of one
    of them, and `form` is all that decides where it may be placed. Two that are alike are mostly the same one, so that
    thousands are told apart at a glance.
    """

    gpus: int
    need: Usage
    asks: tuple[Ask, ...]
    reach: int
    least: int
    form: Hashable


@lru_cache(maxsize=1 << 10)
def demand_of(gpus: int, need: Usage, asks: tuple[Ask, ...], form: Hashable) -> Demand:
    """That of all who need the same."""
    reach = 0
    for ask in asks:
        reach |= ask.eligible
    return Demand(gpus, need, asks, reach, min(0 if ask.portions else ask.gpus for ask in asks), form)
