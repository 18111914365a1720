"""What one rank works with: its state, its tiers, the memory that outlives it, and the process beside it."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint.background import Background, BackgroundGoneError, Message, new_token
from phalanx.train.checkpoint.contents.state import State
from phalanx.train.checkpoint.copies.agreement import Agreement
from phalanx.train.checkpoint.copies.pace import Pace
from phalanx.train.checkpoint.copies.peers import Address
from phalanx.train.checkpoint.copies.presence import reachable_host
from phalanx.train.checkpoint.host.keeper import Keeper
from phalanx.train.checkpoint.host.memory import Memory
from phalanx.train.checkpoint.persist import Target
from phalanx.train.checkpoint.snapshots.device import DeviceCopy
from phalanx.train.checkpoint.snapshots.snapshot import Copier, HostCopier
from phalanx.train.checkpoint.tiers import ORDER, Host, Local, Peer, Shared, Tier

log = logging.getLogger("phalanx.checkpoint")


class RankContext:
    """One rank's place. Opening it finds the memory of a former trainer and claims the directories it will write to."""

    def __init__(self, parts: Mapping[str, Any], tiers: Sequence[Tier], job: str, agreement: Agreement) -> None:
        self.job, self.agreement = job, agreement
        self.rank, self.world_size = agreement.rank, agreement.world_size
        self.tiers = _by_name(tiers)
        self.state = State(parts, self.rank)
        self.memory = Memory(Keeper.attach(memory_name(job), seat(self.rank)))
        self.pace = Pace(self.memory.pace)
        self.device = DeviceCopy()
        self._addresses: list[Address | None] = []
        self._is_closed = False
        try:
            self.copier: Copier = _copier(self.state, self.host)
            self.targets = self._claim()
            self.background = self._start()
        except BaseException:
            # A user that mends what was wrong and tries again finds the memory free.
            self._let_memory_go(is_wanted=any(self.memory.holdings))
            raise

    @property
    def host(self) -> Host:
        """The host tier. It is there in any case, since all deeper tiers are fed from it."""
        tier = self.tiers.get("host", Host())
        assert isinstance(tier, Host)
        return tier

    @property
    def peer(self) -> Peer | None:
        tier = self.tiers.get("peer")
        assert tier is None or isinstance(tier, Peer)
        return tier

    @property
    def machine(self) -> str:
        """The machine that this rank would be lost with. `PHALANX_MACHINE` tells it where names of hosts do not."""
        return os.environ.get("PHALANX_MACHINE") or socket.gethostname()

    def reports(self) -> list[Message]:
        """What the background process reports. If it has died, another one is started, and that is reported too."""
        return [] if self.background is None else self._heard(self.background.reports)

    def await_reports(self, deadline_s: float) -> list[Message]:
        """The same, but waits for a report until a moment of the monotonic clock."""
        background = self.background
        return [] if background is None else self._heard(lambda: background.wait(deadline_s))

    def introduce(self, addresses: Sequence[Address | None]) -> None:
        """Tells the background process where those of the other ranks are, if that has changed."""
        if self.background is not None and list(addresses) != self._addresses:
            self._addresses = list(addresses)
            self.background.order("addresses", addresses=self._addresses)

    def close(self, *, job_is_over: bool) -> None:
        """Ends what was started. If the job is over the memory is freed.

        Otherwise what was ordered is still written, and the memory is kept for the next trainer.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self.background is not None and job_is_over:
            self.background.close()
        elif self.background is not None:
            self.background.leave()
        self.copier.close()
        self._let_memory_go(is_wanted=not job_is_over)

    def _heard(self, listen: Callable[[], list[Message]]) -> list[Message]:
        try:
            return listen()
        except BackgroundGoneError as error:
            assert self.background is not None
            self.background.close()
            self.background = self._start()
            return [{"what": "died", "fault": f"{error}; another one was started"}]

    def _let_memory_go(self, *, is_wanted: bool) -> None:
        self.memory.close()
        if is_wanted:
            self.memory.keeper.close()
        else:
            self.memory.keeper.end()

    def _claim(self) -> list[Target]:
        """Takes the directories, so that another trainer that writes there is noticed, here or over there."""
        local, shared = self.tiers.get("local"), self.tiers.get("shared")
        if local is None and shared is None:
            return []
        # Loading this takes a second, which a trainer that is kept in memory alone need not wait for.
        from phalanx.train.checkpoint.store import Fence, claim, open_medium

        targets = []
        if isinstance(shared, Shared):
            medium = open_medium(shared.url, **shared.options)
            fence: Fence = self.agreement.decide("claiming the store", None, lambda words: claim(medium, self.job))
            all_ranks = tuple(range(self.world_size))
            targets.append(Target("shared", medium, fence, shared.keep, all_ranks, shared.timeout_s))
        if isinstance(local, Local):
            medium = open_medium(os.path.join(os.fspath(local.path), f"rank-{self.rank:05d}"))
            targets.append(Target("local", medium, claim(medium, self.job), local.keep, (self.rank,)))
        return targets

    def _start(self) -> Background | None:
        if self.peer is None and not self.targets:
            return None
        if not hasattr(self, "_token"):
            self._token = self.agreement.decide("starting", None, lambda words: new_token())
        background = Background(
            self.rank, self.world_size, reachable_host(), self._token, self.targets, self.memory.keeper.fileno()
        )
        self.memory.lend_to(background.lend, background.forget)
        self._addresses = []
        return background


def memory_name(job: str) -> str:
    """By what the memory of this trainer is found again, with its seat.

    Under the scheduler that is its task in this attempt: each task counts its seats from 0, several of them may be on
    one machine, and two servers of one machine may have jobs of the same number. The file of the gang tells attempts
    apart: that of the notice is replaced by `phalanx launch`, which gives ranks notices of its own.
    """
    attempt, task = os.environ.get("PHALANX_GANG_FILE"), os.environ.get("PHALANX_RANK")
    return f"{job} task {task} of {attempt}" if attempt and task else job


def seat(rank: int) -> int:
    """The place on this machine. Launchers may give a machine other ranks after a restart, but not other places."""
    return int(os.environ.get("LOCAL_RANK", rank))


def _by_name(tiers: Sequence[Tier]) -> dict[str, Tier]:
    by_name = {tier.name: tier for tier in tiers}
    if len(by_name) != len(tiers):
        raise PhalanxError(f"each tier may be given once, not {', '.join(tier.name for tier in tiers)}")
    host = by_name.get("host")
    if isinstance(host, Host) and host.slots < 2:
        raise PhalanxError(
            f"the host tier needs 2 slots or more, not {host.slots}: one stays whole while another is written"
        )
    return {name: by_name[name] for name in ORDER if name in by_name}


def _copier(state: State, host: Host) -> Copier:
    devices = {piece.tensor.device for piece in state.pieces() if piece.tensor.is_cuda}
    if not devices:
        return HostCopier()
    if len(devices) > 1:
        raise PhalanxError(f"the state of one rank lies on {len(devices)} devices; expected one")
    from phalanx.train.checkpoint.snapshots.stream import StreamCopier

    scratch = None if host.scratch_mb is None else host.scratch_mb << 20
    return StreamCopier(torch.device(devices.pop()), scratch)
