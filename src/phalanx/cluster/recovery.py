"""What a site keeps ready for jobs that lose a node."""

from __future__ import annotations

from dataclasses import dataclass

CLUSTER_WIDE = "cluster"


@dataclass(frozen=True, slots=True)
class Recovery:
    """A job that lost hardware goes on where it was, with its ranks; what it lost is replaced as near as can be.

    So many idle nodes of every domain of the level `per` are spares: no other work is placed on them.
    """

    spares: int = 0
    per: str = CLUSTER_WIDE
