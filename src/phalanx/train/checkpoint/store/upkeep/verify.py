"""Whether what lies in the store is what was written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from phalanx.train.checkpoint.store.digest import running
from phalanx.train.checkpoint.store.errors import Corrupt
from phalanx.train.checkpoint.store.media.medium import Medium, Root
from phalanx.train.checkpoint.store.step import Attempted, Step, attempted

READ_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Broken:
    """A step that cannot be used, and why."""

    step: int
    term: int
    path: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"step {self.step} ({self.path}): {'; '.join(self.reasons)}"


@dataclass(frozen=True, slots=True)
class Intact:
    """A step that can be used, and the newer ones that cannot."""

    step: Step
    passed_over: tuple[Broken, ...]


def newest_intact(root: Root, *, deep: bool = True) -> Intact | None:
    """The newest step whose files are all there and as they were written, None where there is no such step.

    `deep` reads every byte; otherwise marks, manifests, and the sizes of files decide.
    """
    passed_over: list[Broken] = []
    for found in intact_steps(root, passed_over, deep=deep):
        return Intact(found, tuple(passed_over))
    return None


def intact_steps(root: Root, passed_over: list[Broken], *, deep: bool) -> Iterator[Step]:
    """The intact steps, newest first; the broken ones before each are added to `passed_over`."""
    for each in reversed(attempted(root)):
        try:
            step = each.committed()
            reasons = problems(step, deep=deep)
            if reasons:
                raise Corrupt(step.url, reasons)
        except Corrupt as error:
            passed_over.append(broken(each, error))
        else:
            yield step


def broken(which: Attempted | Step, error: Corrupt) -> Broken:
    return Broken(which.step, which.term, which.directory.url, error.reasons)


def problems(step: Step, *, deep: bool = True) -> list[str]:
    """What is wrong with a committed step, a line for each file; none where it is intact."""
    try:
        manifest = step.manifest()
    except Corrupt as error:
        return list(error.reasons)
    except ValueError as error:
        return [f"its manifest cannot be read: {error}"]
    found = []
    for name, file in manifest.files.items():
        size = step.directory.size(name)
        if size is None:
            found.append(f"{name} is missing")
        elif size != file.bytes:
            found.append(f"{name} has {size} bytes, expected {file.bytes}")
        elif deep and file_digest(step.directory, name, size) != file.digest:
            found.append(f"{name} is damaged: its digest does not match")
    return found


def file_digest(directory: Medium, name: str, size: int) -> str:
    sofar = running()
    for offset in range(0, size, READ_BYTES):
        try:
            sofar.update(directory.read(name, offset, READ_BYTES))
        except FileNotFoundError:
            break
    return sofar.hexdigest()


def refuse_if_broken(step: Step, *, deep: bool = True) -> None:
    reasons = problems(step, deep=deep)
    if reasons:
        raise Corrupt(step.url, reasons)
