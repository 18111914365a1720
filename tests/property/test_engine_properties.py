"""The engine under random interleavings of events, failures and decisions: what must hold after every step."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from builders import HEALTHS, a_job, everything, random_run, virtual_backend
from judge import Judge, as_grown
from phalanx.cluster.cluster import Cluster, Health
from phalanx.cluster.maintenance import Maintenance
from phalanx.cluster.queues import Queue, Quota
from phalanx.cluster.recovery import Recovery
from phalanx.engine.decide.cycle import decide
from phalanx.engine.state.journal import Journal, Record
from phalanx.engine.state.records import AttemptRecord, JobState, Phase, need_of
from phalanx.engine.state.state import NOTHING, State
from phalanx.engine.turn import record, replay, turn, verify
from phalanx.placement.gang import GangTrial
from phalanx.placement.place import placement_of
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import Action, ActionId, Repartition, Resize, Start, Stop
from phalanx.protocol.event import (
    AttemptEnded,
    ClusterDefined,
    DeviceHealthChanged,
    DevicesAssigned,
    Done,
    Event,
    Failed,
    ForeignUse,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobSubmitted,
    Lost,
    NodeHealthChanged,
    Outcome,
    Progress,
)
from phalanx.protocol.plan import Claim, Plan
from phalanx.protocol.reason import Reason
from phalanx.simulate.run import Run, submissions
from phalanx.workload.array import members
from phalanx.workload.job import Job, Kind
from strategies import CLUSTERS, jobs

OUTCOMES = st.sampled_from(list(Outcome))
LATELY = st.none() | st.integers(-1_000, 20_000)
"""How long ago an attempt ended, by a clock that may be wrong; None if the backend does not say."""

NUMBERS = st.integers(0, 1_000)
OFTEN = st.sampled_from([True, True, False])

MOVING = ("priority", "phalanx")
"""Policies that move running jobs out of the way."""


class Engine(RuleBasedStateMachine):
    """The test is the world: it submits, breaks things, answers actions rightly or wrongly, and watches.

    `present` is what really runs where, as the world knows it: an attempt is there from its start on until the world
    itself has said that it is gone.
    """

    policy = "fifo"

    @initialize(name=st.sampled_from(sorted(CLUSTERS)), load=st.lists(st.integers(0, 2), max_size=10))
    def define(self, name: str, load: list[int]) -> None:
        self.cluster = self.cluster_of(name)
        self.state = State()
        self.journal = Journal()
        self.judge = Judge(self.cluster)
        self.now = 0
        self.submitted = 0
        self.asked: dict[ActionId, Action] = {}
        self.said: list[Event] = []
        self.present: dict[str, frozenset[tuple[str, int]]] = {}
        record(self.state, self.journal, ClusterDefined(self.cluster, self.policy), 0)
        self.happen(*(JobSubmitted(self.loaded(i, gpus)) for i, gpus in enumerate(load)), then_decide=True)
        self.all_goes_well()

    def cluster_of(self, name: str) -> Cluster:
        return CLUSTERS[name]()

    def loaded(self, i: int, gpus: int) -> Job:
        """One of the jobs that are there from the beginning."""
        return a_job(f"load{i}", gpus)

    def happen(self, *events: Event, then_decide: bool) -> None:
        for event in events:
            record(self.state, self.journal, event, self.now)
        if then_decide:
            self.decide()

    def is_due(self) -> bool:
        """Whether something has to happen before the next decision."""
        due_ms = self.state.next_wakeup()
        return due_ms is not None and due_ms <= self.now

    def decide(self) -> None:
        """One turn, watched: nothing but the plan comes of it, and a second one has nothing to add."""
        before = everything(self.state)
        quiet = decide(self.state, self.state.now if self.is_due() else max(self.now, self.state.now))
        assert everything(self.state) == before, "deciding has changed the state"
        length = len(self.journal.records)
        plan = turn(self.state, self.journal, [], self.now)
        assert plan == quiet or self.journal.records[length].body != plan, "deciding twice gives two plans"
        self.watch(plan, self.journal.records[: self.index_of(plan)])
        again = decide(self.state, self.state.now)
        assert not again.news(self.state.head), f"after {plan}, again {again}"

    def index_of(self, plan: Plan) -> int:
        """Where the plan is recorded, or would be."""
        last = len(self.journal.records) - 1
        return last if self.journal.records[last].body is plan else last + 1

    def watch(self, plan: Plan, before: list[object]) -> None:
        for claim in plan.claims:
            job = self.placed(claim.job)
            self.judge.check_placement(job, claim.placement)
            self.judge.check_open(claim.placement)
            self.check_victims_may_be_stopped(job, claim)
        if any(claim.victims for claim in plan.claims):
            self.check_victims(plan, before)
        for action in plan.actions:
            assert action.id not in self.asked, f"{action.id} is asked twice"
            self.asked[action.id] = action
            if isinstance(action, Start):
                self.start(action)
            if isinstance(action, Resize):
                self.plan = plan
                self.resize(action)

    def placed(self, job: str) -> Job:
        """What is to be placed of a job."""
        return self.state.jobs[job].job

    def start(self, action: Start) -> None:
        """What is told to start must find its devices empty."""
        self.judge.check_open(action.placement)
        self.occupy(action.id, devices_of(action.placement))

    def resize(self, action: Resize) -> None:
        """What is told to grow or move must find the new devices empty; what stays, stays where it is."""
        attempt = self.state.attempt(action.id.job, action.id.attempt)
        assert attempt is not None
        self.judge.check_placement(as_grown(attempt.job, self.state.record(attempt.job.id).job), action.placement)
        old = attempt.placement.slots
        self.judge.check_open(Placement(tuple(slot for slot in action.placement.slots if slot not in old)))
        if len(old) == len(action.placement.slots):
            assert not devices_of(action.placement) & devices_of(attempt.placement), "a move that stays in part"
            # By quota who has what is due to another queue is moved rather than stopped, under any policy.
            queues = [self.state.jobs[claim.job].job.queue for claim in self.plan.claims]
            reclaims = bool(self.cluster.queues) and any(queue != attempt.job.queue for queue in queues)
            assert self.policy.partition(":")[0] in MOVING or self.cluster.defragment_ms or reclaims
        else:
            assert set(old) < set(action.placement.slots) or set(action.placement.slots) < set(old)
        self.judge.resizes[attempt.key] = action.placement
        self.occupy(action.id, self.present[attempt.key] | devices_of(action.placement))

    def occupy(self, action: ActionId, wanted: frozenset[tuple[str, int]]) -> None:
        key = f"{action.job}/{action.attempt}"
        for other, taken in self.present.items():
            assert other == key or not taken & wanted, f"{action} wants {taken & wanted}, where {other} still runs"
        self.present[key] = wanted

    def dressed(self, data: st.DataObject, job: Job) -> Job:
        """The job with what the policy looks at."""
        return job

    def check_victims(self, plan: Plan, before: list[object]) -> None:
        check_victims_are_needed(replay(Journal(before)), plan)

    def check_victims_may_be_stopped(self, head: Job, claim: Claim) -> None:
        for key in claim.victims:
            victim = self.state.jobs[key.rpartition("/")[0]].job
            assert victim.preemptible
            assert victim.kind is not Kind.SERVICE
            assert self.may_stop(head, victim), f"{head.id} stops {victim.id}"

    def may_stop(self, head: Job, victim: Job) -> bool:
        """Whether the policy lets a job stop another, as far as the jobs themselves say."""
        return False

    @rule(data=st.data(), count=st.integers(1, 3), then_decide=OFTEN)
    def submit(self, data: st.DataObject, count: int, then_decide: bool) -> None:
        for _ in range(count):
            name = f"j{self.submitted}"
            self.submitted += 1
            job = self.dressed(data, data.draw(jobs(self.cluster, name, self.now, tuple(self.state.jobs))))
            if self.may_ever_have(job):
                self.happen(*map(JobSubmitted, members(job)), then_decide=then_decide)

    def may_ever_have(self, job: Job) -> bool:
        """Whether a job is not refused at its submission: what its queue can never have is."""
        return True

    @rule()
    def all_goes_well(self) -> None:
        """The world does what it has been asked."""
        for action in list(self.asked.values()):
            self.happen(self.answer_to(action, "done"), then_decide=False)
        self.asked.clear()
        self.decide()

    @rule(number=NUMBERS, then_decide=OFTEN)
    def cancel(self, number: int, then_decide: bool) -> None:
        open_jobs = [name for name, each in self.state.jobs.items() if each.final is None and not each.cancelled]
        if open_jobs:
            self.happen(JobCancelled(open_jobs[number % len(open_jobs)]), then_decide=then_decide)

    @rule(number=NUMBERS, then_decide=OFTEN)
    def hold_or_release(self, number: int, then_decide: bool) -> None:
        open_jobs = [name for name, each in self.state.jobs.items() if each.final is None]
        if open_jobs:
            name = open_jobs[number % len(open_jobs)]
            event = JobReleased(name) if self.state.jobs[name].held else JobHeld(name)
            self.happen(event, then_decide=then_decide)

    @rule(number=NUMBERS, then_decide=OFTEN)
    def requeue(self, number: int, then_decide: bool) -> None:
        present = [each for each in self.state.jobs.values() if each.attempt is not None and not each.cancelled]
        started = [each for each in present if each.attempt and each.attempt.phase is not Phase.CLAIMED]
        if started:
            self.happen(JobRequeued(started[number % len(started)].job.id), then_decide=then_decide)

    @rule(number=NUMBERS, health=st.sampled_from(HEALTHS), then_decide=OFTEN)
    def node_health(self, number: int, health: Health, then_decide: bool) -> None:
        node = self.cluster.nodes[number % len(self.cluster.nodes)].name
        self.judge.health[node] = health
        self.happen(NodeHealthChanged(node, health), then_decide=then_decide)

    @rule(number=NUMBERS, device=st.integers(0, 3), health=st.sampled_from(HEALTHS), then_decide=OFTEN)
    def device_health(self, number: int, device: int, health: Health, then_decide: bool) -> None:
        node = self.cluster.nodes[number % len(self.cluster.nodes)]
        device %= node.gpus
        self.judge.sick.pop((node.name, device), None)
        if health is not Health.HEALTHY:
            self.judge.sick[node.name, device] = health
        self.happen(DeviceHealthChanged(node.name, device, health), then_decide=then_decide)

    @rule(number=NUMBERS, gpus=st.integers(0, 2), cpus_milli=st.sampled_from([0, 2_000]), then_decide=OFTEN)
    def foreign_use(self, number: int, gpus: int, cpus_milli: int, then_decide: bool) -> None:
        """Work that is not ours comes, changes or goes on a node, also where one of ours is."""
        node = self.cluster.nodes[number % len(self.cluster.nodes)]
        devices = (number % node.gpus,) if number % 3 == 0 and node.gpus else ()
        self.happen(ForeignUse(node.name, devices, gpus, cpus_milli), then_decide=then_decide)

    @rule(number=NUMBERS, other=NUMBERS, then_decide=OFTEN)
    def devices_assigned(self, number: int, other: int, then_decide: bool) -> None:
        """The engine has given two attempts, or one and nothing else, each other's devices on a node."""
        settled = [each for each in self.state.attempts() if self.is_settled(each)]
        if not settled or self.state.cells is not None:
            return
        first, second = settled[number % len(settled)], settled[other % len(settled)]
        taken = {device for key, devices in self.present.items() if key != first.key for device in devices}
        if second is not first:
            taken -= self.present[second.key]
        # What has gone may still be held by the State until it is told: no other attempt is given it by then.
        taken |= {
            at for each in self.state.attempts() if each.key not in self.present for at in devices_of(each.placement)
        }
        slots_present = (slot for each in self.state.attempts() for slot in each.placement.slots if slot.portion)
        taken |= {(slot.node, device) for slot in slots_present for device in slot.devices}
        told = [(first, shuffled(self.cluster, first.placement.slots, taken, number))]
        if second is not first:
            taken |= slots_devices(told[0][1])
            kept = shuffled(self.cluster, second.placement.slots, taken, 0)
            if kept is None:
                return
            told.append((second, kept))
        for attempt, slots in told:
            self.present[attempt.key] = slots_devices(slots)
        for attempt, slots in told:
            self.happen(DevicesAssigned(attempt.job.id, attempt.number, slots), then_decide=False)
        for attempt, slots in told:
            assert attempt.placement.slots == slots, f"{attempt.key} was not given {slots}"
        if then_decide:
            self.decide()

    def is_settled(self, attempt: AttemptRecord) -> bool:
        """Whether an attempt runs on whole devices that do not change."""
        return (
            attempt.phase in (Phase.STARTING, Phase.RUNNING)
            and self.present.get(attempt.key) == devices_of(attempt.placement)
            and all(slot.portion is None for slot in attempt.placement.slots)
        )

    @rule(ms=st.sampled_from([1, 500, 1_000, 20_000, 700_000]))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        self.decide()

    @rule()
    def think(self) -> None:
        self.decide()

    @rule(number=NUMBERS, durable=st.integers(0, 9), then_decide=OFTEN)
    def progress(self, number: int, durable: int, then_decide: bool) -> None:
        if self.state.jobs:
            name = list(self.state.jobs)[number % len(self.state.jobs)]
            attempt = self.state.jobs[name].attempts
            self.happen(Progress(name, attempt, durable_step=durable, stop_cost_ms=durable), then_decide=then_decide)

    @precondition(lambda self: self.asked)
    @rule(
        number=NUMBERS,
        answer=st.sampled_from(["done", "done", "done", "done", "failed", "hopeless", "lost"]),
        then_decide=OFTEN,
    )
    def answer(self, number: int, answer: str, then_decide: bool) -> None:
        action = self.asked.pop(list(self.asked)[number % len(self.asked)])
        self.say(self.answer_to(action, answer), then_decide)

    def answer_to(self, action: Action, answer: str) -> Event:
        """What the world says of an action; of one whose attempt is gone it says that it is refused."""
        key = f"{action.id.job}/{action.id.attempt}"
        if key not in self.present:
            return Done(action.id) if isinstance(action, Stop) else Failed(action.id, "too late", retryable=False)
        gone = (isinstance(action, Stop) and answer == "done") or (
            isinstance(action, Start) and answer in ("failed", "hopeless")
        )
        if gone:
            del self.present[key]
        if isinstance(action, Resize) and answer == "done":
            self.present[key] = devices_of(action.placement)
        if isinstance(action, Resize) and answer in ("failed", "hopeless"):
            attempt = self.state.attempt(action.id.job, action.id.attempt)
            self.present[key] = devices_of(attempt.placement)
        return {
            "done": Done(action.id),
            "failed": Failed(action.id, "cannot"),
            "hopeless": Failed(action.id, "never will", retryable=False),
            "lost": Lost(action.id),
        }[answer]

    def say(self, event: Event, then_decide: bool) -> None:
        self.said.append(event)
        self.happen(event, then_decide=then_decide)

    @precondition(lambda self: self.said)
    @rule(number=NUMBERS, then_decide=OFTEN)
    def repeat_old_news(self, number: int, then_decide: bool) -> None:
        self.happen(self.said[number % len(self.said)], then_decide=then_decide)

    @precondition(lambda self: self.present)
    @rule(number=NUMBERS, outcome=OUTCOMES, ago_ms=LATELY, then_decide=OFTEN)
    def end(self, number: int, outcome: Outcome, ago_ms: int | None, then_decide: bool) -> None:
        key = list(self.present)[number % len(self.present)]
        del self.present[key]
        job, _, attempt = key.rpartition("/")
        ended_ms = None if ago_ms is None else self.state.now - ago_ms
        self.say(AttemptEnded(job, int(attempt), outcome, ended_ms=ended_ms), then_decide)

    @invariant()
    def nothing_is_given_twice_and_no_job_is_lost(self) -> None:
        if not hasattr(self, "state"):
            return
        self.state.capacity.check()
        self.judge.check_shares(self.state)
        self.judge.check_jobs(self.state)
        self.judge.check_usage(self.state)
        for attempt in self.state.attempts():
            known = attempt.phase in (Phase.CLAIMED, Phase.STOPPING) or attempt.in_flight
            assert known or attempt.key in self.present, f"{attempt.key} is {attempt.phase}, but is not there"

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        self.check_nothing_was_overlooked()
        self.check_the_journal_tells_it_all()
        self.check_all_comes_to_an_end()

    def check_the_journal_tells_it_all(self) -> None:
        read = Journal.read(list(self.journal.lines()))
        assert read.records == self.journal.records
        for told in (replay(self.journal), replay(read), verify(self.journal)):
            assert everything(told) == everything(self.state)
            assert str(told.digest) == str(self.state.digest)

    def check_nothing_was_overlooked(self) -> None:
        """Passing over those who were refused before saves time and hides nobody who would fit now.

        Who would only be promised what others are leaving anyway is looked at when they have left.
        """
        self.decide()
        grown = self.state.capacity.grown
        self.state.capacity.grown = self.state.topology.everything
        plan = decide(self.state, self.state.now)
        self.state.capacity.grown = grown
        # A promise may be withdrawn for another job once those that leave have left, and more follows from that.
        settled = list(takewhile(lambda claim: not self.is_merely_promised(claim), plan.claims))
        overlooked = [claim for claim in settled if claim.victims or not claim.waits]
        assert not overlooked, f"overlooked: {overlooked}"
        self.check_nobody_waits_who_could_have_room()

    def is_merely_promised(self, claim: Claim) -> bool:
        """Whether a claim takes what others are leaving, and the promises of others, and stops none that runs."""
        victims = [self.state.attempt(key.rpartition("/")[0], int(key.rpartition("/")[2])) for key in claim.victims]
        return claim.waits and bool(victims) and all(each.phase is Phase.CLAIMED for each in victims)

    def check_nobody_waits_who_could_have_room(self) -> None:
        """For policies under which it is the job alone that says who gives way to it."""

    def check_all_comes_to_an_end(self) -> None:
        """With everything healthy and every action done, only those stay that can never run."""
        for node in self.cluster.nodes:
            self.happen(ForeignUse(node.name), NodeHealthChanged(node.name, Health.HEALTHY), then_decide=False)
            for device in range(node.gpus):
                self.happen(DeviceHealthChanged(node.name, device, Health.HEALTHY), then_decide=False)
        self.judge.health = {node.name: Health.HEALTHY for node in self.cluster.nodes}
        self.judge.sick.clear()
        for name, each in self.state.jobs.items():
            if each.held and each.final is None:
                self.happen(JobReleased(name), then_decide=False)
        self.decide()
        for _ in range(1_000):
            if self.asked:
                for action in list(self.asked.values()):
                    self.happen(self.answer_to(action, "done"), then_decide=False)
                self.asked.clear()
            elif self.present:
                for key in list(self.present):
                    del self.present[key]
                    job, _, attempt = key.rpartition("/")
                    self.happen(AttemptEnded(job, int(attempt), Outcome.SUCCEEDED), then_decide=False)
            elif (wakeup := self.state.next_wakeup()) is not None:
                self.now = max(self.now, wakeup)
            else:
                break
            self.decide()
        else:
            raise AssertionError("it never comes to rest")
        self.check_who_is_left_can_never_run()

    def check_who_is_left_can_never_run(self) -> None:
        for name, each in self.state.jobs.items():
            if each.final is None and each.parked not in (Reason.DEPENDENCY, Reason.DEPENDENCY_FAILED):
                trial = GangTrial(self.state.fit, self.state.packing, each.job)
                assert not trial.seat(), f"{name} waits for {self.state.reason(name)} but fits {placement_of(trial)}"


