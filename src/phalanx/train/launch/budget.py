"""How often a training may be started again after failures, and how long to wait before."""

from __future__ import annotations

from dataclasses import dataclass

BACKOFF_FIRST_S = 1.0
BACKOFF_MOST_S = 60.0


@dataclass(frozen=True, slots=True)
class Rules:
    """`max_restarts` in all, and at most `max_stalled` failures in a row between which no step was done."""

    max_restarts: int = 3
    max_stalled: int = 3


@dataclass(frozen=True, slots=True)
class Budget:
    """What was used. A failure returns the next one, so that it can be tried and forgotten."""

    restarts: int = 0
    stalled: int = 0
    step: int | None = None
    """The furthest step that any epoch came to, if the ranks tell."""

    def failed(self, step: int | None) -> Budget:
        """After a failure in an epoch that came to a step."""
        knows = step is not None and (self.step is None or step > self.step)
        # Where ranks tell no steps, nothing is known of progress and only the number of restarts counts.
        stalled = 0 if knows else self.stalled + 1
        return Budget(self.restarts + 1, stalled, step if knows else self.step)

    def refusal(self, rules: Rules) -> str | None:
        """Why there is no further restart; None if there is."""
        if self.step is not None and self.stalled >= rules.max_stalled:
            return f"no step was done in {self.stalled} cycles, the last is {self.step}"
        if self.restarts > rules.max_restarts:
            return f"all {rules.max_restarts} restarts are used (--max-restarts)"
        return None

    @property
    def backoff_s(self) -> float:
        """None after progress; else longer with each failure in a row."""
        if self.stalled < 2:
            return 0.0
        return float(min(BACKOFF_FIRST_S * 2 ** (self.stalled - 2), BACKOFF_MOST_S))
