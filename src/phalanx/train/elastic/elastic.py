"""The loop of a training whose ranks keep their memory when others fail, come or leave."""

from __future__ import annotations

import signal
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal

import torch
import torch.distributed as dist

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint.ending.progress import Progress, ProgressReporter
from phalanx.train.elastic import transfer
from phalanx.train.elastic.agreement import Agreement, Recovery, Standing, agreed
from phalanx.train.elastic.device import Device
from phalanx.train.elastic.group import Group
from phalanx.train.elastic.seat import Watch, World, has_notice, take
from phalanx.train.launch import handover
from phalanx.train.launch.cause import Cause, Ending, cause_of
from phalanx.train.launch.progress import beat

TRIES = 3
"""How often in a row one rank tries a step again in its process after an error of its own."""

RECENT = 10


class StepUndoneError(Exception):
    """The step does not count; nothing of it was applied."""


class Elastic:
    """Runs steps that count once, on the ranks that there are.

        elastic = Elastic({"model": model, "optimizer": optimizer, "data": ledger}, folder="run")
        for step in elastic.steps(1000):
            with step:
                optimizer.zero_grad()
                loss_of(model, ledger).backward()
                step.average(model.parameters())
                step.commit()
                optimizer.step()
                ledger.commit()

    A step counts if all ranks of its world have voted for it. What is after `commit` runs once for each step that
    counts; a `with` block ends before it where the step does not, and the step comes again. Every part of the state has
    `state_dict` and `load_state_dict` and is equal on all ranks; a rank that is started has it from another. After a
    failure from which no rank goes on, and when the job is to end, it is saved in `folder`, from where the next start
    goes on. In a job of the scheduler the first rank reports the steps, and saves there when that asks. Where a part of
    it lies on a GPU, gradients go by NCCL, but with `backend="gloo"`: two ranks cannot share a GPU by NCCL.
    """

    def __init__(
        self,
        state: Mapping[str, Any],
        *,
        folder: str | Path | None = None,
        timeout_s: float = 60.0,
        backend: Literal["gloo"] | None = None,
        tell: Callable[[Recovery], None] | None = None,
    ) -> None:
        transfer.refuse_sharded(state)
        self._state = dict(state)
        self._folder = None if folder is None else Path(folder) / "after-failure"
        self._tell = tell or print_recovery
        self._group = Group(timeout_s, Device.of(self._state) if backend is None else None)
        self._watch = Watch(self._group.break_up)
        self._standing = Standing(0, keeps=False)
        self._agreement: Agreement | None = None
        """What is still to be done of it: some ranks have their state from others before the next step."""
        self._is_broken = True
        self._is_own_failure = False
        self._is_asked = False
        self._parts_after_step = False
        self._tries = 0
        self._busy: deque[float] = deque(maxlen=RECENT)
        self.is_leaving = False
        """Whether this rank was told to end."""
        if self._folder is not None:
            self._standing = Standing(transfer.load_saved(self._folder, self._state), keeps=False)
        self._durable_step = self.completed
        self._is_save_asked = False
        self._reporter = ProgressReporter(self._on_request)
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_signal)
        handover.declare()

    @property
    def completed(self) -> int:
        """How many steps count, as far as this rank has them."""
        return self._standing.completed

    @property
    def rank(self) -> int:
        return self._group.world.rank

    @property
    def world_size(self) -> int:
        return self._group.world.size

    def steps(self, count: int) -> Iterator[Step]:
        """Steps until so many count, each as often as it takes; fewer where this rank is told to leave."""
        while not self.is_leaving:
            if self._is_broken and not self._join():
                break
            if self._agreement is not None and not self._catch_up(self._agreement):
                continue
            if self.completed >= count:
                if self._all_are_through():
                    break
                continue
            yield Step(self, self.completed)
        self._end()

    def _join(self) -> bool:
        """Meets the ranks of the newest world and agrees with them; False where this rank is to leave first."""
        while self._group.meet(self._must_leave, self._is_own_failure):
            take(self._group.world)
            self._watch.begin(self._group.world.epoch)
            try:
                standings = [Standing.of(said) for said in self._gathered(self._standing.said())]
            except RuntimeError:
                self._is_own_failure = False
                continue
            self._agreement = agreed(standings)
            self._is_broken = self._is_own_failure = False
            if self._group.world.rank == self._agreement.sources[0]:
                self._tell(self._agreement.recovery_in(self._group.world.epoch))
            return True
        self.is_leaving = True
        return False

    def _catch_up(self, agreement: Agreement) -> bool:
        """Ranks that are behind get the state of those that are not; False where the world broke meanwhile."""
        rank, is_behind = self.rank, self.rank in agreement.behind
        served = [each for each in agreement.behind if agreement.source_of(each) == rank]
        content = transfer.packed(self._state, self.completed) if served else b""
        try:
            if is_behind:
                content = transfer.receive(agreement.source_of(rank))
            for each in served:
                transfer.send(content, each)
        except RuntimeError:
            self._break()
            return False
        # What is raised here is the program's: the state of a peer does not fit its own.
        completed = transfer.unpack(content, self._state) if is_behind else self.completed
        self._standing = Standing(completed, keeps=True)
        self._agreement = None
        return True

    def _vote(self) -> None:
        """Returns if the step counts, else raises; the state is that before the step."""
        self._standing = Standing(self.completed, keeps=True, has_voted=True)
        try:
            self._exchange()
        except RuntimeError:
            self._break()
            if not self._join() or self._agreement is None or self.rank not in self._agreement.finishing:
                self._standing = Standing(self.completed, keeps=True)
                raise StepUndoneError from None
        self._tries = 0

    def _exchange(self) -> None:
        """All ranks of the world have come here; they part after it, if any knows of another world or is to leave."""
        leaves = self._must_leave()
        knows = World.newest().epoch > self._group.world.epoch
        said = torch.tensor([int(knows or leaves)])
        dist.all_reduce(said, op=dist.ReduceOp.MAX)
        self._parts_after_step = bool(said.item())
        self.is_leaving = leaves

    def _done(self, busy_s: float) -> None:
        """The step is applied."""
        self._standing = Standing(self.completed + 1, keeps=True)
        self._busy.append(busy_s)
        beat(self.completed, statistics.median(self._busy))
        self._report()
        if self._parts_after_step:
            self._parts_after_step = False
            self._break()

    def _report(self) -> None:
        """The first rank tells the scheduler how far all are, and saves what all have where it was asked for."""
        if self.rank != 0 or not self._reporter.is_on:
            return
        is_asked, self._is_save_asked = self._is_save_asked, False
        if is_asked:
            self._save()
        self._reporter.tell(Progress(self.completed, self._durable_step, 0), at_once=is_asked)

    def _save(self) -> None:
        if self._folder is not None:
            transfer.save(self._folder, self._state, self.completed)
            self._durable_step = self.completed

    def _all_are_through(self) -> bool:
        """No rank ends while another may need its state."""
        try:
            dist.barrier()
        except RuntimeError:
            self._break()
            return False
        return True

    def _break(self) -> None:
        self._is_broken = True
        self._group.leave()

    def _failed(self, error: Exception) -> bool:
        """What becomes of an error within a step that does not count yet; whether the step is tried again here."""
        if isinstance(error, StepUndoneError):
            return True
        cause = judged(error)
        self._break()
        if cause.is_cascade:
            return True
        # A process whose context of CUDA has had an error can compute nothing more.
        if cause.is_program or cause.kind == "cuda" or self._tries == TRIES:
            return False
        self._tries += 1
        self._is_own_failure = True
        print(f"phalanx: elastic: rank {self.rank}: {cause.text}: the step is tried again", file=sys.stderr, flush=True)  # noqa: T201
        return True

    def _gathered(self, own: list[int]) -> list[list[int]]:
        found = [torch.zeros(len(own), dtype=torch.int64) for _ in range(self.world_size)]
        dist.all_gather(found, torch.tensor(own))
        return [[int(value) for value in each] for each in found]

    def _must_leave(self) -> bool:
        return self._is_asked or has_notice()

    def _on_request(self, until_s: float, ends: bool) -> None:
        if ends:
            self._is_asked = True
        else:
            self._is_save_asked = True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._is_asked = True

    def _end(self) -> None:
        handover.withdraw()
        self._watch.close()
        self._group.close()
        if self.is_leaving and self._standing.keeps:
            self._save()
            self._report()
        self._reporter.close()


