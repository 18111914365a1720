"""Host memory is pinned while training goes on. CUDA is played by a function that takes as long as it is told."""

from __future__ import annotations

import itertools
import os
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint import Checkpointer, Host, rank_context
from phalanx.train.checkpoint.host import segment
from phalanx.train.checkpoint.host.segment import Segment
from phalanx.train.checkpoint.host.slot import Slot
from phalanx.train.checkpoint.snapshots.snapshot import HostCopier

REFUSED = 2


class Cudart:
    """Registers memory once it is released, with the result that it was given."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.result = 0
        self.registered = 0

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        self.released.wait()
        self.registered += size
        return self.result

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        return 0


class PinningCopier(HostCopier):
    """Copies at once, into memory that is pinned first, as that for a GPU is."""

    def __init__(self, cudart: Cudart) -> None:
        super().__init__()
        self._cudart = cudart
        self._pool = ThreadPoolExecutor(2)

    def prepare(self, slots: Sequence[Slot]) -> None:
        for slot in slots:
            slot.segment.pin(self._pool, is_fresh=True)

    def is_preparing(self, slots: Sequence[Slot]) -> bool:
        return any(slot.segment.is_being_pinned for slot in slots)

    def await_prepared(self, slots: Sequence[Slot]) -> None:
        # It ends while it is being waited for.
        self._cudart.released.set()
        for slot in slots:
            slot.segment.await_end_of_pinning()

    def close(self) -> None:
        self._cudart.released.set()
        self._pool.shutdown()


@pytest.fixture
def cudart(monkeypatch: pytest.MonkeyPatch) -> Cudart:
    fake = Cudart()
    monkeypatch.setattr(segment, "_cudart", lambda: fake)
    return fake


@pytest.fixture
def checkpointer(cudart: Cudart, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checkpointer]:
    monkeypatch.setattr(rank_context, "_copier", lambda state, host: PinningCopier(cudart))
    job = f"test-{uuid.uuid4()}"
    with Checkpointer({"model": torch.nn.Linear(2, 2)}, [Host(every=1)], job=job, signals=()) as made:
        yield made


def snapshots(checkpointer: Checkpointer) -> list[int]:
    return checkpointer._station.memory.holdings.steps().get(0, [])


def test_training_goes_on_while_memory_is_being_pinned_and_what_is_due_is_taken_afterwards(
    checkpointer: Checkpointer, cudart: Cudart
) -> None:
    for _ in range(3):
        assert checkpointer.step()
    assert snapshots(checkpointer) == []
    facts = checkpointer.describe()
    assert (facts["postponed"], facts["skipped"], list(checkpointer.faults)) == (3, 0, [])
    cudart.released.set()
    for slot in checkpointer._station.memory.own(2):
        slot.segment.await_end_of_pinning()
    checkpointer.step()
    assert snapshots(checkpointer) == [4]
    assert cudart.registered == sum(slot.segment.size for slot in checkpointer._station.memory.own(2))


def test_a_save_that_is_asked_for_waits_until_memory_is_pinned(checkpointer: Checkpointer) -> None:
    checkpointer.step()
    assert snapshots(checkpointer) == []
    assert checkpointer.save()
    assert snapshots(checkpointer) == [1]


def test_a_notice_waits_until_memory_is_pinned(checkpointer: Checkpointer) -> None:
    checkpointer.step()
    checkpointer.notify("a test", within_s=60)
    while not checkpointer.acknowledgements:
        checkpointer.step()
    assert snapshots(checkpointer)


def test_memory_that_cuda_refuses_to_pin_is_not_taken_for_pinned(cudart: Cudart) -> None:
    fd = os.memfd_create("slot")
    os.ftruncate(fd, 1 << 16)
    memory = Segment("own-0", fd)
    cudart.result = REFUSED
    with ThreadPoolExecutor(1) as pool:
        memory.pin(pool, is_fresh=True)
        assert memory.is_being_pinned
        cudart.released.set()
        memory.await_end_of_pinning()
        assert not memory.is_pinned
        with pytest.raises(PhalanxError, match="CUDA refused to pin"):
            memory.await_pins()


@pytest.mark.parametrize(("is_awaited", "pauses"), [(False, [2.0] * 4), (True, [])])
def test_the_driver_is_left_to_training_after_each_piece_unless_a_snapshot_waits(
    is_awaited: bool, pauses: list[float], cudart: Cudart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that moves by two seconds with each look: every piece takes as long."""
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=itertools.count(0.0, 2.0).__next__, sleep=slept.append)
    monkeypatch.setattr(segment, "time", clock)
    monkeypatch.setattr(segment, "PIN_BYTES", 1 << 14)
    fd = os.memfd_create("slot")
    os.ftruncate(fd, 1 << 16)
    memory = Segment("own-0", fd)
    waiter = threading.Thread(target=memory.await_pins)
    with ThreadPoolExecutor(2) as pool:
        memory.pin(pool, is_fresh=True)
        if is_awaited:
            waiter.start()
            while not memory.is_awaited:
                time.sleep(0)
        cudart.released.set()
    if is_awaited:
        waiter.join()
    assert memory.is_pinned
    assert (cudart.registered, slept) == (1 << 16, pauses)
