"""This rank's place in the newest world that the launcher has handed it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from phalanx.train.checkpoint.ending.grace import read_notice
from phalanx.train.launch import handover

WATCH_S = 0.05


@dataclass(frozen=True, slots=True)
class World:
    """One world as one rank has it. A world of one needs no address."""

    epoch: int
    rank: int
    size: int
    address: str
    port: int
    is_failure: bool
    """Whether the world before it ended by a failure."""

    @classmethod
    def newest(cls) -> World:
        handed = handover.newest()
        values = handed.variables
        return cls(
            handed.epoch,
            int(values.get("RANK", "0")),
            int(values.get("WORLD_SIZE", "1")),
            values.get("MASTER_ADDR", "127.0.0.1"),
            int(values.get("MASTER_PORT", "0")),
            handed.is_failure,
        )


def take(world: World) -> None:
    """Has the environment say what it says to a rank that is started in that world."""
    handed = handover.newest()
    if handed.epoch == world.epoch:
        os.environ.update(handed.variables)


def has_notice() -> bool:
    """Whether the launcher has told this rank to end."""
    return read_notice() is not None


class Watch:
    """Calls back once when a failure has ended the world that this rank still waits in.

    A peer that was cut off closes no connection: without it the rank would wait for the time-out of the group.
    """

    def __init__(self, on_failure: Callable[[], None]) -> None:
        self._on_failure = on_failure
        self._epoch = -1
        self._ended = threading.Event()
        if handover.own_folder() is not None:
            threading.Thread(target=self._watch, name="phalanx-elastic", daemon=True).start()

    def begin(self, epoch: int) -> None:
        self._epoch = epoch

    def close(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        told = -1
        while not self._ended.wait(WATCH_S):
            world = World.newest()
            if world.epoch > self._epoch >= 0 and world.is_failure and told < world.epoch:
                told = world.epoch
                self._on_failure()
