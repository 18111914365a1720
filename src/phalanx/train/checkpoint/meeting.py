"""Ranks agreeing on something small: all say what they know, one decides, all hear it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from phalanx.errors import PhalanxError

Answer = TypeVar("Answer")

PREFIX = "phalanx-checkpoint"


class RankMissingError(PhalanxError):
    """Ranks did not arrive where all must."""

    def __init__(self, topic: str, missing: Sequence[int], timeout_s: float) -> None:
        super().__init__(topic, missing, timeout_s)
        self.topic, self.missing, self.timeout_s = topic, tuple(missing), timeout_s

    def __str__(self) -> str:
        ranks = ", ".join(str(rank) for rank in self.missing)
        return f"{self.topic}: rank {ranks} did not arrive within {self.timeout_s:g} s; look at its log and its node"


class Meeting:
    """Where the ranks of a job meet: torch's key-value store, which every launcher of torch provides.

    Rank 0 chairs. It waits for each rank's word, decides, and writes the decision; so all go on from the same
    decision, also those that came late, and also if it is that somebody is missing.
    """

    def __init__(self, store: Store | None, rank: int, world_size: int, timeout_s: float = 60.0) -> None:
        self._store = store
        self._rank, self._world_size = rank, world_size
        self._timeout_s = timeout_s
        self._count = 0

    @classmethod
    def of_this_job(cls, timeout_s: float = 60.0) -> Meeting:
        """Meets over the store of the process group that training uses; alone if there is none."""
        if not dist.is_available() or not dist.is_initialized():
            return cls(None, 0, 1, timeout_s)
        from torch.distributed.distributed_c10d import _get_default_store

        store = PrefixStore(PREFIX, _get_default_store())
        return cls(store, dist.get_rank(), dist.get_world_size(), timeout_s)

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def world_size(self) -> int:
        return self._world_size

    @property
    def store(self) -> Store | None:
        return self._store

    def decide(self, topic: str, word: Any, chair: Callable[[list[Any]], Answer]) -> Answer:
        """What rank 0's `chair` makes of the words of all ranks, in order of rank."""
        if self._store is None:
            return chair([word])
        self._count += 1
        place = f"{self._count}"
        self._put(f"{place}/{self._rank}", word)
        if self._rank == 0:
            self._put(f"{place}/decision", self._chaired(place, topic, chair))
        decision = pickle.loads(self._await(f"{place}/decision", topic))
        if self._rank == 0:
            self._tidy()
        if isinstance(decision, PhalanxError):
            raise decision
        answer: Answer = decision
        return answer

    def share(self, topic: str, word: Any) -> list[Any]:
        """The words of all ranks."""
        return self.decide(topic, word, list)

    def _put(self, key: str, value: Any) -> None:
        assert self._store is not None
        # The store takes bytes too; its stub says otherwise.
        self._store.set(key, pickle.dumps(value))  # type: ignore[arg-type]

    def _chaired(self, place: str, topic: str, chair: Callable[[list[Any]], Answer]) -> Answer | PhalanxError:
        assert self._store is not None
        keys = [f"{place}/{rank}" for rank in range(self._world_size)]
        try:
            self._store.wait(keys, timedelta(seconds=self._timeout_s))
        except dist.DistError:
            missing = [rank for rank, key in enumerate(keys) if not self._store.check([key])]
            return RankMissingError(topic, missing, self._timeout_s)
        try:
            return chair([pickle.loads(word) for word in self._store.multi_get(keys)])
        except PhalanxError as error:
            # What the chair cannot do, all must hear of, or they would wait for its decision.
            return error

    def _await(self, key: str, topic: str) -> bytes:
        """The decision. The chair itself may be the one that is missing, and it answers late if another one is."""
        assert self._store is not None
        try:
            self._store.wait([key], timedelta(seconds=2 * self._timeout_s))
        except dist.DistError as error:
            raise RankMissingError(topic, [0], 2 * self._timeout_s) from error
        answer: bytes = self._store.get(key)
        return answer

    def _tidy(self) -> None:
        """Takes away what the meeting before last left: everybody who is here has read it."""
        assert self._store is not None
        old = self._count - 2
        for name in ("decision", *range(self._world_size)):
            self._store.delete_key(f"{old}/{name}")
