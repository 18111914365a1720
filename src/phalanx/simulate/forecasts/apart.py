"""Apart: work on a fork of this process, which sees everything as it is now and changes nothing here.

A forked process shares its memory with this one until either writes to it, so that a fork of a State of any size costs
milliseconds. To be called from a process without other threads, as every process that forks.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from phalanx.mortal import end_with

Answer = TypeVar("Answer")


class WorkFailedError(RuntimeError):
    """A forked process has ended without an answer."""


def apart(work: Callable[[int], Answer], count: int, workers: int) -> list[Answer]:
    """The answers of `work(0)` to `work(count - 1)`, each given in a process of its own, so many at a time."""
    answers: list[Answer] = []
    # What is there already is not looked through for circles: that would write to it, and so copy it.
    gc.freeze()
    try:
        for first in range(0, count, workers):
            begun = [_begin(work, number) for number in range(first, min(first + workers, count))]
            answers.extend(_answer(process, pipe) for process, pipe in begun)
    finally:
        gc.unfreeze()
    return answers


def _begin(work: Callable[[int], Any], number: int) -> tuple[Any, Connection]:
    context = get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(os.getpid(), there, work, number), daemon=True)
    with warnings.catch_warnings():
        # The child computes and answers; it takes no lock that a thread of this process could hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    there.close()
    return process, here


def _work(parent: int, pipe: Connection, work: Callable[[int], Any], number: int) -> None:
    end_with(parent)
    try:
        pipe.send((True, work(number)))
    except (Exception, SystemExit) as error:
        pipe.send((False, f"{type(error).__name__}: {error}"))
    finally:
        pipe.close()


def _answer(process: Any, pipe: Connection) -> Any:
    try:
        is_answer, told = pipe.recv()
    except EOFError:
        is_answer, told = False, "it ended without a word"
    process.join()
    pipe.close()
    if not is_answer:
        raise WorkFailedError(f"a forked run failed: {told}")
    return told
