"""The process group of a world: met for, used, left, and met for again in the same process."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from phalanx.errors import PhalanxError
from phalanx.train.elastic.device import DEVICE_BACKEND, Device
from phalanx.train.elastic.seat import World

POLL_S = 0.005
REACH_S = 2.0
"""How long one attempt to reach the store of a world may take; the newest world is looked at between attempts."""

AGAIN_S = 0.5
"""After so long a store that was lost is sought again."""

QUIET_S = 5.0
"""A world that broke is met for again if the launcher has said nothing of it by then."""


class Group:
    """At most one at a time. A round is one meeting of the ranks of a world; what breaks a world begins the next."""

    def __init__(self, timeout_s: float, device: Device | None = None) -> None:
        """With a device, tensors on it go by NCCL, and those of the host by gloo still."""
        self._timeout = timedelta(seconds=timeout_s)
        self._device = device
        self._store: TCPStore | None = None
        self._served: TCPStore | None = None
        """What rank 0 holds for the others, also when it has lost its own connection to it."""
        self._before: tuple[TCPStore | None, ...] = ()
        self._lost_at = -AGAIN_S
        self._world: World | None = None
        self._round = -1
        self._left_at = 0.0
        self._lock = threading.Lock()
        """Held while descriptors are used that `leave` gives back."""
        self._connections: list[int] = []

    @property
    def world(self) -> World:
        assert self._world is not None
        return self._world

    def meet(self, should_stop: Callable[[], bool], is_own_failure: bool) -> bool:
        """Waits for the ranks of the newest world, and is one of its group; False where this rank is to stop first.

        The world may be the one before, in another round: if this rank left it for a failure that it survived, or the
        launcher says nothing.
        """
        self.leave()
        while not should_stop():
            world = World.newest()
            if self._world is None or world.epoch != self._world.epoch:
                # Held for ranks that have not heard of the new world yet.
                self._before = (self._store, self._served)
                self._store, self._served, self._world, self._round = None, None, world, -1
                self._lost_at = -AGAIN_S
            if self._is_there(world):
                begins = is_own_failure or time.monotonic() > self._left_at + QUIET_S
                if self._met(world, begins, should_stop):
                    return True
            time.sleep(POLL_S)
        return False

    def _is_there(self, world: World) -> bool:
        """Whether the store of the world is reached. One that was lost is sought again after a while: where it is gone
        another world comes, and else it was the network.
        """
        if self._store is not None:
            return True
        if time.monotonic() < self._lost_at + AGAIN_S:
            return False
        with suppress(RuntimeError):
            if world.rank == 0 or answers(world.address, world.port):
                self._reach(world)
                return True
        if world.rank == 0 and self._served is None:
            raise PhalanxError(f"rank 0 cannot listen at {world.address}:{world.port}: the port was taken meanwhile")
        return False

    def _met(self, world: World, begins: bool, should_stop: Callable[[], bool]) -> bool:
        """Whether all ranks came to a further round and are one group now."""
        try:
            number = self._next_round(begins)
            if number == self._round or not self._all_came(world, number, should_stop):
                return False
        except RuntimeError:
            self._store, self._lost_at = None, time.monotonic()
            return False
        self._round = number
        with suppress(RuntimeError):
            self._begin(world, number)
            return True
        self.leave()
        return False

    def leave(self) -> None:
        """Closes the connections, by which the others know."""
        self._left_at = time.monotonic()
        with self._lock:
            self._connections = []
        if dist.is_initialized():
            if self._device is not None:
                # What waits on the device for a rank that is gone would wait for ever.
                self._device.abort()
            dist.destroy_process_group()

    def break_up(self) -> None:
        """Has all that waits in the group fail; for another thread than the one that waits."""
        with self._lock:
            for descriptor in self._connections:
                with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
        if self._device is not None:
            self._device.give_up()

    def await_device(self) -> None:
        """Waits for what this process has begun on the device; RuntimeError where the world breaks meanwhile."""
        if self._device is not None:
            self._device.wait(self._timeout.total_seconds())

    def close(self) -> None:
        self.leave()
        self._store = self._served = None

    def _reach(self, world: World) -> None:
        reach, serves = timedelta(seconds=REACH_S), world.rank == 0 and self._served is None
        self._store = TCPStore(world.address, world.port, is_master=serves, timeout=reach, wait_for_workers=False)
        if serves:
            self._served = self._store

    def _next_round(self, begins: bool) -> int:
        """The round that the ranks of this world meet in; the next one, if this rank may begin it."""
        assert self._store is not None
        if self._round >= 0 and begins:
            # Of several that begin it, one does.
            self._store.compare_set("round", str(self._round), str(self._round + 1))
        return int(self._store.compare_set("round", "", "0"))

    def _all_came(self, world: World, number: int, should_stop: Callable[[], bool]) -> bool:
        assert self._store is not None
        self._store.set(f"{number}/{world.rank}", "")
        wanted = [f"{number}/{rank}" for rank in range(world.size)]
        while not self._store.check(wanted):
            if World.newest().epoch != world.epoch or should_stop() or self._next_round(begins=False) != number:
                return False
            time.sleep(POLL_S)
        return True

    def _begin(self, world: World, number: int) -> None:
        assert self._store is not None
        self._store.set_timeout(self._timeout)
        before = open_connections()
        store = PrefixStore(f"group/{number}", self._store)
        if self._device is not None:
            self._device.prepare()
        backend = "gloo" if self._device is None else DEVICE_BACKEND
        dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=self._timeout)
        # The first collective opens what connections are not open yet.
        dist.all_reduce(torch.zeros(1))
        self._connections = sorted(open_connections() - before)
        if self._device is not None:
            self._device.connect()
            self.await_device()
        self._store.set_timeout(timedelta(seconds=REACH_S))


def open_connections() -> set[int]:
    """The descriptors of this process that are connections; gloo ends the process if what it listens at fails."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if os.readlink(each).startswith("socket:") and _is_connection(int(each.name)):
                found.add(int(each.name))
    return found


def _is_connection(descriptor: int) -> bool:
    with socket.socket(fileno=os.dup(descriptor)) as found:
        return found.family in (socket.AF_INET, socket.AF_INET6) and bool(found.getpeername())


def answers(address: str, port: int) -> bool:
    """Whether something listens there: torch's store writes pages of warnings where nothing does."""
    with suppress(OSError), socket.create_connection((address, port), REACH_S):
        return True
    return False
