"""Spending: the GPU time that queues have had, in all and with what is long ago counting less and less."""

from __future__ import annotations

from math import log

from phalanx.cluster.queues import ancestors


class _Account:
    __slots__ = ("decayed", "since_ms", "spent", "used")

    def __init__(self, now: int) -> None:
        self.used = 0
        self.since_ms = now
        self.spent = 0
        self.decayed = 0.0


class Spending:
    """GPU time by queue, in thousandths of GPUs times milliseconds, what the queues inside have counted in.

    With a half-life, GPU time of so long ago counts half (Slurm's PriorityDecayHalfLife).
    """

    def __init__(self, half_life_ms: int = 0) -> None:
        self.half_life_ms = half_life_ms
        self._accounts: dict[str, _Account] = {}

    def use(self, queue: str, gpu_permille: int, now: int) -> None:
        """Takes note that a queue has so much more from now on, or less."""
        for path in ancestors(queue):
            account = self._accounts.get(path)
            if account is None:
                account = self._accounts[path] = _Account(now)
            if account.since_ms < now:
                account.decayed = self._decayed(account, now)
                account.spent += account.used * (now - account.since_ms)
                account.since_ms = now
            account.used += gpu_permille

    def give_back(self, queue: str, gpu_permille: int, since_ms: int, now: int) -> None:
        """Takes back what a queue was charged with since a moment from which on nothing ran for it. Follows `use`."""
        passed_ms = now - since_ms
        decayed = self._added(gpu_permille, passed_ms, self._left(passed_ms))
        for path in ancestors(queue):
            account = self._accounts[path]
            account.spent -= gpu_permille * passed_ms
            account.decayed = max(account.decayed - decayed, 0.0)

    def spent(self, path: str, now: int) -> int:
        """All that a queue has ever had."""
        account = self._accounts.get(path)
        return account.spent + account.used * (now - account.since_ms) if account is not None else 0

    def decayed(self, path: str, now: int) -> float:
        """What a queue has had, weighed by how long ago it was."""
        account = self._accounts.get(path)
        return self._decayed(account, now) if account is not None else 0.0

    def _decayed(self, account: _Account, now: int) -> float:
        """Over a time t what was there falls to the part 2^(-t/h), and use u adds u·h/ln 2·(1 - 2^(-t/h))."""
        passed_ms = now - account.since_ms
        left = self._left(passed_ms)
        return account.decayed * left + self._added(account.used, passed_ms, left)

    def _left(self, passed_ms: int) -> float:
        """The part of what is there that is left after a time."""
        return 2.0 ** (-passed_ms / self.half_life_ms) if self.half_life_ms else 1.0

    def _added(self, used: int, passed_ms: int, left: float) -> float:
        """What a use over a time adds by the end of it."""
        return used * self.half_life_ms / log(2) * (1.0 - left) if self.half_life_ms else float(used * passed_ms)

    def with_half_life(self, half_life_ms: int, now: int) -> Spending:
        """The same history, from now on with another half-life."""
        other = Spending(half_life_ms)
        for path, account in self._accounts.items():
            taken = other._accounts[path] = _Account(now)
            taken.used = account.used
            taken.spent = self.spent(path, now)
            taken.decayed = self.decayed(path, now)
        return other

    def fingerprint(self) -> tuple[object, ...]:
        """All that is known, for comparing two moments."""
        return tuple((path, account.used) for path, account in self._accounts.items())
