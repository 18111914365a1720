"""Taking snapshots when they are due and seeing them through to the deeper tiers."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint import points
from phalanx.train.checkpoint.background import Message
from phalanx.train.checkpoint.contents.state import Plan, Planned, key_of
from phalanx.train.checkpoint.copies.replicas import Placement, place
from phalanx.train.checkpoint.decision import Decision, Word, decide, writable
from phalanx.train.checkpoint.host.slot import Record, Slot, slot_bytes
from phalanx.train.checkpoint.rank_context import RankContext
from phalanx.train.checkpoint.schedule import Cost, Rates, Schedule
from phalanx.train.checkpoint.snapshots.snapshot import Sitting, Taken

RECORD_BYTES_LEAST = 1 << 20
DURABLE = ("shared", "local")
"""The tiers that outlast a machine, or at least its memory; the first one that is in use says what is durable."""

log = logging.getLogger("phalanx.checkpoint")


class Saver:
    """What is being saved, what is saved, and what that costs."""

    def __init__(self, rank_context: RankContext, rates: Rates, refuse_nan: bool) -> None:
        self._station = rank_context
        self._refuse_nan = refuse_nan
        every = {name: getattr(tier, "every", None) for name, tier in rank_context.tiers.items()}
        self.schedule = Schedule(every, rates)
        self.costs = {tier: Cost() for tier in rank_context.tiers}
        self.durable_step: int | None = None
        self._on_disk: int | None = None
        self._common_on_disk: int | None = None
        self.replicated_step: int | None = None
        self.placement: Placement | None = None
        self.faults: list[str] = []
        self.late: Counter[str] = Counter()
        self.skipped = 0
        self.postponed = 0
        self._skipped_in_a_row = 0
        self._fingerprints: tuple[str, ...] = ()
        self._outstanding: dict[str, int] = {}
        self._read: dict[str, int] = {}
        self._behind: dict[str, str] = {}
        self._waiting: dict[int, tuple[Slot, tuple[str, ...], Mapping[str, float]]] = {}
        self._last_step_s = 0.0
        self._step_ended_s: float | None = None

    def step_ended(self) -> None:
        """Measures how long steps take."""
        now_s = time.monotonic()
        if self._step_ended_s is not None:
            taken_s = now_s - self._step_ended_s
            self._last_step_s = taken_s if not self._last_step_s else 0.9 * self._last_step_s + 0.1 * taken_s
        self._step_ended_s = now_s

    @property
    def step_s(self) -> float:
        return self._last_step_s

    @property
    def outstanding(self) -> dict[str, int]:
        """The tiers that are busy, each with the step that it is busy with."""
        waiting = {tier: step for step, (_, tiers, _) in self._waiting.items() for tier in tiers}
        return {**waiting, **self._outstanding}

    def make_ready(self) -> None:
        """Makes space for snapshots before the first is due: taking and pinning memory needs seconds."""
        decision = self._decide("making room", 0, [], self._station.state.planned().plan)
        if decision.fingerprints != self._fingerprints:
            self._lay_out(decision)

    def save(self, step: int, due: Sequence[str], metrics: Mapping[str, float]) -> bool:
        """Takes a snapshot for the tiers that are due; whether one was taken."""
        rank_context = self._station
        self.hear(wait=True)
        if "device" in due:
            self._save_on_device(step)
            due = [tier for tier in due if tier != "device"]
            if not due:
                return True
        planned = rank_context.state.planned()
        decision = self._decide(f"snapshot after step {step}", step, due, planned.plan)
        if decision.preparing:
            self._postpone(step, decision.why_not)
            return False
        if decision.tiers is None:
            self._skip(step, decision.why_not)
            return False
        self._skipped_in_a_row = 0
        if decision.fingerprints != self._fingerprints:
            self._lay_out(decision)
            planned = rank_context.state.planned()
        self.schedule.saved(step, list(decision.tiers))
        if decision.is_taken:
            slot = next(slot for slot in self._own_slots() if slot.complete_step == step)
            self._pass_on(slot, step, decision.tiers, metrics)
        else:
            self._take(step, planned, decision, metrics)
        self.hear()
        return True

    def await_room(self) -> None:
        """Waits until the memory for snapshots is pinned: for a snapshot that is wanted now, not when it is free."""
        self._station.copier.await_prepared(self._own_slots())

    def hear(self, wait: bool = False) -> None:
        """Takes in what has happened since: snapshots that have become whole, and reports of the background process."""
        for taken in self._station.copier.take_finished(wait):
            self._hand_over(taken)
        for report in self._station.reports():
            self._note(report)

    def agree_on_durable(self, topic: str) -> None:
        """Learns the last durable step, as any rank knows it of the store, or as all have it on their disks."""
        self._decide(topic, 0, [], self._station.state.planned().plan)

    def settle(self, until_s: float) -> bool:
        """Waits until all that was begun is done, or until a moment of the wall clock; whether all is done."""
        self.hear(wait=True)
        while self._outstanding and self._station.background is not None:
            left_s = until_s - time.time()
            if left_s <= 0:
                return False
            try:
                for report in self._station.await_reports(time.monotonic() + min(left_s, 1.0)):
                    self._note(report)
            except TimeoutError:
                continue
        return not self._outstanding

    def resume(self, step: int, committed: Mapping[str, int | None]) -> None:
        """Goes on from a step that was brought back; `committed` are the newest steps up to it in durable tiers."""
        self.schedule.restart(step)
        self._on_disk = committed.get("local")
        self.durable_step = committed.get(self.durable_tier or "")
        self.replicated_step = None
        self._waiting.clear()
        self._outstanding.clear()
        self._read.clear()
        self._step_ended_s = None

    def copy_again(self, step: int) -> None:
        """Makes anew, at once, the copies of a step that were lost with the machines that held them."""
        rank_context = self._station
        if rank_context.peer is None:
            return
        decision = self._decide(f"copying step {step} again", step, [], rank_context.state.planned().plan)
        if not decision.is_taken:
            return
        if decision.fingerprints != self._fingerprints:
            self._lay_out(decision)
        slot = rank_context.memory.holdings.find(rank_context.rank, step)
        lacking = [rank for rank in self._holders() if rank_context.rank not in decision.held[rank]]
        if slot is not None and lacking:
            self._replicate(slot, step, lacking)
        elif slot is not None:
            self.replicated_step = step

    def _save_on_device(self, step: int) -> None:
        began_s = time.monotonic()
        plan, tensors = self._station.state.planned()
        self._station.device.take(step, tensors, self._station.state.objects_by(plan.names))
        self.costs["device"].learn(time.monotonic() - began_s, 0.0)
        self.schedule.saved(step, ["device"])

    def _take(self, step: int, planned: Planned, decision: Decision, metrics: Mapping[str, float]) -> None:
        """Begins to copy the state into a slot that may be overwritten."""
        rank_context = self._station
        arrangement = planned.plan.arrangement
        slots = self._own_slots()
        number = writable([slot.complete_step for slot in slots], decision.keep, self._occupied)
        assert number is not None, "the chair has seen to it that there is room"
        slot = slots[number]
        points.reached("snapshot-start", step, rank_context.rank)
        slot.begin(step, rank_context.rank, arrangement.data_bytes)
        objects = rank_context.state.objects_by(planned.plan.names)
        record = Record(step, rank_context.rank, rank_context.world_size, arrangement, objects)
        assert decision.tiers is not None
        self._waiting[step] = (slot, decision.tiers, dict(metrics))
        rank_context.copier.begin(
            Sitting(
                planned.tensors,
                slot,
                record,
                planned.plan.calm,
                self._refuse_nan,
                lambda: points.reached("snapshot-middle", step, rank_context.rank),
            )
        )

    def _decide(self, topic: str, step: int, due: Sequence[str], plan: Plan) -> Decision:
        decision = self._station.agreement.decide(topic, self._word(step, due, plan), decide)
        self._learn(decision)
        return decision

    @property
    def _occupied(self) -> frozenset[int]:
        return frozenset({*self._waiting, *self._read.values()})

    def _word(self, step: int, due: Sequence[str], plan: Plan) -> Word:
        rank_context = self._station
        return Word(
            step=step,
            fingerprint=plan.fingerprint,
            slot_bytes=slot_bytes(plan.arrangement.data_bytes, max(RECORD_BYTES_LEAST, len(plan.arrangement.packed))),
            slots=tuple(slot.complete_step for slot in self._own_slots()),
            occupied=self._occupied,
            replicated=self.replicated_step,
            due=frozenset(due),
            busy=frozenset(self.outstanding),
            costs=self.costs,
            step_s=self._last_step_s,
            machine=rank_context.machine,
            address=rank_context.background.address
            if rank_context.peer is not None and rank_context.background is not None
            else None,
            durable=self.durable_step,
            on_disk=self._on_disk,
            is_preparing=rank_context.copier.is_preparing(self._own_slots()),
            held=frozenset(rank for rank, found in rank_context.memory.holdings.steps().items() if step in found),
        )

    def _learn(self, decision: Decision) -> None:
        self._common_on_disk = decision.on_disk
        self.durable_step = decision.on_disk if self.durable_tier == "local" else decision.durable
        self.schedule.adapt(decision.costs, decision.step_s)
        self._station.introduce(decision.addresses)
        for tier in decision.late:
            self.late[tier] += 1
            self._say_late(tier, decision)

    def _lay_out(self, decision: Decision) -> None:
        """Makes space, once it is known which rank holds which parts and which copies come here."""
        rank_context = self._station
        keys = [key_of(entry) for entry in rank_context.state.planned().plan.arrangement]
        alike = decision.alike
        holders = (
            [keys] * rank_context.world_size if alike else rank_context.agreement.share("sharing the layout", keys)
        )
        rank_context.state.share(holders, rank_context.rank)
        fault = None
        try:
            self._make_room(decision)
        except PhalanxError as error:
            fault = str(error)
        # No rank sends before every rank has space; and if one has none, all must hear of it.
        faults = rank_context.agreement.share("making room for snapshots", fault)
        if any(faults):
            named = [f"rank {rank}: {each}" for rank, each in enumerate(faults) if each is not None]
            raise PhalanxError("; ".join(named))
        self._fingerprints = decision.fingerprints
        if self.placement is not None:
            self._say_how_safe()

    def _make_room(self, decision: Decision) -> None:
        rank_context = self._station
        rank_context.memory.make_room(rank_context.host.slots, decision.slot_bytes[rank_context.rank])
        rank_context.copier.prepare(self._own_slots())
        if rank_context.peer is not None:
            self.placement = place(machines_of(decision.machines), rank_context.peer.copies, rank_context.peer.domains)
            sources = self.placement.sources(rank_context.rank)
            rank_context.memory.make_room_for_replicas({source: decision.slot_bytes[source] for source in sources})

    def _say_how_safe(self) -> None:
        assert self.placement is not None
        if self._station.rank == 0:
            for lost in range(1, min(4, len(self.placement.machines)) + 1):
                chance = float(self.placement.recovery_probability(lost))
                log.info(
                    "of %d machines lost at once, memory brings everything back with probability %.4f", lost, chance
                )

    def _hand_over(self, taken: Taken) -> None:
        """Sends a whole snapshot on to the deeper tiers."""
        slot, tiers, metrics = self._waiting.pop(taken.step)
        if "host" in self.costs:
            self.costs["host"].learn(taken.blocked_s, taken.seconds)
        if taken.fault is not None:
            self._say(taken.fault)
            return
        self._pass_on(slot, taken.step, tiers, metrics)

    def _pass_on(self, slot: Slot, step: int, tiers: Sequence[str], metrics: Mapping[str, float]) -> None:
        for tier in tiers:
            if tier == "peer":
                self._replicate(slot, step, self._holders())
            elif tier in DURABLE:
                details = {"metrics": dict(metrics), "common_step": self._common_on_disk}
                self._order("persist", tier, slot, step, **details)

    def _holders(self) -> list[int]:
        """The other ranks that keep copies of this rank's snapshots."""
        assert self.placement is not None
        return [rank for rank in self.placement.holders(self._station.rank) if rank != self._station.rank]

    def _replicate(self, slot: Slot, step: int, holders: Sequence[int]) -> None:
        # A copy is due before the next snapshot is.
        patience_s = 0.5 * self._last_step_s * self.schedule.interval("peer")
        self._order("replicate", "peer", slot, step, holders=list(holders), patience_s=patience_s)

    def _order(self, what: str, tier: str, slot: Slot, step: int, **details: object) -> None:
        assert self._station.background is not None
        self._outstanding[tier] = self._read[tier] = step
        self._station.background.order(what, tier=tier, slot=slot.name, step=step, **details)

    def _note(self, report: Message) -> None:
        if report["what"] == "died":
            self._outstanding.clear()
            self._read.clear()
            self._say(report["fault"])
        elif report["what"] == "committed":
            self._note_commit(report["tier"], report["step"])
        elif report["what"] == "retire":
            self._say(f"{report['tier']}: old steps were not taken away: {report['fault']}; training goes on")
        else:
            self._note_end(report)

    def _note_commit(self, tier: str, step: int) -> None:
        """A step is safe, and its snapshot is not read any more."""
        self._read.pop(tier, None)
        if tier == "local":
            self._on_disk = step
        # A step on this rank's disk is durable when all ranks have it on theirs, which the next agreement tells.
        if tier == self.durable_tier and (tier == "shared" or self._station.world_size == 1):
            self.durable_step = step

    def _note_end(self, report: Message) -> None:
        """A tier is done with a step, in one way or the other."""
        tier, step = report["tier"], report["step"]
        self._outstanding.pop(tier, None)
        self._read.pop(tier, None)
        if "fault" in report:
            self._say(f"{tier}: step {step} was not saved: {report['fault']}; training goes on")
            return
        self.costs[tier].learn(0.0, report["seconds"])
        if tier == "peer":
            self.replicated_step = step

    @property
    def durable_tier(self) -> str | None:
        return next((tier for tier in DURABLE if tier in self._station.tiers), None)

    def _own_slots(self) -> list[Slot]:
        return self._station.memory.own(self._station.host.slots)

    def _postpone(self, step: int, why: str) -> None:
        """Says, once in a row, that a step is not saved yet, since training would stand still for it."""
        if not self.postponed:
            log.info("rank %d: no snapshot after step %d yet: %s", self._station.rank, step, why)
        self.postponed += 1

    def _skip(self, step: int, why: str) -> None:
        """Says that a step is not saved; of many in a row the 1st, 2nd, 4th, 8th and so on. All are counted."""
        self.skipped += 1
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row.bit_count() == 1:
            so_far = f" ({self._skipped_in_a_row} in a row)" if self._skipped_in_a_row > 1 else ""
            self._say(f"step {step} is not saved{so_far}: {why}")

    def _say_late(self, tier: str, decision: Decision) -> None:
        """That a tier was left out of a save: once, and again when what it sustains has changed. All are counted."""
        interval = max(self.schedule.interval(tier), 1)
        busy_s = decision.costs.get(tier, Cost()).busy_s
        sustained = ceil(busy_s / decision.step_s) if decision.step_s else 0
        line = f"{tier} is left out of saves while it is busy with the step before"
        if sustained > interval:
            line = f"{tier} cannot keep up with one save in {interval} steps; it sustains one in {sustained} steps"
        if self._behind.get(tier) != line:
            self._behind[tier] = line
            self._say(line)

    def _say(self, fault: str) -> None:
        self.faults.append(fault)
        log.warning("rank %d: %s", self._station.rank, fault)


def machines_of(names: Sequence[str]) -> list[list[int]]:
    """The ranks on each machine, machines in order of their lowest rank."""
    machines: dict[str, list[int]] = {}
    for rank, name in enumerate(names):
        machines.setdefault(name, []).append(rank)
    return list(machines.values())
