"""Auctions with partial allocation: bidders win by the product of all valuations, and pay by getting less of it.

The mechanism is that of Cole, Gkatzelis and Goel (EC 2013), as Themis uses it (Mahajan et al., NSDI 2020, §4): the GPUs
go where the product of the bidders' valuations is greatest, and each winner keeps only that fraction of what it won by
which its presence lowers the product of the other valuations. So no bidder gains by bidding more than it is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import NamedTuple

CELLS_MAX = 200_000
"""Bidders times GPUs up to which the best set of winners is searched exactly, and past which by gain per GPU."""


class Bid(NamedTuple):
    """What a bidder asks for, and the logarithm of how many times as much it is worth to it to win as to lose."""

    job: str
    gpus: int
    gain: float


class Won(NamedTuple):
    """A winner, and which fraction it keeps of what it won."""

    job: str
    kept: float


def auction(bids: Sequence[Bid], gpus: int, payments: bool = True) -> list[Won]:
    """The winners, the greatest gain per GPU first, with what they keep; without payments they keep all."""
    winners = _best(bids, gpus)
    all_gains = sum(bid.gain for bid in winners)
    won = []
    for winner in sorted(winners, key=_density):
        kept = 1.0
        if payments:
            without = sum(bid.gain for bid in _best([bid for bid in bids if bid is not winner], gpus))
            kept = min(exp(all_gains - winner.gain - without), 1.0)
        won.append(Won(winner.job, kept))
    return won


def _best(bids: Sequence[Bid], gpus: int) -> list[Bid]:
    """The set of bids of at most so many GPUs with the greatest sum of gains."""
    able = [bid for bid in bids if bid.gpus <= gpus]
    if sum(bid.gpus for bid in able) <= gpus:
        return able
    if len(able) * gpus > CELLS_MAX:
        return _greedy(able, gpus)
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())] * (gpus + 1)
    for i, bid in enumerate(able):
        for room in range(gpus, bid.gpus - 1, -1):
            gain, chosen = best[room - bid.gpus]
            if gain + bid.gain > best[room][0]:
                best[room] = (gain + bid.gain, (*chosen, i))
    return [able[i] for i in best[gpus][1]]


def _greedy(bids: Sequence[Bid], gpus: int) -> list[Bid]:
    chosen = []
    for bid in sorted(bids, key=_density):
        if bid.gpus <= gpus:
            chosen.append(bid)
            gpus -= bid.gpus
    return chosen


def _density(bid: Bid) -> tuple[float, str]:
    return (-bid.gain / max(bid.gpus, 1), bid.job)
