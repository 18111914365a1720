"""What a policy says of itself, in the words of the usual comparison of cluster schedulers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class About:
    """One row of `phalanx policies`.

    `decides_by` is what the order is made from; `placement` is `packed` where the policy leaves it to the engine.
    `foresight` says that what it knows beforehand is of the future, or was measured apart, such as how long a job will
    run or how fast it is on hardware it never ran on: in a trace that is the truth, as no real cluster has it.
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
    foresight: bool = False


NOTHING_SAID = About()
