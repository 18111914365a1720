"""A place that can be loaded from: a committed step of ours, or a directory that DCP wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from phalanx.train.checkpoint.store.dcp import read_foreign
from phalanx.train.checkpoint.store.errors import Corrupt, NoSuchStep
from phalanx.train.checkpoint.store.layout import MARK
from phalanx.train.checkpoint.store.manifest import Manifest
from phalanx.train.checkpoint.store.media.medium import Medium, Root, open_medium
from phalanx.train.checkpoint.store.step import Step, attempted, find_step, holds_dcp, read_step
from phalanx.train.checkpoint.store.upkeep.verify import Broken, broken, refuse_if_broken


@dataclass(frozen=True, slots=True)
class Source:
    """What to load from. `step` is None for a directory of DCP's own."""

    directory: Medium
    manifest: Manifest
    step: Step | None

    @property
    def is_checked(self) -> bool:
        """Whether there are digests to check what is read against."""
        return self.step is not None


def source_of(step: Step) -> Source:
    """A committed step, after a look at its mark, its manifest and the sizes of its files."""
    refuse_if_broken(step, deep=False)
    return Source(step.directory, step.manifest(), step)


def source_at(directory: Medium) -> Source:
    """The step or DCP checkpoint that lies in this very directory."""
    if holds_dcp(directory):
        return Source(directory, read_foreign(directory), None)
    return source_of(read_step(directory))


def sources(root: Root, step: int | Step | None, passed_over: list[Broken]) -> Iterator[Source]:
    """What `step` of `root` can be loaded from, best first: one source where a step is named, else newest first.

    Where `root` is itself the directory of one checkpoint, that one. Broken steps are added to `passed_over`.
    """
    if isinstance(step, Step):
        yield source_of(step)
        return
    medium = open_medium(root)
    if step is not None:
        yield source_of(find_step(medium, step).committed())
        return
    if is_checkpoint(medium):
        yield source_at(medium)
        return
    for each in reversed(attempted(medium)):
        try:
            source = source_of(each.committed())
        except Corrupt as error:
            passed_over.append(broken(each, error))
        else:
            yield source


def is_checkpoint(directory: Medium) -> bool:
    """Whether a directory is one checkpoint, not a collection of steps."""
    return directory.size(MARK) is not None or holds_dcp(directory)


def no_source(medium: Medium, passed_over: list[Broken]) -> NoSuchStep:
    if not passed_over:
        return NoSuchStep(f"{medium.url}: there is no checkpoint")
    return NoSuchStep(f"{medium.url}: no step is intact: {'; '.join(map(str, passed_over))}")
