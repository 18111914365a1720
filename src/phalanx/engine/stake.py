"""Stakes: what many kinds of waiting jobs have in common for whoever asks whether nodes offer them enough."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """The nodes on which a task could ever run. Two that are alike are mostly the same one."""

    nodes: int


@dataclass(frozen=True, slots=True, eq=False)
class Stake:
    """Where a task could ever run, the GPUs that the smallest task takes of a node, and of which group it is: its
    priority and queue.

    Two that are alike are mostly the same one, so that what is found out for one kind is known of the others.
    """

    site: Site
    least: int
    group: tuple[int, str]


@lru_cache(maxsize=1 << 10)
def site_of(nodes: int) -> Site:
    """That of all who could run on the same nodes."""
    return Site(nodes)


@lru_cache(maxsize=1 << 10)
def stake_of(site: Site, least: int, group: tuple[int, str]) -> Stake:
    """That of all who may be offered the same."""
    return Stake(site, least, group)