def shuffled(
    cluster: Cluster, slots: tuple[Slot, ...], taken: set[tuple[str, int]], by: int
) -> tuple[Slot, ...] | None:
    """The slots on devices of the same nodes that are not taken, turned by so many; None where there are too few."""
    free = {
        node.name: [device for device in range(node.gpus) if (node.name, device) not in taken] for node in cluster.nodes
    }
    found = []
    for slot in slots:
        there = free[slot.node]
        if len(there) < len(slot.devices):
            return None
        at = by % len(there) if there else 0
        chosen = (there[at:] + there[:at])[: len(slot.devices)]
        free[slot.node] = [device for device in there if device not in chosen]
        found.append(replace(slot, devices=tuple(chosen)))
    return tuple(found)


def slots_devices(slots: tuple[Slot, ...]) -> frozenset[tuple[str, int]]:
    return devices_of(Placement(slots))


def check_victims_are_needed(state: State, plan: Plan) -> None:
    """Keeps each victim in turn, in the world as it was before the plan: the head must find no place then.

    Works through the plan as the decision did: who leaves, who starts, who is promised what.
    """
    capacity = state.capacity
    leaving = dict(state.leaving)
    victims = {key for claim in plan.claims for key in claim.victims}
    for action in plan.actions:
        attempt = state.attempt(action.id.job, action.id.attempt)
        if attempt is None:
            continue
        if isinstance(action, Stop) and attempt.key not in leaving and attempt.key not in victims:
            leave(state, attempt, leaving)
        if isinstance(action, Resize):
            for slot, booking in zip(attempt.placement.slots, attempt.bookings, strict=True):
                if slot not in action.placement.slots:
                    capacity.cede(booking)
        if isinstance(action, Start | Repartition) and attempt.waits:
            attempt.waits = False
            for booking in attempt.bookings:
                capacity.unclaim(booking)
                capacity.hold(booking)
    for claim in plan.claims:
        job = state.jobs[claim.job].job
        chosen = [state.attempt(key.rpartition("/")[0], int(key.rpartition("/")[2])) for key in claim.victims]
        for kept in chosen:
            claimants = [each for each in chosen if each is not kept and each.phase is Phase.CLAIMED]
            for attempt in claimants:
                give_back(state, attempt)
            others = [each for each in (*leaving.values(), *chosen) if each is not kept and each not in claimants]
            gone = [each for each in others if not promised(state, each)]
            for attempt in gone:
                give_back(state, attempt)
            trial = GangTrial(state.fit, state.packing, job)
            assert not trial.seat(), f"{claim.job} could run at {placement_of(trial)} without stopping {kept.key}"
            for attempt in (*gone, *claimants):
                take_again(state, attempt)
        for victim in chosen:
            if victim.phase is Phase.CLAIMED:
                give_back(state, victim)
            else:
                leave(state, victim, leaving)
        for booking in state.bookings(job, claim.placement):
            (capacity.claim if claim.waits else capacity.hold)(booking)


