"""The ranks that load together: one alone, or a process group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, TypeVar, cast

import torch
import torch.distributed as dist

from phalanx.train.checkpoint.store.errors import StoreError

Value = TypeVar("Value")


class LoadingRanks(Protocol):
    """What loading asks of the other ranks. Every rank makes the same calls in the same order."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def gather(self, value: Value) -> list[Value]:
        """Every rank's value, by rank."""

    def broadcast(self, value: Value | None) -> Value:
        """The first rank's value."""

    def exchange(self, outgoing: Sequence[bytearray], incoming_bytes: Sequence[int]) -> list[memoryview]:
        """Sends `outgoing[r]` to rank r and gives what each rank r sent, of `incoming_bytes[r]`."""


@dataclass(frozen=True, slots=True)
class Solo:
    """A rank that loads for itself."""

    rank: int = 0
    size: int = 1

    def gather(self, value: Value) -> list[Value]:
        return [value]

    def broadcast(self, value: Value | None) -> Value:
        return cast(Value, value)

    def exchange(self, outgoing: Sequence[bytearray], incoming_bytes: Sequence[int]) -> list[memoryview]:
        return [memoryview(outgoing[0])]


@dataclass(frozen=True, slots=True)
class Team:
    """The ranks of a process group, gloo or NCCL."""

    group: dist.ProcessGroup

    @property
    def rank(self) -> int:
        return dist.get_rank(self.group)

    @property
    def size(self) -> int:
        return dist.get_world_size(self.group)

    def gather(self, value: Value) -> list[Value]:
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return cast(list[Value], values)

    def broadcast(self, value: Value | None) -> Value:
        values = [value]
        dist.broadcast_object_list(values, dist.get_global_rank(self.group, 0), self.group)
        return cast(Value, values[0])

    def exchange(self, outgoing: Sequence[bytearray], incoming_bytes: Sequence[int]) -> list[memoryview]:
        device = self._device()
        sent = torch.cat([as_tensor(each) for each in outgoing]).to(device)
        received = torch.empty(sum(incoming_bytes), dtype=torch.uint8, device=device)
        dist.all_to_all_single(received, sent, list(incoming_bytes), [len(each) for each in outgoing], self.group)
        whole = received.cpu().numpy().data
        ends = accumulate(incoming_bytes)
        return [whole[end - length : end] for end, length in zip(ends, incoming_bytes, strict=True)]

    def _device(self) -> torch.device:
        """Host memory where the group can send it, so that loading takes no room on the device."""
        if dist.get_backend(self.group) == "nccl":
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")


def as_tensor(data: bytearray) -> torch.Tensor:
    return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def crew_of(group: dist.ProcessGroup | None) -> LoadingRanks:
    return Team(group) if group is not None else Solo()


def told_by_first(ranks_loading: LoadingRanks, ask: Callable[[], Value]) -> Value:
    """What the first rank finds out, told to all: one rank looks at the store where all would see the same."""
    answer: Value | StoreError | None = None
    if ranks_loading.rank == 0:
        try:
            answer = ask()
        except StoreError as error:
            answer = error
    heard = ranks_loading.broadcast(answer)
    if isinstance(heard, StoreError):
        raise heard
    return cast(Value, heard)


def all_or_none(ranks_loading: LoadingRanks, do: Callable[[], Value]) -> Value:
    """Each rank's result of `do`. Where it fails on one rank it fails on all, and alike: none waits in vain."""
    result: Value | None = None
    mine: StoreError | None = None
    try:
        result = do()
    except StoreError as error:
        mine = error
    failures = [each for each in ranks_loading.gather(mine) if each is not None]
    if failures:
        raise failures[0]
    return cast(Value, result)
