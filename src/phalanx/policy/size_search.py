"""A search for the sizes of all jobs together: a genetic one, with chances that are the same in every run.

Each job has options, from nothing upwards, with the GPUs they take and what they are worth. A candidate picks one for
each. The best of those that are there at first (what is now, and what a greedy hand would give) are crossed, changed
here and there, cut down to what there is, and the better half is kept, for a number of generations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heappush
from operator import getitem, ne

POPULATION = 12
"""Candidates that are kept."""

GENERATIONS, MANY, GENERATIONS_OF_MANY = 24, 32, 8
"""How often new ones are made of them: less often for more jobs than this, which cost more and need it less."""

CHANGED = 2
"""Jobs that are changed in a candidate, on average."""

YES_OR_NO = 2
"""Options of a job that has what it asks for or nothing: of such there is nothing to search for."""

Picks = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Options:
    """What one job may have, the least first: the GPUs of each, and its worth."""

    gpus: tuple[int, ...]
    worth: tuple[float, ...]


class Chance:
    """Numbers that look like chance: a linear congruential generator with Knuth's constants, taken from the top."""

    def __init__(self, seed: int) -> None:
        self._state = seed * 2_862_933_555_777_941_757 + 3_037_000_493 & (1 << 64) - 1

    def below(self, count: int) -> int:
        """A whole number from 0 to below `count`."""
        self._state = self._state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407 & (1 << 64) - 1
        return (self._state >> 33) % count


def search(options: Sequence[Options], now: Picks, gpus: int, seed: int) -> Picks:
    """The best candidate that was found. Of equals it is the one that changes least."""
    if not options:
        return ()
    chance = Chance(seed)
    worths, takes = [each.worth for each in options], [each.gpus for each in options]

    # The better half stays from one generation to the next.
    @cache
    def rank(picks: Picks) -> tuple[float, int, Picks]:
        return (-sum(map(getitem, worths, picks)), sum(map(ne, picks, now)), picks)

    greedy = _greedy(options, now, gpus)
    if all(len(each.gpus) <= YES_OR_NO for each in options):
        return greedy
    kept = list(dict.fromkeys((_cut(takes, now, gpus, chance), greedy)))
    for _ in range(GENERATIONS if len(options) <= MANY else GENERATIONS_OF_MANY):
        born = [_changed(takes, _crossed(kept, chance), chance) for _ in range(POPULATION)]
        kept += [_cut(takes, picks, gpus, chance) for picks in born]
        kept = sorted(dict.fromkeys(kept), key=rank)[:POPULATION]
    return kept[0]


def _greedy(options: Sequence[Options], now: Picks, gpus: int) -> Picks:
    """The least of each first, of jobs that have something before the rest, then whatever is worth most for a GPU."""
    picks = [0] * len(options)
    left = gpus - sum(each.gpus[0] for each in options)
    for i in sorted(range(len(options)), key=lambda i: not now[i]):
        each = options[i]
        if len(each.gpus) > 1 and each.gpus[1] - each.gpus[0] <= left:
            left -= each.gpus[1] - each.gpus[0]
            picks[i] = 1
    offers = [offer for i, pick in enumerate(picks) if pick for offer in _next(options, i, pick)]
    heapify(offers)
    while offers:
        _, i, pick = heappop(offers)
        more = options[i].gpus[pick] - options[i].gpus[pick - 1]
        if more <= left:
            left -= more
            picks[i] = pick
            for offer in _next(options, i, pick):
                heappush(offers, offer)
    return tuple(picks)


def _next(options: Sequence[Options], i: int, pick: int) -> list[tuple[float, int, int]]:
    each = options[i]
    if pick + 1 >= len(each.gpus):
        return []
    gain = (each.worth[pick + 1] - each.worth[pick]) / max(each.gpus[pick + 1] - each.gpus[pick], 1)
    return [(-gain, i, pick + 1)] if gain > 0 else []


def _crossed(kept: list[Picks], chance: Chance) -> Picks:
    """Of two candidates, the one's picks up to some job, and the other's from there on."""
    one, other = kept[chance.below(len(kept))], kept[chance.below(len(kept))]
    at = chance.below(len(one) + 1)
    return (*one[:at], *other[at:])


def _changed(takes: Sequence[Sequence[int]], picks: Picks, chance: Chance) -> Picks:
    changed = list(picks)
    for _ in range(CHANGED):
        i = chance.below(len(takes))
        changed[i] = chance.below(len(takes[i]))
    return tuple(changed)


def _cut(takes: Sequence[Sequence[int]], picks: Picks, gpus: int, chance: Chance) -> Picks:
    """Lowers picks, wherever chance will have it, until they take no more than there is."""
    over = sum(map(getitem, takes, picks)) - gpus
    if over <= 0:
        return picks
    cut = list(picks)
    lower = [i for i, pick in enumerate(cut) if pick]
    while over > 0 and lower:
        at = chance.below(len(lower))
        i = lower[at]
        over -= takes[i][cut[i]] - takes[i][cut[i] - 1]
        cut[i] -= 1
        if not cut[i]:
            lower[at] = lower[-1]
            lower.pop()
    return tuple(cut)
