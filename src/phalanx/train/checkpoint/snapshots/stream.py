"""Snapshots of a state in CUDA memory: copied beside the computation, by the device's copy engine.

A snapshot begins when `optimizer.step` has been issued, and must be over when the next `optimizer.step` begins to
change what it copies. In between, forward and backward only read parameters and moments, for the time W. The bus moves
B bytes a second, so B·W bytes of the S bytes of state get out in time. For the rest there are two ways:

* **staged**: H bytes of device memory, the scratch, take a copy within milliseconds, which drains to the host
  afterwards, also while the optimiser runs. H is chosen so that nothing has to wait, at most half of S.
* **lean**: with little scratch, the fence holds the optimiser back until the rest is copied: max(0, (S − H)/B − W).

Only the optimiser's stream waits at the fence; the processor goes on issuing work.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import isfinite
from operator import attrgetter
from statistics import median
from typing import Any

import torch

from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.host.slot import EMPTY, Slot
from phalanx.train.checkpoint.snapshots.arrangement import DATA_OFFSET, Entry
from phalanx.train.checkpoint.snapshots.moves import Leg, Moves, cut_of, moves_of, stretches
from phalanx.train.checkpoint.snapshots.refill import refill
from phalanx.train.checkpoint.snapshots.snapshot import Sitting, Taken, refusal

SCRATCH_SHARE_MAX = 0.5
SCRATCH_MARGIN = 1.05
"""More than the estimate says, since bus and computation get in each other's way a little."""
HBM_SPARE_BYTES = 1 << 30
WINDOWS_KEPT = 32
ALIGNMENT = 512
PROBE_BYTES = 256 << 20
STALL_WORTH_MENDING_S = 0.001
IS_CUDA = attrgetter("is_cuda")
PIN_THREADS = max(1, min(8, (os.cpu_count() or 1) // 2))


@dataclass(slots=True)
class Flight:
    """A snapshot on its way."""

    sitting: Sitting
    sources: list[torch.UntypedStorage]
    norms: torch.Tensor | None
    start: torch.cuda.Event
    safe: torch.cuda.Event
    done: torch.cuda.Event
    at_fence: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
    landed: threading.Event = field(default_factory=threading.Event)


class StreamCopier:
    """Copies on streams of its own, with `scratch_bytes` of device memory, or as much as turns out to be needed."""

    def __init__(self, device: torch.device, scratch_bytes: int | None = None) -> None:
        self._device = device
        self._scratch_fixed = scratch_bytes
        self._scratch = torch.empty(0, dtype=torch.uint8, device=device)
        self._drain = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._stage = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._flight: Flight | None = None
        self._clock = Windows()
        self._bus_bytes_s = 0.0
        self._pinning_s = 0.0
        self._finished: list[Taken] = []
        self._moves: dict[str, tuple[tuple[list[torch.Tensor], list[bool], int, int], Moves]] = {}
        self._pool = ThreadPoolExecutor(PIN_THREADS, "pin", torch.cuda.set_device, (device,))
        self._landings: queue.SimpleQueue[Flight | None] = queue.SimpleQueue()
        threading.Thread(target=self._land_all, daemon=True, name="snapshots").start()

    def begin(self, sitting: Sitting) -> None:
        self._pin(sitting.slot)
        end = DATA_OFFSET + sitting.slot.header.data_bytes
        self._size_scratch(sitting)
        on_device = list(map(IS_CUDA, sitting.tensors))
        cut = cut_of(sitting.record.entries, on_device, self._scratch.numel())
        main = torch.cuda.current_stream(self._device)
        # The scratch may still be draining from the snapshot before.
        self._stage.wait_stream(self._drain)
        moves = self._moves_of(sitting, on_device, cut)
        # A tensor whose memory training gives up meanwhile must not lose it to another before it is copied.
        sources = list(map(torch.Tensor.untyped_storage, sitting.tensors))
        flight = Flight(sitting, sources, None, _event(), _event(), _event())
        moves.on_host.run(sitting.tensors)
        self._stage.wait_stream(main)
        self._drain.wait_stream(main)
        with torch.cuda.stream(self._stage):
            _run_hasty(moves.staged_hasty, sitting.tensors, main)
            if sitting.refuse_nan:
                flight.norms = _norms(sitting.tensors)
            moves.staged_calm.run(sitting.tensors)
        with torch.cuda.stream(self._drain):
            flight.start.record()
            _run_hasty(moves.direct_hasty, sitting.tensors, main)
            sitting.halfway()
            moves.direct_calm.run(sitting.tensors)
            self._drain.wait_stream(self._stage)
            flight.safe.record()
            for start, stop in stretches(cut, end):
                sitting.slot.segment.bytes[start:stop].copy_(self._scratch[start - cut : stop - cut], non_blocking=True)
            flight.done.record()
        self._flight = flight
        self._landings.put(flight)

    def fence(self) -> None:
        main = torch.cuda.current_stream(self._device)
        self._clock.close(main)
        flight = self._flight
        if flight is None:
            return
        if flight.at_fence is not None:
            main.wait_event(flight.safe)
            return
        before, after = _event(), _event()
        before.record(main)
        main.wait_event(flight.safe)
        after.record(main)
        flight.at_fence = (before, after)

    def mark_step(self) -> None:
        self._clock.open(torch.cuda.current_stream(self._device))

    def take_finished(self, wait: bool) -> list[Taken]:
        if wait and self._flight is not None:
            self._flight.landed.wait()
        finished, self._finished = self._finished, []
        for taken in finished:
            self._learn(taken)
        return finished

    def prepare(self, slots: Sequence[Slot]) -> None:
        """Begins to pin slots, ahead of the first snapshot."""
        # Slots that these replace would stay in memory for what looks at them.
        self._moves.clear()
        for slot in slots:
            slot.segment.pin(self._pool, is_fresh=slot.header.state == EMPTY)

    def is_preparing(self, slots: Sequence[Slot]) -> bool:
        return any(slot.segment.is_being_pinned for slot in slots)

    def await_prepared(self, slots: Sequence[Slot]) -> None:
        began_s = time.monotonic()
        for slot in slots:
            slot.segment.await_end_of_pinning()
        self._pinning_s += time.monotonic() - began_s

    def fill(self, pieces: Sequence[Piece], entries: Sequence[Entry], slot: Slot) -> None:
        torch.cuda.current_stream(self._device).synchronize()
        refill(self._device, pieces, entries, slot)

    def facts(self) -> dict[str, Any]:
        return {
            "scratch_bytes": self._scratch.numel(),
            "bus_bytes_s": self._bus_bytes_s,
            "window_s": self._clock.window_s,
            "waited_for_pinning_s": self._pinning_s,
        }

    def close(self) -> None:
        self._landings.put(None)
        self._pool.shutdown(cancel_futures=True)
        self._drain.synchronize()
        self._flight = None
        self._moves.clear()
        self._scratch = torch.empty(0, dtype=torch.uint8, device=self._device)

    def _pin(self, slot: Slot) -> None:
        if not slot.segment.is_pinned:
            began_s = time.monotonic()
            slot.segment.pin(self._pool, is_fresh=False)
            slot.segment.await_pins()
            self._pinning_s += time.monotonic() - began_s
        if not self._bus_bytes_s:
            self._bus_bytes_s = self._probe(slot)

    def _probe(self, slot: Slot) -> float:
        """How fast the bus is, before any snapshot has told."""
        # Within one pinned stretch: CUDA refuses a copy that crosses into the next.
        start, stop = next(stretches(DATA_OFFSET, DATA_OFFSET + PROBE_BYTES))
        goal = slot.segment.bytes[start:stop]
        source = torch.empty(goal.numel(), dtype=torch.uint8, device=self._device)
        with torch.cuda.stream(self._drain):
            goal.copy_(source, non_blocking=True)
            before, after = _event(), _event()
            before.record()
            goal.copy_(source, non_blocking=True)
            after.record()
        after.synchronize()
        return float(goal.numel() / (before.elapsed_time(after) / 1e3))

    def _size_scratch(self, sitting: Sitting) -> None:
        """Takes as much scratch as lets the rest get out in time; once taken, it is kept."""
        total = sitting.slot.header.data_bytes
        if self._scratch_fixed is not None:
            wanted = min(self._scratch_fixed, total)
        else:
            in_time = self._bus_bytes_s * self._clock.window_s
            wanted = min(int(SCRATCH_SHARE_MAX * total), max(0, int((total - in_time) * SCRATCH_MARGIN)))
        wanted = -(-wanted // ALIGNMENT) * ALIGNMENT
        self._grow_scratch(wanted)

    def _grow_scratch(self, wanted: int) -> None:
        if wanted <= self._scratch.numel():
            return
        free = torch.cuda.mem_get_info(self._device)[0] - HBM_SPARE_BYTES + self._scratch.numel()
        size = min(wanted, max(self._scratch.numel(), free // ALIGNMENT * ALIGNMENT))
        if size > self._scratch.numel():
            self._drain.synchronize()
            # Views of the old scratch would keep its memory.
            self._moves.clear()
            self._scratch = torch.empty(0, dtype=torch.uint8, device=self._device)
            self._scratch = torch.empty(size, dtype=torch.uint8, device=self._device)

    def _moves_of(self, sitting: Sitting, on_device: list[bool], cut: int) -> Moves:
        """The copies into this slot; those of the last snapshot there, while nothing has changed but values."""
        arrangement = sitting.record.entries
        known = self._moves.get(sitting.slot.name)
        key = (sitting.slot.tensors(arrangement), on_device, sitting.calm, cut)
        if known is None or known[0][0] is not key[0] or known[0][1:] != key[1:]:
            made = moves_of(arrangement, on_device, sitting.calm, sitting.slot, self._scratch, cut)
            known = self._moves[sitting.slot.name] = (key, made)
        return known[1]

    def _land_all(self) -> None:
        torch.cuda.set_device(self._device)
        while (flight := self._landings.get()) is not None:
            self._land(flight)

    def _land(self, flight: Flight) -> None:
        flight.done.synchronize()
        sitting = flight.sitting
        seconds = flight.start.elapsed_time(flight.done) / 1e3
        fault = None
        if flight.norms is not None and (bad := _bad_names(sitting, flight.norms)):
            fault = refusal(sitting.record.step, bad)
            sitting.slot.clear()
        else:
            sitting.slot.finish(sitting.record)
        blocked_s = 0.0
        if flight.at_fence is not None:
            before, after = flight.at_fence
            after.synchronize()
            blocked_s = before.elapsed_time(after) / 1e3
        # Nothing of the state is held on to once it is copied.
        flight.sources.clear()
        sitting.tensors.clear()
        self._finished.append(Taken(sitting.record.step, blocked_s, seconds, sitting.record.entries.nbytes, fault))
        flight.landed.set()

    def _learn(self, taken: Taken) -> None:
        self._bus_bytes_s = taken.bytes / taken.seconds if taken.seconds else self._bus_bytes_s
        if self._scratch_fixed is None and taken.blocked_s > STALL_WORTH_MENDING_S:
            more = int(taken.blocked_s * self._bus_bytes_s * SCRATCH_MARGIN)
            most = int(SCRATCH_SHARE_MAX * taken.bytes)
            self._grow_scratch(min(self._scratch.numel() + more, most) // ALIGNMENT * ALIGNMENT)


class Windows:
    """The time from the end of one `optimizer.step` to the beginning of the next, on the device's clock."""

    def __init__(self) -> None:
        self._opened: torch.cuda.Event | None = None
        self._pending: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._measured_s: list[float] = []

    def open(self, stream: torch.cuda.Stream) -> None:
        self._opened = _event()
        self._opened.record(stream)

    def close(self, stream: torch.cuda.Stream) -> None:
        if self._opened is not None:
            closed = _event()
            closed.record(stream)
            self._pending = [*self._pending[-WINDOWS_KEPT:], (self._opened, closed)]
            self._opened = None

    @property
    def window_s(self) -> float:
        """The median of the last ones; 0 if none is known."""
        while self._pending and self._pending[0][1].query():  # type: ignore[no-untyped-call]
            opened, closed = self._pending.pop(0)
            self._measured_s.append(opened.elapsed_time(closed) / 1e3)
        self._measured_s = self._measured_s[-WINDOWS_KEPT:]
        return median(self._measured_s) if self._measured_s else 0.0


def _run_hasty(leg: Leg, tensors: Sequence[torch.Tensor], main: torch.cuda.Stream) -> None:
    """What the forward pass may change, such as buffers, is copied before the main stream goes on."""
    if leg:
        leg.run(tensors)
        main.wait_stream(torch.cuda.current_stream())


def _event() -> torch.cuda.Event:
    # One that the processor sleeps on, not spins on.
    return torch.cuda.Event(enable_timing=True, blocking=True)  # type: ignore[no-untyped-call]


def _norms(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The largest absolute value of each tensor: NaN or infinite where one of its values is."""
    norms = torch.stack([norm.float() for norm in torch._foreach_norm(_floats(tensors), torch.inf)])
    return torch.empty(norms.shape, pin_memory=True).copy_(norms, non_blocking=True)


def _floats(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach() for tensor in tensors if _has_norm(tensor)]


def _has_norm(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda and tensor.dtype.is_floating_point and tensor.numel() > 0


def _bad_names(sitting: Sitting, norms: torch.Tensor) -> list[str]:
    pairs = zip(sitting.record.entries, sitting.tensors, strict=True)
    names = [entry.fqn for entry, tensor in pairs if _has_norm(tensor)]
    return [name for name, norm in zip(names, norms.tolist(), strict=True) if not isfinite(norm)]