def may_be_stopped(victim: Job, head: Job) -> bool:
    """The rule of `priority`: the lower makes room for the higher, but production not for production."""
    both_production = victim.priority >= 200 and head.priority < 300
    stoppable = victim.preemptible and victim.kind is not Kind.SERVICE
    return stoppable and victim.priority < head.priority and not both_production


def give_back(state: State, attempt: AttemptRecord) -> None:
    for booking in attempt.bookings:
        (state.capacity.unclaim if attempt.waits else state.capacity.release)(booking)


def take_again(state: State, attempt: AttemptRecord) -> None:
    for booking in attempt.bookings:
        (state.capacity.claim if attempt.waits else state.capacity.hold)(booking)


def leave(state: State, attempt: AttemptRecord, leaving: dict[str, AttemptRecord]) -> None:
    leaving[attempt.key] = attempt
    for booking in attempt.bookings:
        state.capacity.cede(booking)


def promised(state: State, attempt: AttemptRecord) -> bool:
    """Whether somebody has been promised any of what an attempt holds."""
    return any(
        state.capacity.claimed[booking.node] & booking.devices
        or any(state.capacity.amounts[number].claimed[booking.node] for number, _ in booking.needs)
        for booking in attempt.bookings
    )


def devices_of(placement: Placement) -> frozenset[tuple[str, int]]:
    """Whole devices of a placement; those that are shared cannot be told apart by who is on them."""
    return frozenset((slot.node, device) for slot in placement.slots if not slot.portion for device in slot.devices)


