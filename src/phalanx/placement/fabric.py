"""What connects the devices: one link speed and latency per level of the topology tree."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.cluster.link import Link as Link

Path = tuple[int, ...]
"""Where a device sits: the index of its domain at each level, outermost first, the device itself last."""


SAME_DEVICE = Link(gb_s=float("inf"))


@dataclass(frozen=True, slots=True)
class Fabric:
    """The levels of the tree and the link that joins the members of each.

    Two devices whose paths first differ at index i talk over `links[i]`: with levels `("rack", "node", "gpu")`, devices
    in different racks over `links[0]`, in different nodes of a rack over `links[1]`, inside a node over `links[2]`.
    `same` are the indices of levels whose domains are joined just as what is in them is: they cost nothing of their
    own, as if the level inside lay in the one outside. The device's is none of them.
    """

    levels: tuple[str, ...]
    links: tuple[Link, ...]
    same: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.levels:
            raise ValueError("fabric: levels must name at least one level, the device's")
        if len(self.levels) != len(self.links):
            raise ValueError(
                f"fabric: expected one link per level, got {len(self.links)} links for levels {', '.join(self.levels)}"
            )

        if not all(0 <= level < self.depth - 1 for level in self.same):
            raise ValueError(f"fabric: expected indices of levels outside the device in `same`, got {self.same}")

    @property
    def depth(self) -> int:
        return len(self.levels)

    @property
    def distinct(self) -> tuple[int, ...]:
        """The indices of the levels that tell devices apart, the device's last."""
        return tuple(level for level in range(self.depth) if level not in self.same)

    def meeting_level(self, a: Path, b: Path) -> int:
        """The index at which two paths first differ; `depth` when they are the same device."""
        self.require_paths(a, b)
        for level, (left, right) in enumerate(zip(a, b, strict=True)):
            if left != right:
                return level
        return self.depth

    def link(self, a: Path, b: Path) -> Link:
        """What two devices talk over; within one device nothing is slow."""
        level = self.meeting_level(a, b)
        return self.links[level] if level < self.depth else SAME_DEVICE

    def require_paths(self, *paths: Path) -> None:
        for path in paths:
            if len(path) != self.depth:
                raise ValueError(
                    f"fabric: path {path} has {len(path)} indices, expected {self.depth} ({', '.join(self.levels)})"
                )
