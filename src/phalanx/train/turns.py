"""Turns: has a job's turn on a GPU that it shares end between two of its steps, where it has least in memory.

    turns = Turns()
    for step in range(steps):
        train_one_step()
        turns.step_done(step)

Where no turns are taken `step_done` looks whether a file exists, and no more. The ranks of a gang stop after the same
step. What a job has cached on the GPU is given back before it rests; with `leave` and `come_back` it can do more, such
as to have its state on the host meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

REST_FILE = "PHALANX_REST_FILE"
STEPS_PIPE = "PHALANX_STEPS_PIPE"
RANK = "PHALANX_RANK"
LOOK_S = 0.005


def give_back_cache() -> None:
    """Gives the memory back that torch keeps for later, if the job uses torch on a GPU."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def stay() -> None:
    """Does nothing."""


class Turns:
    """One for each task of a job. `leave` is called before it rests, `come_back` before it goes on."""

    def __init__(self, leave: Callable[[], None] = give_back_cache, come_back: Callable[[], None] = stay) -> None:
        self._rest_file, self._pipe = os.environ.get(REST_FILE, ""), os.environ.get(STEPS_PIPE, "")
        self._rank = os.environ.get(RANK, "0")
        self._leave, self._come_back = leave, come_back
        self._said = 0
        self._say(0)

    def step_done(self, step: int) -> None:
        """Between two steps: rests here if the turn is over, and returns when the next one begins."""
        asked = self._asked()
        if asked is None:
            return
        after_step = asked["after_step"]
        if after_step is None:
            if self._said != asked["number"]:
                self._said = asked["number"]
                self._say(step)
        elif step >= after_step:
            self._leave()
            self._say(step)
            self._wait(asked["number"])
            self._come_back()

    def _asked(self) -> dict[str, Any] | None:
        """What is asked of the job; None while its turn goes on."""
        if not self._rest_file or not os.path.exists(self._rest_file):
            return None
        try:
            with open(self._rest_file) as file:
                return json.load(file)  # type: ignore[no-any-return]
        except (OSError, ValueError):
            return None

    def _wait(self, number: int) -> None:
        """Until it is let go on. It is frozen soon."""
        while (asked := self._asked()) is not None and asked["number"] == number:
            time.sleep(LOOK_S)

    def _say(self, step: int) -> None:
        """Says how far the task is, where a shepherd listens; no job ends because none does."""
        if not self._pipe:
            return
        with suppress(OSError):
            pipe = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(pipe, f"{self._rank} {step}\n".encode())
            finally:
                os.close(pipe)
