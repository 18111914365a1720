"""fifo: first in, first out. Strict by default: a head that does not fit holds up all behind it."""

from __future__ import annotations

from phalanx.policy.about import About
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Policy, always, never


def fifo(parameters: Parameters) -> Policy:
    """`skip=true` lets jobs behind a head that does not fit start before it. No job is ever stopped for another."""
    skip = parameters.boolean("skip", default=False)
    return Policy("fifo", backfill=always if skip else never, parameters=parameters.given, about=ABOUT)


ABOUT = About(
    summary="first in, first out; strictly, or skipping what does not fit",
    algorithm="first in, first out",
    decides_by="arrival time",
    dimensions="temporal",
    preemption="no",
    starvation="no job starves; with skip=true large jobs may",
    placement="packed",
    source="textbook",
)
