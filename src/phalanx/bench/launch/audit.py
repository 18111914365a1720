"""What ranks and agents of a storm wrote down: whether there was one epoch at a time, and each sample counts once."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BEGAN = re.compile(r"epoch (\d+): ranks (\d+) to \d+ of (\d+)")


def epochs_with_two_worlds(agents: Iterable[Sequence[str]], least: int) -> list[int]:
    """Epochs of which agents were told different worlds, or one place twice, or a world below the least."""
    worlds: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for lines in agents:
        for epoch, rank, size in BEGAN.findall("\n".join(lines)):
            worlds[int(epoch)].append((int(rank), int(size)))
    return [epoch for epoch, places in worlds.items() if not _is_one_world(places, least)]


def _is_one_world(places: Sequence[tuple[int, int]], least: int) -> bool:
    ranks, sizes = [rank for rank, _ in places], {size for _, size in places}
    return len(sizes) == 1 and len(set(ranks)) == len(ranks) and min(sizes) >= least


@dataclass(frozen=True, slots=True)
class Counted:
    """What of the steps that count was found wrong, and the samples in them."""

    steps: int
    missing: list[int]
    """Steps up to the last that no rank says count."""
    twice: list[int]
    """Steps that count in two worlds, or twice for one process."""
    by_a_part: list[int]
    """Steps that count though not all ranks of their world had computed them."""
    samples: Counter[tuple[int, int]]
    """How often each sample of each epoch of the data counts."""


def counted(notes: Iterable[Mapping[str, Any]], last: int, batch: int) -> Counted:
    """The audit of the steps below the last."""
    computed: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(dict)
    counts: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for note in notes:
        if note["event"] == "computed":
            computed[note["step"], note["phalanx_epoch"]][note["rank"]] = note["samples"]
        elif note["event"] == "counts" and note["step"] < last:
            counts[note["step"]].append(note)
    samples: Counter[tuple[int, int]] = Counter()
    twice, by_a_part = [], []
    for step, said in counts.items():
        worlds = {note["phalanx_epoch"] for note in said}
        if len(worlds) > 1 or len({note["pid"] for note in said}) < len(said):
            twice.append(step)
        shares = computed[step, min(worlds)]
        if sorted(shares) != list(range(said[0]["world_size"])) or sum(map(len, shares.values())) != batch:
            by_a_part.append(step)
        samples.update((said[0]["data_epoch"], sample) for share in shares.values() for sample in share)
    missing = [step for step in range(last) if step not in counts]
    return Counted(len(counts), missing, twice, by_a_part, samples)
