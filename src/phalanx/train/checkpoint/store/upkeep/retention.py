"""Which steps are kept, and taking the rest away without ever taking the only good one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from phalanx.train.checkpoint.store.fence import refuse_if_fenced
from phalanx.train.checkpoint.store.layout import MARK
from phalanx.train.checkpoint.store.media.medium import Medium, Root, open_medium
from phalanx.train.checkpoint.store.step import Attempted, Step, attempted, steps
from phalanx.train.checkpoint.store.upkeep.verify import problems


@dataclass(frozen=True, slots=True)
class Retention:
    """Keep the `last` so many steps, every step that is a multiple of `every`, and the `best` so many by a metric.

    0 keeps none for that reason; the newest step is always kept.
    """

    last: int = 3
    every: int = 0
    best: int = 0
    metric: str = "loss"
    lowest: bool = True

    def __post_init__(self) -> None:
        for name in ("last", "every", "best"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected 0 or more, got {getattr(self, name)}")

    def kept(self, committed: Sequence[Step]) -> list[Step]:
        """Those of the steps, oldest first, that stay."""
        newest = committed[-max(1, self.last) :]
        multiples = [each for each in committed if self.every and each.step % self.every == 0]
        judged = [each for each in committed if self.metric in each.metrics]
        judged.sort(key=lambda each: each.metrics[self.metric] * (1 if self.lowest else -1))
        chosen = {each.order for each in (*newest, *multiples, *judged[: self.best])}
        return [each for each in committed if each.order in chosen]


def retire(
    root: Root,
    retention: Retention,
    *,
    term: int = 0,
    deep: bool = True,
    upto: int | None = None,
    on_removal: Callable[[str], None] = lambda url: None,
) -> list[Step]:
    """Takes away the committed steps that `retention` does not keep, and what unfinished saves have left behind.

    The newest intact step is looked for first, by reading it (`deep`) or by its sizes; it stays, and only older ones
    go. Where parts of a step lie in several places, `upto` is the newest step that is committed in all of them: newer
    ones do not count as good. `on_removal` is told of each step when its mark is gone and its data is not. Returns the
    steps taken away.
    """
    medium = open_medium(root)
    refuse_if_fenced(medium, term)
    committed = steps(medium)
    if not committed:
        return []
    kept = retention.kept(committed)
    stays = {each.order for each in kept}
    for left in abandoned(attempted(medium), committed, term, max(1, retention.last)):
        left.directory.remove_all()
    surplus = [each for each in committed if each.order not in stays]
    if not surplus:
        return []
    trusted = [each for each in committed if upto is None or each.step <= upto]
    good = next((each for each in reversed(trusted) if not problems(each, deep=deep)), None)
    gone = [each for each in surplus if good is not None and each.order < good.order]
    for each in gone:
        remove_step(each.directory, on_removal)
    medium.sync()
    return gone


def remove_step(directory: Medium, on_removal: Callable[[str], None]) -> None:
    """The mark goes first: what is half taken away does not pass for a step."""
    directory.remove(MARK)
    directory.sync()
    on_removal(directory.url)
    directory.remove_all()


def abandoned(there: Sequence[Attempted], committed: Sequence[Step], term: int, newer_needed: int) -> list[Attempted]:
    """Saves that never ended and never will: of a term before ours, or long overtaken by later steps of the same."""
    done = {each.order for each in committed}
    return [
        each
        for each in there
        if each.order not in done
        and each.directory.size(MARK) is None
        and (each.term < term or sum(1 for other in committed if other.step > each.step) >= newer_needed)
    ]
