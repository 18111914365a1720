"""The one object a training loop needs."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import torch

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint.contents.state import State
from phalanx.train.checkpoint.copies.agreement import Agreement
from phalanx.train.checkpoint.ending.last_resort import LastResort
from phalanx.train.checkpoint.ending.notice import Acknowledgement, MaxRun, Notice, Notices
from phalanx.train.checkpoint.ending.progress import Progress, ProgressReporter
from phalanx.train.checkpoint.loading import Loaded, Loader
from phalanx.train.checkpoint.rank_context import RankContext
from phalanx.train.checkpoint.saving import Saver
from phalanx.train.checkpoint.schedule import Rates
from phalanx.train.checkpoint.tiers import Host, Local, Shared, Tier
from phalanx.train.launch.progress import beat

CLOSE_TIMEOUT_S = 600.0
LOST_SHOWN_MAX = 16
"""For up to how many machines lost at once the chance of recovery is told."""

log = logging.getLogger("phalanx.checkpoint")


class Checkpointer:
    """Keeps the state of a training in tiers, and brings it back.

        state = {"model": model, "optimizer": optimizer, "rng": RngState()}
        with Checkpointer(state, tiers=[Host(), Shared(path)]) as ckpt:
            ckpt.load()
            while ckpt.completed < steps:
                train_one_step()
                if not ckpt.step():
                    break

    `state` are named parts: modules, optimisers, tensors, anything with `state_dict` and `load_state_dict`; a part with
    `per_rank = True` is kept for each rank apart. `tiers` are any of `Device`, `Host`, `Peer`, `Local` and `Shared`;
    without them, host memory and `PHALANX_CHECKPOINT_DIR`. `job` names the run across restarts; by default it is
    `PHALANX_JOB_ID`, else it follows from the directory of the most durable tier. `rates` say how often things fail.
    `refuse_nan` keeps no state with NaN or infinity in it. `timeout_s` is how long ranks wait for one another.
    `signals` are taken as notices to save and end. `warnings` are asked between steps for the seconds left before this
    machine is taken away. `trusted` lets stored values be of any class.

    With several ranks, the process group must be initialised first.
    """

    def __init__(
        self,
        state: Mapping[str, Any],
        tiers: Sequence[Tier] | None = None,
        *,
        job: str | None = None,
        rates: Rates | None = None,
        refuse_nan: bool = False,
        timeout_s: float = 60.0,
        signals: Sequence[int] = (signal.SIGTERM,),
        warnings: Sequence[Callable[[], float | None]] = (),
        trusted: bool = False,
        agreement: Agreement | None = None,
    ) -> None:
        chosen = list(tiers) if tiers is not None else default_tiers()
        agreement = agreement or Agreement.of_this_job(timeout_s)
        self._station = RankContext(state, chosen, job or job_name(chosen), agreement)
        self._saver = Saver(self._station, rates or Rates(), refuse_nan)
        self._loader = Loader(self._station, trusted)
        self._notices = Notices(agreement.store)
        self._notices.listen(signals)
        self._last_resort = LastResort(agreement.presence, signals)
        if agreement.world_size > 1:
            self._last_resort.set()
        self._warnings = warnings
        self._max_run = MaxRun()
        self._reporter = ProgressReporter(self._on_request)
        self._hooks = [o.register_step_pre_hook(self._before_optimizer) for o in self._station.state.optimizers]
        self._hooks += self._pace_hooks(self._station.state)
        self._restart_s = 0.0
        self._stopping = 0
        self._is_ready = False
        self.completed = 0
        self.acknowledgements: list[Acknowledgement] = []

    def step(self, metrics: Mapping[str, float] | None = None) -> bool:
        """Called at the end of each step, after the optimiser: saves what is due. Whether training should go on.

        `metrics` go with the step into durable tiers, where retention may choose by them. After a notice that ends the
        job has been served, the answer is False; a loop that goes on all the same is ended by the signal it was sent.
        """
        if self._stopping:
            self._end_as_asked()
        self.completed += 1
        beat(self.completed)
        self._station.copier.mark_step()
        self._saver.step_ended()
        self._saver.hear()
        self._ask_warnings()
        if not self._is_ready:
            self._make_ready()
        notice = self._notices.due(self.completed)
        if notice is not None:
            self._serve(notice, metrics or {})
        else:
            due = self._saver.schedule.due(self.completed)
            if due:
                self._save(due, metrics or {})
        # A save that was asked for is waited for, so that it is done is told at once.
        self._report(metrics or {}, at_once=notice is not None)
        return not self._stopping

    def load(self) -> Loaded | None:
        """Brings back the newest state that all ranks can have, each from its nearest tier; None if there is none."""
        loaded = self._loader.load()
        if loaded is None:
            self._saver.resume(0, {})
            return None
        self.completed = loaded.step
        self._restart_s = loaded.seconds
        self._saver.resume(loaded.step, self._loader.committed_upto(loaded.step))
        self._say_if_it_fails(lambda: self._saver.copy_again(loaded.step))
        log.info("step %d is back, from %s in %.2f s", loaded.step, loaded.tier, loaded.seconds)
        return loaded

    def save(self, metrics: Mapping[str, float] | None = None) -> bool:
        """Saves to all tiers now; whether it goes to all of them. All ranks must call it after the same step.

        A tier that is busy with the step before is left out, which a line of the log says: `wait` first to have all.
        """
        saver = self._saver
        saver.await_room()
        late = Counter(saver.late)
        taken = self._save(list(self._station.tiers), metrics or {})
        left_out = [tier for tier in self._station.tiers if saver.late[tier] > late[tier]]
        if taken and left_out:
            fault = f"step {self.completed} is not saved to {', '.join(left_out)}, still busy with the step before"
            saver.faults.append(fault)
            log.warning("rank %d: %s; wait() before save() to have it in all tiers", self._station.rank, fault)
        return taken and not left_out

    def wait(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Waits until everything that was begun is saved; whether it is."""
        return self._saver.settle(time.time() + timeout_s)

    def notify(self, reason: str, within_s: float, ends: bool = False) -> None:
        """Asks for a save after one of the next steps, to be durable within so many seconds."""
        self._notices.give(Notice(reason, time.time() + within_s, ends))

    @property
    def durable_step(self) -> int | None:
        """The last step that is in the most durable tier."""
        return self._saver.durable_step

    @property
    def faults(self) -> Sequence[str]:
        """What went wrong and did not stop training, in words."""
        return self._saver.faults

    def describe(self) -> dict[str, Any]:
        """Intervals, costs, chances of recovery, and what copying measured and chose."""
        saver = self._saver
        placement = saver.placement
        chances = {}
        if placement is not None:
            most = min(len(placement.machines), LOST_SHOWN_MAX)
            chances = {lost: placement.recovery_probability(lost) for lost in range(1, most + 1)}
        return {
            "intervals": {tier: saver.schedule.interval(tier) for tier in self._station.tiers},
            "costs": {tier: {"blocked_s": c.blocked_s, "busy_s": c.busy_s} for tier, c in saver.costs.items()},
            "late": dict(saver.late),
            "skipped": saver.skipped,
            "postponed": saver.postponed,
            "replicated_step": saver.replicated_step,
            "durable_step": saver.durable_step,
            "recovery_probability": {lost: float(chance) for lost, chance in chances.items()},
            **self._station.copier.facts(),
        }

    def close(self) -> None:
        """The job is over: waits for what was begun, then frees the memory. Other jobs can claim the directories."""
        if not self._saver.settle(time.time() + CLOSE_TIMEOUT_S):
            log.warning("rank %d: closed before everything was saved: %s", self._station.rank, self._saver.outstanding)
        try:
            # Another rank may still be sending a copy here.
            self._station.agreement.share("closing", None)
        except PhalanxError as error:
            log.warning("rank %d: %s", self._station.rank, error)
        self._station.agreement.presence.leave()
        self._let_go()
        for target in self._station.targets:
            if target.ranks[0] == self._station.rank:
                target.fence.release()
        self._station.close(job_is_over=True)

    def leave(self) -> None:
        """This trainer ends and another will go on: the memory stays for it."""
        self._let_go()
        self._station.close(job_is_over=False)

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._stopping:
            self.close()
        else:
            self.leave()

    def _save(self, tiers: Sequence[str], metrics: Mapping[str, float]) -> bool:
        try:
            return self._saver.save(self.completed, tiers, metrics)
        except PhalanxError as error:
            # A rank that is missing, or memory that is gone: what was saved before stays, and training can go on.
            self._saver.faults.append(str(error))
            log.warning("rank %d: step %d is not saved: %s", self._station.rank, self.completed, error)
            return False

    def _make_ready(self) -> None:
        """After the first step the state has all its tensors, and room can be made for it while training goes on."""
        self._is_ready = True
        self._say_if_it_fails(self._saver.make_ready)

    def _say_if_it_fails(self, work: Callable[[], None]) -> None:
        try:
            work()
        except PhalanxError as error:
            self._saver.faults.append(str(error))
            log.warning("rank %d: %s", self._station.rank, error)

    def _serve(self, notice: Notice, metrics: Mapping[str, float]) -> None:
        """Saves to the durable tiers and waits for them as long as the notice allows."""
        saver, presence = self._saver, self._station.agreement.presence
        # With a rank lost there is nothing to wait for: its part will never come.
        until_s = 0.0 if presence.lost else notice.until_s
        saver.settle(until_s)
        saver.await_room()
        self._save([tier for tier in self._station.tiers if tier != "device"], metrics)
        saver.settle(until_s)
        self._say_if_it_fails(lambda: saver.agree_on_durable("serving a notice"))
        durable = saver.durable_step
        self._notices.served()
        acknowledgement = Acknowledgement(notice, self.completed, durable, saver.durable_tier)
        self.acknowledgements.append(acknowledgement)
        log.warning("%s", acknowledgement)
        self._stopping = int(notice.ends)
        if self._stopping:
            presence.leave()

    def _end_as_asked(self) -> None:
        """The loop was told to end and has not: lets the signal do what it would have done."""
        self._notices.stop_listening()
        self.leave()
        raise SystemExit(128 + signal.SIGTERM)

    def _before_optimizer(self, *_: Any) -> None:
        self._station.copier.fence()
        self._station.pace.yield_()

    def _pace_hooks(self, state: State) -> list[Any]:
        """The first gradient is that of the last parameter: from there to the optimiser, the network is training's."""
        if self._station.peer is None:
            return []
        last = [p for p in state.parameters() if p.requires_grad][-1:]
        handles: list[Any] = []
        for parameter in last:
            handles.append(parameter.register_post_accumulate_grad_hook(self._on_first_gradient))  # type: ignore[no-untyped-call]
        return handles

    def _on_first_gradient(self, _: torch.Tensor) -> None:
        self._station.pace.take()

    def _ask_warnings(self) -> None:
        for warning in self._warnings:
            left_s = warning()
            if left_s is not None:
                self.notify("this machine is taken away", left_s, ends=True)
        save_s = max((cost.busy_s for cost in self._saver.costs.values()), default=0.0)
        # All ranks have the same deadline; one of them is enough to warn.
        if self._station.rank == 0 and (notice := self._max_run.due(save_s, self._saver.step_s)):
            self._notices.give(notice)

    def _on_request(self, until_s: float, ends: bool) -> None:
        self._notices.give(Notice("the scheduler asked for it", until_s, ends))

    def _report(self, metrics: Mapping[str, float], *, at_once: bool) -> None:
        if self._station.rank != 0 or not self._reporter.is_on:
            return
        durable = self.durable_step or 0
        memory_gb = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0.0
        # The scheduler itself counts the time since the last durable step.
        stop_cost_ms = round(self._restart_s * 1e3)
        progress = Progress(self.completed, durable, stop_cost_ms, memory_gb=memory_gb, metrics=dict(metrics))
        self._reporter.tell(progress, at_once)

    def _let_go(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._notices.stop_listening()
        self._last_resort.release()
        self._station.agreement.presence.close()
        self._reporter.close()


def default_tiers() -> list[Tier]:
    """Host memory, and the directory that the scheduler names."""
    directory = os.environ.get("PHALANX_CHECKPOINT_DIR")
    return [Host(), Shared(directory)] if directory else [Host()]


def job_name(tiers: Sequence[Tier]) -> str:
    """What tells this run from other runs, the same after a restart."""
    if name := os.environ.get("PHALANX_JOB_ID"):
        return name
    for tier in reversed(tiers):
        if isinstance(tier, Shared | Local):
            place = os.fspath(tier.url if isinstance(tier, Shared) else tier.path)
            # The same words in another directory are another run.
            return place if "://" in place else os.path.abspath(place)
    raise PhalanxError(
        "a run that is kept in memory alone needs a name that is its own, so that it is found again and no other is: "
        "give `job=`, or set PHALANX_JOB_ID"
    )
