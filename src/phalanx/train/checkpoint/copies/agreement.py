"""Ranks agreeing on something small: all say what they know, one decides, all hear it."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint.copies.presence import Chair, Member, Presence, reachable_host

Answer = TypeVar("Answer")

PREFIX = "phalanx-checkpoint"

POLL_S, POLL_LONGEST_S = 0.0005, 0.02
"""How often it is looked whether words have come. The store's own waiting cannot be interrupted: a signal would be
heard at its end, and a rank that has ended would be waited for.
"""

_meetings = itertools.count()


class RankMissingError(PhalanxError):
    """Ranks did not arrive where all must."""

    def __init__(self, topic: str, missing: Sequence[int], timeout_s: float) -> None:
        super().__init__(topic, missing, timeout_s)
        self.topic, self.missing, self.timeout_s = topic, tuple(missing), timeout_s

    def __str__(self) -> str:
        ranks = ", ".join(str(rank) for rank in self.missing)
        return f"{self.topic}: rank {ranks} did not arrive within {self.timeout_s:g} s; look at its log and its node"


class RankEndedError(RankMissingError):
    """Ranks ended before they arrived where all must."""

    def __str__(self) -> str:
        ranks = ", ".join(str(rank) for rank in self.missing)
        return f"{self.topic}: rank {ranks} has ended; look at its log and its node"


class Agreement:
    """Where the ranks of a job meet: torch's key-value store, which every launcher of torch provides.

    Rank 0 chairs. It waits for each rank's word, decides, and writes the decision; so all go on from the same
    decision, also those that came late, and also if it is that a rank is missing.

    A rank that has ended is not waited for. A signal is no reason to give up: when all are told to end, they meet to
    save their last step.
    """

    def __init__(self, store: Store | None, rank: int, world_size: int, timeout_s: float = 60.0) -> None:
        self._store = store
        self._rank, self._world_size = rank, world_size
        self._timeout_s = timeout_s
        self._count = 0
        self.presence = Presence(rank)

    @classmethod
    def of_this_job(cls, timeout_s: float = 60.0) -> Agreement:
        """Meets over the store of the process group that training uses; alone if there is none."""
        if not dist.is_available() or not dist.is_initialized():
            return cls(None, 0, 1, timeout_s)
        from torch.distributed.distributed_c10d import _get_default_store

        # The store may outlive workers that are restarted, and a process may have several checkpointers in turn.
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"{PREFIX}/{restarts}/{next(_meetings)}", _get_default_store())
        agreement = cls(store, dist.get_rank(), dist.get_world_size(), timeout_s)
        agreement._find_one_another()
        return agreement

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

    def _find_one_another(self) -> None:
        """Connects all ranks, so that each learns when another has ended; what cannot be connected is timed out."""
        token = self.decide("finding one another", None, lambda _: secrets.token_hex(16))
        chair: Chair | None = None
        if self._rank == 0:
            with contextlib.suppress(OSError):
                self.presence = chair = Chair(reachable_host(), token)
        address = self.decide("finding one another", None, lambda _: None if chair is None else chair.address)
        if self._rank != 0 and address is not None:
            with contextlib.suppress(OSError):
                self.presence = Member(self._rank, address, token)

    def _put(self, key: str, value: Any) -> None:
        assert self._store is not None
        # The store takes bytes too; its stub says otherwise.
        self._store.set(key, pickle.dumps(value))  # type: ignore[arg-type]

    def _chaired(self, place: str, topic: str, chair: Callable[[list[Any]], Answer]) -> Answer | PhalanxError:
        assert self._store is not None
        keys = [f"{place}/{rank}" for rank in range(self._world_size)]
        try:
            self._wait(place, topic, {key: rank for rank, key in enumerate(keys)}, self._timeout_s)
        except RankMissingError as error:
            return error
        try:
            return chair([pickle.loads(word) for word in self._store.multi_get(keys)])
        except PhalanxError as error:
            # What the chair cannot do, all must hear of, or they would wait for its decision.
            return error

    def _await(self, key: str, topic: str) -> bytes:
        """The decision. The chair itself may be the one that is missing, and it answers late if another one is."""
        assert self._store is not None
        self._wait(key.partition("/")[0], topic, {key: 0}, 2 * self._timeout_s)
        answer: bytes = self._store.get(key)
        return answer

    def _wait(self, place: str, topic: str, keys: Mapping[str, int], timeout_s: float) -> None:
        """Waits for keys, each written by a rank, as long as all ranks can still come."""
        deadline_s = time.monotonic() + timeout_s
        pause_s = POLL_S
        while True:
            # Asked first: what a rank has written before it ended counts.
            ended = self.presence.ended
            try:
                if self._has(*keys):
                    return
                # Without the word of one, rank 0 cannot decide, wherever it is itself.
                silent = [rank for rank in sorted(ended) if rank == 0 or not self._has(f"{place}/{rank}")]
            except dist.DistError as error:
                # The store is gone, and with it the rank that had it.
                raise RankEndedError(topic, [0], timeout_s) from error
            if silent:
                raise RankEndedError(topic, silent, timeout_s)
            if time.monotonic() > deadline_s:
                missing = [rank for key, rank in keys.items() if not self._has(key)]
                raise RankMissingError(topic, missing, timeout_s)
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, POLL_LONGEST_S)

    def _has(self, *keys: str) -> bool:
        assert self._store is not None
        return self._store.check(list(keys))

    def _tidy(self) -> None:
        """Takes away what the agreement before last left: every rank that is here has read it."""
        assert self._store is not None
        old = self._count - 2
        for name in ("decision", *range(self._world_size)):
            self._store.delete_key(f"{old}/{name}")