class FifoEngine(Engine):
    policy = "fifo"


class SkippingEngine(Engine):
    policy = "fifo:skip=true"


class PriorityEngine(Engine):
    policy = "priority"

    def may_stop(self, head: Job, victim: Job) -> bool:
        return may_be_stopped(victim, head)

    def check_nobody_waits_who_could_have_room(self) -> None:
        """With all gone that run and may be stopped for it, the first of each class still finds no place."""
        for waiting in self.state.classes.values():
            head = self.state.jobs[waiting.head[1]].job
            told = replay(self.journal)
            for attempt in list(told.attempts()):
                if attempt.phase is Phase.RUNNING and may_be_stopped(attempt.job, head):
                    for booking in attempt.bookings:
                        told.capacity.release(booking)
            trial = GangTrial(told.fit, told.packing, head)
            assert not trial.seat(), f"{head.id} could have {placement_of(trial)}"


class RankingEngine(Engine):
    """Running jobs stand in the order with the waiting ones."""

    def check_victims(self, plan: Plan, before: list[object]) -> None:
        """Whom all heads of a plan together can spare is spared; for one of them alone it may have been needed."""

    def may_stop(self, head: Job, victim: Job) -> bool:
        return True


class TiresiasEngine(RankingEngine):
    policy = "tiresias-las:limits=1/40,starvation=2"


