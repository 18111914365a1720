"""The checkpoint that a person means by a path: a step's directory, a step of a collection, or its newest."""

from __future__ import annotations

from phalanx.train.checkpoint.store.media.medium import Root, open_medium
from phalanx.train.checkpoint.store.reading.source import Source, is_checkpoint, no_source, source_at, source_of
from phalanx.train.checkpoint.store.step import find_step
from phalanx.train.checkpoint.store.upkeep.verify import newest_intact


def chosen(root: Root, step: int | None = None) -> Source:
    """`step` of `root`, else its newest intact step; where `root` is itself one checkpoint, that one."""
    medium = open_medium(root)
    if step is None and is_checkpoint(medium):
        return source_at(medium)
    if step is not None:
        return source_of(find_step(medium, step).committed())
    found = newest_intact(medium)
    if found is None:
        raise no_source(medium, [])
    return source_of(found.step)
