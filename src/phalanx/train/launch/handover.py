"""What passes between an agent and a rank that keeps its process over epochs: files in the rank's folder.

A rank declares that it can go on in another world; the agent then hands it the variables of the next one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from phalanx.train.launch.bootstrap import FOLDER

DECLARED, WORLD = "keeps-its-memory", "world.json"


@dataclass(frozen=True, slots=True)
class Handed:
    """The variables of an epoch, and whether a failure ended the one before: what it began is then not finished."""

    variables: Mapping[str, str]
    is_failure: bool

    @property
    def epoch(self) -> int:
        return int(self.variables.get("PHALANX_EPOCH", "0"))


def is_declared(folder: Path) -> bool:
    return (folder / DECLARED).exists()


def hand(folder: Path, handed: Handed) -> None:
    """Has the rank of that folder go on in another epoch."""
    new = folder / f"{WORLD}.new"
    new.write_text(json.dumps({"variables": dict(handed.variables), "is_failure": handed.is_failure}))
    new.replace(folder / WORLD)


def own_folder() -> Path | None:
    """This rank's; None where no launcher is."""
    name = os.environ.get(FOLDER)
    return Path(name) if name else None


def declare() -> None:
    """This rank goes on in another world when it is handed one."""
    folder = own_folder()
    if folder is not None:
        (folder / DECLARED).touch()


def withdraw() -> None:
    """From here on another world needs another process."""
    folder = own_folder()
    if folder is not None:
        (folder / DECLARED).unlink(missing_ok=True)


def newest() -> Handed:
    """What this rank was handed last; at first what it was started with."""
    folder = own_folder()
    if folder is not None:
        with suppress(OSError, ValueError):
            said = json.loads((folder / WORLD).read_text())
            return Handed(said["variables"], said["is_failure"])
    return Handed(os.environ, is_failure=False)