class GittinsEngine(RankingEngine):
    policy = "tiresias-gittins:samples=1/2/30/900,quantum=3,limits=50"


class SrtfEngine(RankingEngine):
    policy = "srtf"

    def dressed(self, data: st.DataObject, job: Job) -> Job:
        return replace(job, duration_ms=data.draw(st.sampled_from([None, 500, 3_000, 60_000])))


class EdfEngine(RankingEngine):
    policy = "edf:preempt=true"

    def dressed(self, data: st.DataObject, job: Job) -> Job:
        ahead_ms = data.draw(st.sampled_from([None, 0, 600, 2_000, 60_000]))
        duration_ms = data.draw(st.sampled_from([None, 500, 3_000, 60_000]))
        deadline_ms = None if ahead_ms is None else self.now + ahead_ms
        return replace(job, duration_ms=duration_ms, deadline_ms=deadline_ms)


class YarnEngine(Engine):
    policy = "yarn-cs:shares=a:0.5/b:0.3,relax_after=1,preempt_above=60"

    def dressed(self, data: st.DataObject, job: Job) -> Job:
        return replace(job, queue=data.draw(st.sampled_from(["a", "b", "c"])))

    def may_stop(self, head: Job, victim: Job) -> bool:
        return head.queue != victim.queue


class DrfEngine(Engine):
    policy = "drf:weights=a:2"
    dressed = YarnEngine.dressed


