"""What the ranks agree on before a snapshot: whether, over what, and for which tiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.train.checkpoint.copies.peers import Address
from phalanx.train.checkpoint.schedule import Cost
from phalanx.train.checkpoint.tiers import ORDER


@dataclass(frozen=True, slots=True)
class Word:
    """What a rank knows before a snapshot."""

    step: int
    fingerprint: str
    slot_bytes: int
    slots: tuple[int | None, ...]
    """For each own slot the step of the whole snapshot in it."""
    occupied: frozenset[int]
    """Steps that the background process still reads."""
    replicated: int | None
    due: frozenset[str]
    busy: frozenset[str]
    """Tiers that are not done with the last step that they got."""
    costs: Mapping[str, Cost]
    step_s: float
    machine: str
    address: Address | None
    durable: int | None
    on_disk: int | None
    """The last step that is committed on this rank's own disk."""
    held: frozenset[int]
    """The ranks whose snapshots of `step` are whole in this rank's memory."""
    is_preparing: bool = False
    """Whether its slots are still being pinned, in the background."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What all ranks do. `keep` is the step that must stay in memory; where `tiers` is None, nothing is saved now."""

    tiers: tuple[str, ...] | None
    is_taken: bool
    """Whether all ranks have a snapshot of this step already, which then only goes to further tiers."""
    preparing: tuple[int, ...]
    """The ranks whose slots are still being pinned: nothing is saved then, and what is due stays due."""
    late: tuple[str, ...]
    keep: int | None
    why_not: str
    costs: Mapping[str, Cost]
    step_s: float
    durable: int | None
    on_disk: int | None
    """The newest step that every rank has committed on its own disk."""
    held: tuple[frozenset[int], ...]
    alike: bool
    fingerprints: tuple[str, ...]
    slot_bytes: tuple[int, ...]
    machines: tuple[str, ...]
    addresses: tuple[Address | None, ...]


def decide(words: Sequence[Word]) -> Decision:
    """The slowest rank's costs count; what one rank needs to keep, none may overwrite."""
    keep = protected(words)
    due = _in_order(frozenset().union(*(word.due for word in words)))
    busy = frozenset().union(*(word.busy for word in words))
    tiers = tuple(tier for tier in due if tier not in busy)
    why_not = ""
    if not tiers:
        why_not = f"{', '.join(due)} still busy with the step before"
    is_taken = all(word.step in word.slots for word in words)
    stuck = [rank for rank, word in enumerate(words) if not _has_room(word, keep)]
    if stuck and not is_taken:
        why_not = f"all slots of rank {stuck[0]} are in use: the copies of the last steps are still on their way"
    preparing = () if is_taken else tuple(rank for rank, word in enumerate(words) if word.is_preparing)
    if preparing:
        why_not = f"the host memory of rank {preparing[0]} is still being pinned"
    durables = [word.durable for word in words if word.durable is not None]
    on_disks = [word.on_disk for word in words if word.on_disk is not None]
    return Decision(
        tiers=None if why_not else tiers,
        is_taken=is_taken,
        preparing=preparing,
        late=tuple(tier for tier in due if tier in busy),
        keep=keep,
        why_not=why_not,
        costs=_worst(words),
        step_s=max(word.step_s for word in words),
        durable=max(durables, default=None),
        on_disk=min(on_disks) if len(on_disks) == len(words) else None,
        held=tuple(word.held for word in words),
        alike=len({word.fingerprint for word in words}) == 1,
        fingerprints=tuple(word.fingerprint for word in words),
        slot_bytes=tuple(word.slot_bytes for word in words),
        machines=tuple(word.machine for word in words),
        addresses=tuple(word.address for word in words),
    )


def protected(words: Sequence[Word]) -> int | None:
    """The step that all can go back to while the next snapshot is written: the newest there is, if that leaves room.

    While a durable tier reads an older one, there may be no other slot than the newest. The older one is whole and is
    not overwritten before it has been read, so that it can be gone back to in the meantime. Where copies go to
    peers they are of the newest, which then stays: the other ranks would not have the step that a lost one has there.
    """
    newest = newest_protected(words)
    if any("peer" in word.costs for word in words) or all(_has_room(word, newest) for word in words):
        return newest
    others = sorted(_common(words) - {newest}, reverse=True)
    return next((step for step in others if all(_has_room(word, step) for word in words)), newest)


def newest_protected(words: Sequence[Word]) -> int | None:
    """The newest step that all could go back to: every rank has it whole, and copies of it too if copies are made."""
    common = _common(words)
    replicated = [word.replicated for word in words if word.replicated is not None]
    if len(replicated) == len(words) and min(replicated) in common:
        return min(replicated)
    return max(common, default=None)


def _common(words: Sequence[Word]) -> frozenset[int]:
    """The steps of which every rank has a whole snapshot of its own."""
    return frozenset.intersection(*(frozenset(s for s in word.slots if s is not None) for word in words))


def writable(slots: Sequence[int | None], keep: int | None, occupied: frozenset[int]) -> int | None:
    """The number of the slot to write to: an empty one, else the oldest that is neither kept nor read."""
    free = [
        (-1 if step is None else step, number)
        for number, step in enumerate(slots)
        if step is None or (step != keep and step not in occupied)
    ]
    return min(free)[1] if free else None


def _has_room(word: Word, keep: int | None) -> bool:
    # Before the first snapshot there are no slots; space is made for it.
    return not word.slots or writable(word.slots, keep, word.occupied) is not None


def _worst(words: Sequence[Word]) -> dict[str, Cost]:
    tiers = _in_order(frozenset().union(*(frozenset(word.costs) for word in words)))
    worst = {}
    for tier in tiers:
        known = [word.costs[tier] for word in words if tier in word.costs and word.costs[tier].known]
        if known:
            worst[tier] = Cost(max(c.blocked_s for c in known), max(c.busy_s for c in known), known=True)
    return worst


def _in_order(tiers: frozenset[str]) -> tuple[str, ...]:
    return tuple(tier for tier in ORDER if tier in tiers)
