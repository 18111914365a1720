"""Arrangements: what the engine is told of a gang whose pods mind where other pods are.

The engine compares labels of nodes, amounts of resources and levels of the tree. So nodes get a label of a gang that
may go there, and offer resources that say how many of its pods may; its pods take these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

ELIGIBLE_LABEL = "phalanx/eligible-"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """`eligible` are the nodes to which a gang may go, None for all, by the label of this `name`; `because` is what
    rules out the others. `takes` is what each pod takes, by its key, of the resources that nodes offer for this alone.
    `level` is the label, or "node", whose value the nodes must have alike. `refused` says why there is no arrangement
    for now.
    """

    eligible: tuple[str, ...] | None = None
    because: tuple[str, ...] = ()
    takes: Mapping[str, str] = field(default_factory=dict)
    offers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    level: str = ""
    refused: str = ""
    name: str = ""

    def is_told_as(self, other: Arrangement) -> bool:
        """Whether a job is told the same by another: which nodes have the label that it asks for, nodes are told."""
        if (self.eligible is None) != (other.eligible is None):
            return False
        return (self.name, self.takes, self.level, self.refused) == (
            other.name,
            other.takes,
            other.level,
            other.refused,
        )


ANYHOW = Arrangement()


def eligible_label(arrangement: Arrangement) -> str:
    """The label of the nodes to which a gang may go. Gangs that say the same have one label."""
    return ELIGIBLE_LABEL + arrangement.name


def digest(said: bytes) -> str:
    """A short name for what is said."""
    return blake2b(said, digest_size=6).hexdigest()
