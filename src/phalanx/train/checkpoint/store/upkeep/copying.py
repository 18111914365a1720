"""A step copied to another place, checked on the way."""

from __future__ import annotations

from typing import BinaryIO, ClassVar

from phalanx.train.checkpoint.store.digest import running
from phalanx.train.checkpoint.store.errors import Corrupt, StoreError
from phalanx.train.checkpoint.store.fence import claims, refuse_if_alive
from phalanx.train.checkpoint.store.layout import MANIFEST, MARK, step_name
from phalanx.train.checkpoint.store.manifest import StoredFile, seal
from phalanx.train.checkpoint.store.media.medium import Medium, Root, open_medium
from phalanx.train.checkpoint.store.step import Step

COPY_BYTES = 16 << 20


class StepExists(StoreError):  # noqa: N818
    """The step is already at the place it should go to."""

    exit_code: ClassVar[int] = 4


def copy_step(step: Step, root: Root) -> Step:
    """Copies a committed step into the collection at `root`, its mark last. Every file is checked as it goes by."""
    destination = open_medium(root)
    refuse_if_busy(destination)
    directory = destination.child(step_name(step.step, step.term))
    if directory.size(MARK) is not None:
        raise StepExists(f"{directory.url}: step {step.step} is already there; remove it first")
    manifest = step.manifest_bytes()
    for name, file in step.manifest().files.items():
        copy_file(step.directory, directory, name, file)
    directory.write(MANIFEST, lambda file: file.write(manifest))
    mark = seal(step.mark)
    directory.write(MARK, lambda file: file.write(mark))
    directory.sync()
    destination.sync()
    return Step(directory, step.mark)


def refuse_if_busy(destination: Medium) -> None:
    """A trainer that writes there would be in the way, and we in its."""
    known = claims(destination)
    if known:
        refuse_if_alive(destination, known[-1], job="")


def copy_file(source: Medium, target: Medium, name: str, file: StoredFile) -> None:
    def produce(out: BinaryIO) -> str:
        sofar = running()
        for offset in range(0, file.bytes, COPY_BYTES):
            content = source.read(name, offset, min(COPY_BYTES, file.bytes - offset))
            sofar.update(content)
            out.write(content)
        return sofar.hexdigest()

    try:
        found = target.write(name, produce)
    except FileNotFoundError:
        raise Corrupt(source.url, [f"{name} is missing"]) from None
    if found != file.digest:
        target.remove(name)
        raise Corrupt(source.url, [f"{name} is damaged: its digest does not match"])
