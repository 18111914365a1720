"""Processes of their own for tests, forked from a server that has imported torch once."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerContext
from multiprocessing.queues import SimpleQueue
from typing import Any

PRELOAD = [
    "torch.distributed.tensor",
    "torch.distributed.checkpoint",
    "phalanx.train.checkpoint.store",
    "phalanx.train.checkpoint.store.remote",
]


def run_ranks(function: Callable[..., Any], world_size: int, arguments: Sequence[Any], deadline_s: float) -> list[Any]:
    """What `function(rank, *arguments)` returns in each of `world_size` processes, by rank."""
    context: ForkServerContext = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    queues: list[SimpleQueue[Any]] = [context.SimpleQueue() for _ in range(world_size)]
    ranks = [
        context.Process(target=run_rank, args=(function, rank, arguments, queues[rank])) for rank in range(world_size)
    ]
    for each in ranks:
        each.start()
    try:
        for each in ranks:
            each.join(deadline_s)
        assert [each.exitcode for each in ranks] == [0] * world_size
        return [each.get() for each in queues]
    finally:
        for each in ranks:
            each.kill()


def run_rank(function: Callable[..., Any], rank: int, arguments: Sequence[Any], queue: SimpleQueue[Any]) -> None:
    import torch

    torch.set_num_threads(1)
    queue.put(function(rank, *arguments))


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
