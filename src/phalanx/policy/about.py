"""What a policy says of itself, in the words of the usual comparison of cluster schedulers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class About:
    """One row of `phalanx policies`.

    `decides_by` is what the order is made from; `placement` is `packed` where the policy leaves it to the engine.
    """

    summary: str = ""
    prior_knowledge: str = "none"
    algorithm: str = ""
    decides_by: str = ""
    dimensions: str = ""
    preemption: str = "no"
    starvation: str = ""
    placement: str = "packed"
    source: str = ""


NOTHING_SAID = About()
