"""A step that was committed, and how to find it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from phalanx.train.checkpoint.store.digest import digest
from phalanx.train.checkpoint.store.errors import Corrupt, NoSuchStep
from phalanx.train.checkpoint.store.layout import INDEX_NAME, MANIFEST, MARK, METADATA, parse_step_name
from phalanx.train.checkpoint.store.manifest import Manifest, Mark, decode, unseal
from phalanx.train.checkpoint.store.media.medium import Medium, Root, open_medium

UNFINISHED = "it has no commit mark: its save did not end"

# Step has a property of the name `bytes`.
Content: TypeAlias = bytes | bytearray


@dataclass(frozen=True, slots=True)
class Step:
    """A committed step, as its commit mark tells it. Its bytes have not been looked at."""

    directory: Medium
    mark: Mark

    @property
    def step(self) -> int:
        return self.mark.step

    @property
    def term(self) -> int:
        return self.mark.term

    @property
    def bytes(self) -> int:
        return self.mark.bytes

    @property
    def world_size(self) -> int:
        return self.mark.world_size

    @property
    def metrics(self) -> dict[str, float]:
        return self.mark.metrics

    @property
    def committed_at(self) -> float:
        return self.mark.committed_at

    @property
    def url(self) -> str:
        return self.directory.url

    @property
    def order(self) -> tuple[int, int]:
        """Later steps are newer; of the same step, that of the later term."""
        return self.mark.step, self.mark.term

    def manifest_bytes(self) -> Content:
        """The manifest that the mark commits, checked against it; Corrupt otherwise."""
        try:
            content = self.directory.read(MANIFEST)
        except FileNotFoundError:
            raise Corrupt(self.url, [f"{MANIFEST} is missing"]) from None
        if digest(content) != self.mark.manifest_digest:
            raise Corrupt(self.url, [f"{MANIFEST} is not the one that the commit mark names"])
        return content

    def manifest(self) -> Manifest:
        return decode(self.manifest_bytes(), Manifest)


@dataclass(frozen=True, slots=True)
class Attempted:
    """A directory named after a step, committed or not."""

    step: int
    term: int
    directory: Medium

    @property
    def order(self) -> tuple[int, int]:
        return self.step, self.term

    def committed(self) -> Step:
        """The step; Corrupt where it has no mark, or a mark that is not its own."""
        found = read_step(self.directory)
        if found.order != self.order:
            mark = f"step {found.step}, term {found.term}"
            raise Corrupt(self.directory.url, [f"its commit mark belongs to {mark}"])
        return found


def read_step(directory: Medium) -> Step:
    """The step in a directory of any name."""
    try:
        content = directory.read(MARK)
    except (FileNotFoundError, NotADirectoryError):
        raise Corrupt(directory.url, [UNFINISHED]) from None
    try:
        return Step(directory, unseal(content, Mark))
    except ValueError as error:
        raise Corrupt(directory.url, [f"its commit mark is damaged: {error}"]) from None


def attempted(root: Root) -> list[Attempted]:
    """All step directories, oldest first, whether or not they were committed."""
    medium = open_medium(root)
    found = []
    for name in medium.names():
        parsed = parse_step_name(name)
        if parsed:
            found.append(Attempted(*parsed, medium.child(name)))
    return sorted(found, key=lambda each: each.order)


def steps(root: Root) -> list[Step]:
    """The committed steps, oldest first. Reads their marks only."""
    found = []
    for each in attempted(root):
        try:
            found.append(each.committed())
        except Corrupt:
            continue
    return found


def find_step(root: Root, step: int) -> Attempted:
    """The newest directory of `step`; NoSuchStep names those that are there."""
    there = attempted(root)
    of_step = [each for each in there if each.step == step]
    if of_step:
        return of_step[-1]
    known = ", ".join(str(each.step) for each in there) or "none"
    raise NoSuchStep(f"{open_medium(root).url}: no step {step}; there are: {known}")


def holds_dcp(directory: Medium) -> bool:
    """Whether a directory is torch.distributed.checkpoint's own, without a trace of ours."""
    names = directory.names()
    ours = any(name in (MARK, MANIFEST) or INDEX_NAME.fullmatch(name) for name in names)
    return METADATA in names and not ours