class Step:
    """One try of one step, as a `with` block."""

    def __init__(self, elastic: Elastic, number: int) -> None:
        self._elastic = elastic
        self.number = number
        self._began_s = time.monotonic()
        self._busy_s: float | None = None
        self._has_committed = False

    def average(self, parameters: Any) -> None:
        """Has each gradient be the mean of those of all ranks; equal to the bit in a world of equal size."""
        self._waits()
        gradients = [each.grad for each in parameters if each.grad is not None]
        flat = torch.cat([each.flatten() for each in gradients])
        dist.all_reduce(flat)
        self._elastic._group.await_device()
        flat /= dist.get_world_size()
        first = 0
        for gradient in gradients:
            gradient.copy_(flat[first : first + gradient.numel()].view_as(gradient))
            first += gradient.numel()

    def commit(self) -> None:
        """Returns if the step counts: all ranks of the world have come this far. Else the block ends here."""
        self._waits()
        self._elastic._vote()
        self._has_committed = True

    def _waits(self) -> None:
        """What comes now depends on the other ranks."""
        if self._busy_s is None:
            self._busy_s = time.monotonic() - self._began_s

    def __enter__(self) -> Step:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, Exception) and not self._has_committed:
            return self._elastic._failed(error)
        if error is not None:
            return False
        if not self._has_committed:
            raise PhalanxError(
                f"step {self.number} ended without step.commit(): call it before the optimizer's step, so that all "
                "ranks apply the step or none"
            )
        self._elastic._done(self._busy_s or 0.0)
        return False


def judged(error: Exception) -> Cause:
    return cause_of(Ending(0, "", time.time(), error=type(error).__name__, message=str(error)))


def print_recovery(recovery: Recovery) -> None:
    print(f"phalanx: elastic: {recovery}", file=sys.stderr, flush=True)  # noqa: T201
