"""What is asked of the cells."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.placement.cells.priority import OPPORTUNISTIC


@dataclass(frozen=True, slots=True)
class Member:
    """So many pods of so many leaves each."""

    pods: int
    leaves: int


@dataclass(frozen=True, slots=True)
class Quota:
    """The most leaves that all guaranteed groups with this tag may have together."""

    tag: str
    leaves_max: int


@dataclass(frozen=True, slots=True)
class Request:
    """A gang: all of its pods at once or none. HiveD calls it an affinity group.

    `lazy_preemption` says how the gang yields to gangs of its own virtual cluster: it first loses its guarantee and
    runs on, opportunistically, and is stopped only where its place is needed. One that `is_kept` is stopped for
    no gang of its own cluster.
    """

    group: str
    virtual_cluster: str
    members: tuple[Member, ...]
    priority: int = OPPORTUNISTIC
    leaf_type: str = ""
    pinned_id: str = ""
    lazy_preemption: bool = False
    ignores_suggestions: bool = True
    quota: Quota | None = None
    is_kept: bool = False

    @property
    def is_opportunistic(self) -> bool:
        """Whether it runs on what other clusters own and do not use."""
        return self.priority == OPPORTUNISTIC

    @property
    def sizes(self) -> list[int]:
        """The leaves of each pod, ascending."""
        return sorted(member.leaves for member in self.members for _ in range(member.pods))

    @property
    def leaves(self) -> int:
        """All leaves it asks for."""
        return sum(member.pods * member.leaves for member in self.members)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The nodes that a caller outside would have a gang on, or all of them."""

    nodes: frozenset[str] = frozenset()
    are_all: bool = True

    def has(self, node_name: str) -> bool:
        """Whether a node is among them."""
        return self.are_all or node_name in self.nodes
