"""What the store knows of the past of a job, as a post-mortem looks at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from phalanx.server.store.past import Size


class NodeTrouble(NamedTuple):
    """A node came to be not healthy."""

    node: str
    at_ms: int
    health: str
    reason: str


class Saving(NamedTuple):
    """What a job says of saving its work: what one save costs, and after how long it saves; 0 where it does not say."""

    cost_ms: int = 0
    interval_ms: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """A job as the API shows it, its attempts, what it did one segment after another, and the troubles of its nodes.

    `saves` counts how often a durable step was reported that was new; `sizes` are GPUs of attempts until they changed.
    """

    job: Mapping[str, Any]
    attempts: Sequence[Mapping[str, Any]]
    segments: Sequence[Mapping[str, Any]]
    troubles: Sequence[NodeTrouble]
    sizes: Mapping[tuple[str, int], Sequence[Size]]
    saving: Saving
    saves: int
    now_ms: int

    def gpu_ms(self, number: int, start_ms: int, end_ms: int) -> int:
        """The GPU time that an attempt held between two moments, at the sizes that it had."""
        held = 0
        for until_ms, gpus in self._sizes_of(number):
            held += gpus * max(min(until_ms, end_ms) - start_ms, 0)
            start_ms = max(start_ms, until_ms)
        return held

    def _sizes_of(self, number: int) -> Iterator[Size]:
        yield from self.sizes.get((self.job["id"], number), ())
        for attempt in self.attempts:
            if attempt["number"] == number:
                yield Size(1 << 62, sum(len(slot["devices"]) for slot in attempt["slots"]))

    def ran_ms(self, attempt: Mapping[str, Any]) -> int:
        """How long an attempt has run."""
        if attempt["started_ms"] is None:
            return 0
        end_ms: int = attempt["ended_ms"] or self.now_ms
        return max(end_ms - int(attempt["started_ms"]), 0)
