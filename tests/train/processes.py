"""Processes of their own for tests, forked from a server that has imported torch once."""

from __future__ import annotations

import faulthandler
import functools
import multiprocessing
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from phalanx.bench.launch.warm import PRELOAD


@functools.cache
def fork_server() -> ForkServerContext:
    """What forks, once it has imported torch: on a busy machine that takes longer than the deadlines of tests."""
    context: ForkServerContext = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    first = context.Process(target=return_at_once)
    first.start()
    first.join()
    return context


def return_at_once() -> None:
    pass


def run_ranks(function: Callable[..., Any], world_size: int, arguments: Sequence[Any], deadline_s: float) -> list[Any]:
    """What `function(rank, *arguments)` returns in each of `world_size` processes, by rank.

    A rank that raises, dies or is not done in time fails the test with what it raised, how it died, or where it stood.
    """
    context = fork_server()
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(world_size)]
        stacks = [Path(folder, f"rank-{rank}") for rank in range(world_size)]
        ranks = [
            context.Process(target=run_rank, args=(function, rank, arguments, pipes[rank][1], stacks[rank], deadline_s))
            for rank in range(world_size)
        ]
        for each in ranks:
            each.start()
        for _, ours in pipes:
            ours.close()
        try:
            # The stacks are written at the deadline; a little later they can be read.
            until = time.monotonic() + deadline_s + 5
            answers = [answer_of(pipe, until) for pipe, _ in pipes]
            for each in ranks:
                each.join(max(0.0, until - time.monotonic()))
            said = [
                f"rank {rank}, exit {ranks[rank].exitcode}:\n{told or written(stacks[rank])}"
                for rank, (is_right, told) in enumerate(answers)
                if not is_right or ranks[rank].exitcode != 0
            ]
            assert not said, "\n".join(said)
            return [value for _, value in answers]
        finally:
            for each in ranks:
                each.kill()


def answer_of(pipe: Connection, until: float) -> tuple[bool, Any]:
    """Whether the rank at the other end returned, and what; nothing where it died or did not answer in time."""
    try:
        if pipe.poll(max(0.0, until - time.monotonic())):
            answer: tuple[bool, Any] = pipe.recv()
            return answer
    except EOFError:
        pass
    return False, None


def written(stacks: Path) -> str:
    return stacks.read_text() if stacks.exists() else "it never began"


def run_rank(
    function: Callable[..., Any],
    rank: int,
    arguments: Sequence[Any],
    pipe: Connection,
    stacks: Path,
    deadline_s: float,
) -> None:
    import torch

    torch.set_num_threads(1)
    with stacks.open("w") as file:
        faulthandler.enable(file)
        faulthandler.dump_traceback_later(deadline_s, file=file)
        try:
            answer = (True, function(rank, *arguments))
        except BaseException:
            answer = (False, traceback.format_exc())
        faulthandler.cancel_dump_traceback_later()
        faulthandler.disable()
    pipe.send(answer)


def run_alone(function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function(*arguments)` returns in a process of its own: what it does to itself stays there."""
    return run_ranks(without_rank, 1, (function, *arguments), 60)[0]


def without_rank(rank: int, function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
