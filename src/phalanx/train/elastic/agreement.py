"""What the ranks of a world agree on when it begins: which steps count, and where state comes from. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Mode = Literal["in place", "peer", "saved", "start"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What one rank brings into a world."""

    completed: int
    """How many steps are in its state."""
    keeps: bool
    """Whether its state is that of ranks that trained before, whole and in memory."""
    has_voted: bool = False
    """Whether it voted for the next step and heard no result."""

    def said(self) -> list[int]:
        return [self.completed, int(self.keeps), int(self.has_voted)]

    @classmethod
    def of(cls, said: Sequence[int]) -> Standing:
        return cls(said[0], bool(said[1]), bool(said[2]))


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a world began: in which way, why, and how far it is."""

    mode: Mode
    why: str
    completed: int
    epoch: int = 0

    def __str__(self) -> str:
        ways = {
            "in place": "all ranks go on in place",
            "peer": "state from a peer",
            "saved": "state that was saved",
            "start": "from the start",
        }
        return f"epoch {self.epoch}: {ways[self.mode]} at step {self.completed}: {self.why}"


@dataclass(frozen=True, slots=True)
class Agreement:
    """What follows from the standings of all ranks; each rank finds the same."""

    completed: int
    """How many steps the world has done, with one of which the result was not heard and that counts."""
    finishing: tuple[int, ...]
    """Ranks that did not hear that the step counts for which they voted."""
    sources: tuple[int, ...]
    behind: tuple[int, ...]
    """Ranks that take their state from one of the sources before the next step."""
    recovery: Recovery

    def recovery_in(self, epoch: int) -> Recovery:
        return replace(self.recovery, epoch=epoch)

    def source_of(self, rank: int) -> int:
        """By turns, so that no source serves all."""
        return self.sources[self.behind.index(rank) % len(self.sources)]


def agreed(standings: Sequence[Standing]) -> Agreement:
    """The agreement of a world whose ranks stand so.

    A rank completes a step once it has heard that all have voted for it. So a step that any rank completed, also one
    that is gone, was voted for by all that are left; and one that a rank here did not vote for, none has completed.
    """
    keeping = [each for each in standings if each.keeps]
    if not keeping:
        return _begun_anew(standings)
    furthest = max(each.completed for each in keeping)
    last = [each for each in keeping if each.completed == furthest]
    completed = furthest + all(each.has_voted for each in last)
    ranks = range(len(standings))
    there = [rank for rank in ranks if standings[rank].keeps and standings[rank].completed == completed]
    finishing = [rank for rank in ranks if _counts(standings[rank], completed)]
    sources = sorted(there + finishing)
    behind = [rank for rank in ranks if rank not in sources]
    recovery = _recovery(standings, behind, sources, completed)
    return Agreement(completed, tuple(finishing), tuple(sources), tuple(behind), recovery)


def _counts(each: Standing, completed: int) -> bool:
    """Whether the vote of a rank was for the last step that counts."""
    return each.keeps and each.has_voted and each.completed + 1 == completed


def _recovery(standings: Sequence[Standing], behind: Sequence[int], sources: Sequence[int], completed: int) -> Recovery:
    if not behind:
        return Recovery("in place", f"all {len(standings)} have kept their memory", completed)
    kept = sum(each.keeps for each in standings)
    ranks = ", ".join(map(str, behind))
    why = f"{kept} of {len(standings)} have kept their memory; rank {ranks} takes it from rank {sources[0]}"
    return Recovery("peer", why, completed)


def _begun_anew(standings: Sequence[Standing]) -> Agreement:
    """No memory is left: the furthest saved state counts, or the first rank's, which has it from its program."""
    furthest = max(each.completed for each in standings)
    source = next(rank for rank, each in enumerate(standings) if each.completed == furthest)
    behind = tuple(rank for rank in range(len(standings)) if rank != source)
    why = f"no rank has kept its memory; rank {source} gives its state to the others"
    recovery = Recovery("saved" if furthest else "start", why, furthest)
    return Agreement(furthest, (), (source,), behind, recovery)