def in_queues(cluster: Cluster) -> Cluster:
    """The cluster with a tree of queues: one is guaranteed a third of the GPUs; others deserve, borrow, are limited."""
    third = 1000 * (cluster.gpus // 3)
    return replace(
        cluster,
        queues=(
            Queue("a", guaranteed=Quota(third)),
            Queue("b", deserved=Quota(third), min_run_ms=1_000, min_run_reclaim_ms=2_500),
            Queue("b/x", deserved=Quota(third // 2)),
            Queue("b/y", limit=Quota(third)),
            Queue("c"),
        ),
    )


class QuotaEngine(Engine):
    """Queues with quotas under a policy that stops nobody: who is stopped gives back what was lent."""

    policy = "fifo:skip=true"

    def cluster_of(self, name: str) -> Cluster:
        return in_queues(CLUSTERS[name]())

    def dressed(self, data: st.DataObject, job: Job) -> Job:
        return replace(job, queue=data.draw(st.sampled_from(["a", "b/x", "b/y", "c"])))

    def loaded(self, i: int, gpus: int) -> Job:
        return a_job(f"load{i}", gpus, queue=["c", "b/x", "a"][i % 3])

    def may_ever_have(self, job: Job) -> bool:
        return all(
            amount <= self.state.quotas.upper_bound(job.queue, resource)
            for resource, amount in enumerate(need_of(job.gang.roles))
        )

    def may_stop(self, head: Job, victim: Job) -> bool:
        return head.queue != victim.queue

    def check_victims(self, plan: Plan, before: list[object]) -> None:
        """Whether each is needed depends on quotas, too, which `check_quota_victims` looks at."""

    @invariant()
    def quotas_hold(self) -> None:
        if not hasattr(self, "state"):
            return
        accounts = self.state.quotas.accounts
        for path, account in accounts.items():
            held = [self.state._usage.get(other, NOTHING) for other in accounts if under(other, path)]
            for resource in range(3):
                assert account.used[resource] == sum(usage[resource] for usage in held)
                limit = account.queue.limit[resource]
                assert limit is None or account.used[resource] <= limit, f"{path} is beyond its limit"
        whole, kept = accounts[""], accounts["a"]
        assert whole.used[0] + max(kept.deserved[0] - kept.used[0], 0) <= whole.deserved[0], (
            "what is guaranteed was lent"
        )


def under(path: str, above: str) -> bool:
    return path == above or not above or path.startswith(f"{above}/")


class QuotaPriorityEngine(QuotaEngine):
    policy = "priority"

    def may_stop(self, head: Job, victim: Job) -> bool:
        return head.queue != victim.queue or may_be_stopped(victim, head)


class QuotaLasEngine(QuotaEngine):
    policy = "las"

    def may_stop(self, head: Job, victim: Job) -> bool:
        return True


class MaintenanceEngine(Engine):
    """Nodes close and open again: nobody is placed there who would run into it, and nobody stays."""

    policy = "fifo:skip=true"

    def cluster_of(self, name: str) -> Cluster:
        cluster = CLUSTERS[name]()
        names = [node.name for node in cluster.nodes]
        windows = (
            Maintenance("early", tuple(names[::2]), 21_000, 600_000),
            Maintenance("late", tuple(names[1:]), 700_000, 900_000),
        )
        return replace(cluster, maintenance=windows)

    def dressed(self, data: st.DataObject, job: Job) -> Job:
        return replace(job, duration_ms=data.draw(st.sampled_from([None, 1_000, 30_000, 800_000])))

    def watch(self, plan: Plan, before: list[object]) -> None:
        for claim in plan.claims:
            job = self.state.jobs[claim.job].job
            length_ms = 0 if job.duration_ms is None and job.preemptible else job.duration_ms
            for window in self.cluster.maintenance:
                if length_ms and self.state.now < window.end_ms and window.start_ms < self.state.now + length_ms:
                    assert not any(slot.node in window.nodes for slot in claim.placement.slots), f"{claim} in {window}"
        super().watch(plan, before)

    @invariant()
    def closed_nodes_are_left(self) -> None:
        if not hasattr(self, "state"):
            return
        for window in self.cluster.maintenance:
            if window.start_ms <= self.state.now < window.end_ms:
                for node in window.nodes:
                    for attempt in self.state.on_node.get(self.state.topology.number[node], {}).values():
                        assert attempt.key in self.state.to_stop or attempt.phase is Phase.STOPPING


class MaintenancePriorityEngine(MaintenanceEngine):
    policy = "priority"

    def may_stop(self, head: Job, victim: Job) -> bool:
        return may_be_stopped(victim, head)

    def check_victims(self, plan: Plan, before: list[object]) -> None:
        """Whether each is needed depends on what closes, too."""


class DefragmentEngine(Engine):
    """Others move now and then for who waits, under a policy that moves nobody."""

    policy = "fifo:skip=true"

    def cluster_of(self, name: str) -> Cluster:
        return replace(CLUSTERS[name](), defragment_ms=60_000)


class RecoveringEngine(Engine):
    """Jobs that lose hardware go on where they were, and a node is a spare."""

    policy = "fifo:skip=true"

    def cluster_of(self, name: str) -> Cluster:
        return replace(CLUSTERS[name](), recovery=Recovery(1))


class RecoveringPriorityEngine(PriorityEngine):
    """Likewise, where others are preempted as well."""

    def cluster_of(self, name: str) -> Cluster:
        return replace(CLUSTERS[name](), recovery=Recovery(1))


TestRecovering = RecoveringEngine.TestCase
TestRecoveringPriority = RecoveringPriorityEngine.TestCase
TestRecovering.settings = TestRecoveringPriority.settings = settings(max_examples=15, stateful_step_count=40)
TestFifo = FifoEngine.TestCase
TestDefragment = DefragmentEngine.TestCase
TestDefragment.settings = settings(max_examples=15, stateful_step_count=40)
TestMaintenance = MaintenanceEngine.TestCase
TestMaintenancePriority = MaintenancePriorityEngine.TestCase
TestMaintenance.settings = TestMaintenancePriority.settings = settings(max_examples=15, stateful_step_count=40)
TestSkippingFifo = SkippingEngine.TestCase
TestPriority = PriorityEngine.TestCase
TestFifo.settings = TestSkippingFifo.settings = TestPriority.settings = settings(
    max_examples=30, stateful_step_count=40
)
TestTiresias = TiresiasEngine.TestCase
TestGittins = GittinsEngine.TestCase
TestSrtf = SrtfEngine.TestCase
TestEdf = EdfEngine.TestCase
TestYarn = YarnEngine.TestCase
TestDrf = DrfEngine.TestCase
TestQuota = QuotaEngine.TestCase
TestQuotaPriority = QuotaPriorityEngine.TestCase
TestQuotaLas = QuotaLasEngine.TestCase
TestQuota.settings = TestQuotaPriority.settings = settings(max_examples=20, stateful_step_count=40)
TestQuotaLas.settings = settings(max_examples=10, stateful_step_count=40)
TestTiresias.settings = TestGittins.settings = TestSrtf.settings = settings(max_examples=10, stateful_step_count=40)
TestEdf.settings = TestYarn.settings = TestDrf.settings = settings(max_examples=10, stateful_step_count=40)
for each in (TestTiresias, TestGittins, TestSrtf, TestEdf, TestYarn, TestDrf):
    pytest.mark.long(each)
for each in (TestSkippingFifo, TestDefragment, TestMaintenance, TestMaintenancePriority):
    pytest.mark.long(each)


@st.composite
def workloads(draw: st.DrawFn, cluster: Cluster, count: int = 12) -> list[tuple[int, Job]]:
    """Jobs that depend on nothing but room, in order of their submission."""
    times = sorted(draw(st.lists(st.integers(0, 20_000), min_size=1, max_size=count)))
    return [
        (at, replace(draw(jobs(cluster, f"j{i}")), array=None, begin_ms=None, max_run_ms=None))
        for i, at in enumerate(times)
    ]


POLICIES = [
    "fifo",
    "fifo:skip=true",
    "priority",
    "srtf",
    "las:quantum=5",
    "tiresias-las:limits=2/9",
    "tiresias-gittins:samples=1/4/9,quantum=2,limits=6",
    "edf:preempt=true",
    "drf",
    "yarn-cs:relax_after=3",
]


@given(st.data(), st.sampled_from(sorted(CLUSTERS)), st.sampled_from(POLICIES))
@settings(max_examples=80)
def test_every_job_that_can_ever_fit_ends_when_nothing_fails(data: st.DataObject, name: str, policy: str) -> None:
    cluster = CLUSTERS[name]()
    work = data.draw(workloads(cluster))
    backend = virtual_backend({job.id: 1_000 + 700 * i for i, (_, job) in enumerate(work)}, start_ms=300, stop_ms=200)
    state = Run.of(cluster, policy, backend, submissions(work)).finish(steps_max=5_000)
    idle = replay(Journal([Record(0, 0, ClusterDefined(cluster, policy))]))
    for each in state.jobs.values():
        trial = GangTrial(idle.fit, idle.packing, each.job)
        assert each.state is JobState.SUCCEEDED or not trial.seat(), f"{each.job.id} is {each.state}"
        trial.undo()


@given(st.data(), st.sampled_from(sorted(CLUSTERS)))
@settings(max_examples=30)
def test_strict_fifo_gives_devices_in_the_order_of_submission(data: st.DataObject, name: str) -> None:
    cluster = CLUSTERS[name]()
    work = data.draw(workloads(cluster))
    backend = virtual_backend({job.id: 5_000 - 400 * i for i, (_, job) in enumerate(work)}, start_ms=300)
    run = Run.of(cluster, "fifo", backend, submissions(work))
    given_out: list[str] = []
    while (plan := run.step()) is not None:
        given_out.extend(plan.starts)
    assert given_out == [job.id for _, job in work if run.state.jobs[job.id].final]


@pytest.mark.long
def test_the_same_input_gives_the_same_journal_under_any_hash_seed() -> None:
    program = "import builders; print(builders.random_run(7, 300).state.digest)"
    digests = set()
    for hash_seed in ("0", "1", "12345"):
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout.strip())
    assert len(digests) == 1
    assert str(random_run(7, 300).state.digest) in digests


@pytest.mark.long
@pytest.mark.parametrize(
    "policy",
    [
        "fifo",
        "fifo:skip=true",
        "priority",
        "srtf",
        "las:quantum=600",
        "tiresias-las:limits=60/300",
        "tiresias-gittins:samples=10/40/900,quantum=60,limits=300",
        "edf:preempt=true",
        "drf",
        "yarn-cs",
    ],
)
def test_a_long_run_with_failing_starts_and_nodes_is_told_whole_by_its_journal(policy: str) -> None:
    run = random_run(3, 200, policy)
    read = Journal.read(list(run.journal.lines()))
    assert everything(verify(read)) == everything(run.state)
    assert all(each.state.final or run.state.reason(name) for name, each in run.state.jobs.items())
