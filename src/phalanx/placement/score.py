"""Scores: by what one node that fits is better for a task than another, each by its name.

`Packing` ranks whole sets of nodes at a time and never works out the score of a single one; this is the same order,
told node by node, for people and for the check that the two agree.
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx.cluster.capacity import Capacity


class Score(NamedTuple):
    """The scores of a node in the order in which they count: the greater is better, the first difference decides.

    `partly_used`: something runs there already, so that empty nodes stay whole. `busiest`: how many tasks run there, of
    a node that is partly used. `even`: an even number of GPUs would be left, of a node that is partly used. `tightest`:
    how few would be left, counted down from none.
    """

    partly_used: int
    busiest: int
    even: int
    tightest: int


def score_of(capacity: Capacity, gpus: int, node: int) -> Score:
    """The scores of a node that has so many GPUs free for a task."""
    left = capacity.free[node].bit_count() - gpus
    if capacity.idle & capacity.topology.bit[node]:
        return Score(0, 0, 0, -left)
    return Score(1, capacity.tasks[node], 1 - left % 2, -left)
