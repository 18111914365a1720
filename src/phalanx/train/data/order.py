"""The order of the samples of an epoch: a function of seed, epoch and position, and of nothing else.

No list of samples is kept or drawn: a rank works out the samples that it needs, and all ranks work out the same. What
an order says must never change between releases, since a training that goes on relies on it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Protocol

from phalanx.errors import PhalanxError

ROUNDS = 8
WORD = (1 << 64) - 1


class Order(Protocol):
    """Which sample stands at which position of an epoch."""

    @property
    def length(self) -> int:
        """How many samples an epoch has."""
        ...

    @property
    def fingerprint(self) -> str:
        """The same for orders that say the same."""
        ...

    def sample(self, epoch: int, position: int) -> int: ...


class Listed:
    """The samples as they are numbered, in every epoch."""

    def __init__(self, length: int) -> None:
        self.length = checked_length(length)
        self.fingerprint = f"listed {length}"

    def sample(self, epoch: int, position: int) -> int:
        return position


class Shuffled:
    """Another permutation of the samples in every epoch."""

    def __init__(self, length: int, seed: int = 0) -> None:
        self.length = checked_length(length)
        self.seed = seed
        self.fingerprint = f"shuffled {length} seed {seed}"

    def sample(self, epoch: int, position: int) -> int:
        return permuted(position, self.length, keys(self.seed, epoch))


class Lanes:
    """The samples of sharded files, for readers that go through files from front to back.

    The files come in another order in every epoch. Laid end to end they are cut into `lanes` of equal length, and the
    epoch takes one sample of each lane in turn. A rank has the lanes whose number modulo the world size is its rank, as
    long as the world size divides `lanes`; so it reads few files, and those in order. Samples of one file keep their
    order: shuffle them when the files are written.
    """

    def __init__(self, counts: Sequence[int], lanes: int, seed: int = 0) -> None:
        empty = [number for number, count in enumerate(counts) if count < 1]
        if empty:
            raise PhalanxError(f"file {empty[0]} of {len(counts)} holds no samples: leave it out")
        self.length = checked_length(sum(counts))
        if not 1 <= lanes <= self.length:
            raise PhalanxError(f"there are {lanes} lanes, expected 1 to {self.length}, the number of samples")
        self.lanes, self.seed = lanes, seed
        self._counts = list(counts)
        self._firsts = [0, *accumulate(counts)]
        digest = hashlib.blake2b(repr(self._counts).encode(), digest_size=8).hexdigest()
        self.fingerprint = f"lanes {lanes} of {len(counts)} files {digest} seed {seed}"
        self._laid: tuple[int, list[int], list[int]] | None = None

    def sample(self, epoch: int, position: int) -> int:
        row, lane = divmod(position, self.lanes)
        shorter, longer = divmod(self.length, self.lanes)
        place = lane * shorter + min(lane, longer) + row
        files, firsts = self._files(epoch)
        number = bisect_right(firsts, place) - 1
        return self._firsts[files[number]] + place - firsts[number]

    def _files(self, epoch: int) -> tuple[list[int], list[int]]:
        """The files in the order of an epoch, and where each begins."""
        if self._laid is None or self._laid[0] != epoch:
            count, key = len(self._counts), keys(self.seed, epoch)
            files = [permuted(number, count, key) for number in range(count)]
            firsts = [0, *accumulate(self._counts[file] for file in files)]
            self._laid = (epoch, files, firsts[:-1])
        return self._laid[1], self._laid[2]


def checked_length(length: int) -> int:
    if length < 1:
        raise PhalanxError(f"the dataset holds {length} samples, expected at least one")
    return length


@lru_cache(maxsize=64)
def keys(seed: int, epoch: int) -> tuple[int, ...]:
    """The keys of one epoch's permutation."""
    digest = hashlib.blake2b(f"{seed} {epoch}".encode(), digest_size=8 * ROUNDS).digest()
    return tuple(int.from_bytes(digest[8 * each : 8 * each + 8], "little") for each in range(ROUNDS))


def permuted(position: int, length: int, keys: Sequence[int]) -> int:
    """Where a permutation of `length` numbers sends one: a Feistel network on the next power of two, walked until the
    number is one of them. So it costs the same for the first and for the billionth, and no memory.
    """
    bits = max(2, (length - 1).bit_length())
    low = bits // 2
    high = bits - low
    while True:
        for number, key in enumerate(keys):
            # The halves take turns; they may differ by a bit.
            if number % 2 == 0:
                position ^= mixed(key ^ (position >> low)) & ((1 << low) - 1)
            else:
                position ^= (mixed(key ^ (position & ((1 << low) - 1))) & ((1 << high) - 1)) << low
        if position < length:
            return position


def mixed(word: int) -> int:
    """The finalizer of splitmix64: every bit of the answer depends on every bit of the word."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)
