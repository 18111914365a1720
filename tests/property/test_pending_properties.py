"""The pending index under random histories: what it skips changes nothing of what is decided."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.decide import cycle
from phalanx.engine.decide.cycle import decide
from phalanx.engine.pending import potential
from phalanx.engine.plan import builder
from phalanx.engine.preempt.last_to_go import LastToGo
from phalanx.engine.preempt.stops import Stopping
from phalanx.engine.reserve.blocked import BlockedSeats
from phalanx.engine.reserve.blocks import Blocks
from phalanx.engine.state.classes import ClassIndex, index_of
from phalanx.engine.state.journal import Count
from phalanx.engine.state.records import Phase
from phalanx.engine.state.state import State
from phalanx.engine.transaction import transaction
from phalanx.engine.transaction.transaction import Transaction
from phalanx.engine.turn import record, turn
from phalanx.engine.why.present import present, present_reason
from phalanx.policy.policy import Minds, Policy
from phalanx.policy.registry import BUILTIN
from phalanx.protocol.action import ActionId
from phalanx.protocol.event import AttemptEnded, ClusterDefined, Done, Event, JobSubmitted, Outcome
from phalanx.protocol.plan import Plan
from phalanx.protocol.reason import Reason
from phalanx.workload.gang import Gang, Role, Task, Topology
from phalanx.workload.job import Job
from phalanx.workload.share import fraction_ask
from reference.pending import PlainCandidates
from reference.vacancy import PlainVacancy

POLICIES = ("fair", "fair", "fair:preempt=true", "fifo:skip=true", "drf", "kai")
VARIANTS = ("fair:preempt=true", "fair:backfill=easy", "fifo:skip=true", "priority:backfill=easy")
EVERY_POLICY = (*(name for name in BUILTIN if name != "tiresias-gittins"), "tiresias-gittins:samples=1/2/3", *VARIANTS)
BY_QUOTA = ("fair", "drf", "fair-tree")
"""Policies under which nobody leaves for another but to give back what he borrows."""

MAX_WAITS_MS = (None, 3_000)
"""Nobody ever waits too long, or some do, and others are short enough to run before what is reserved for those."""

GPUS = 4
CPUS_MILLI = 32_000


def a_tree(rng: Random, gpus: int) -> tuple[Queue, ...]:
    """Two or three levels; the innermost deserve most of the cluster, some are guaranteed a part or limited."""
    tops = [f"t{i}" for i in range(rng.randint(2, 4))]
    leaves = [f"{top}/u{i}" for top in tops for i in range(rng.randint(1, 3))]
    each = 1000 * gpus // len(leaves)
    limited = rng.random() < 0.3
    queues = [Queue(top) for top in tops]
    for leaf in leaves:
        deserved = rng.choice([0, each, each])
        limit = Quota(deserved + each) if limited and rng.random() < 0.5 else Quota()
        queues.append(Queue(leaf, Quota(rng.choice([0, deserved // 2])), Quota(deserved), limit))
    return tuple(queues)


class History:
    """An engine whose queues are always crowded, and whose actions are carried out sooner or later."""

    def __init__(
        self, rng: Random, policies: tuple[str, ...] = POLICIES, max_wait_ms: int | None = None, quotas: bool = True
    ) -> None:
        self.rng = rng
        self.max_wait_ms = max_wait_ms
        cluster = self.a_cluster(rng.choice([4, 8, 12]), quotas)
        self.state, self.journal = State(), Count()
        self.asked: dict[ActionId, None] = {}
        self.now = self.submitted = 0
        record(self.state, self.journal, ClusterDefined(cluster, rng.choice(policies)), 0)
        self.queues = self.state.quotas.leaves() if quotas else ["a", "b"]
        self.happen(
            [self.a_submission() for _ in range(rng.choice([15, 40, 120] if max_wait_ms is not None else [15, 40]))]
        )

    def a_cluster(self, count: int, quotas: bool) -> Cluster:
        nodes = tuple(Node(f"n{i}", (f"r{i // 4}",), GPUS) for i in range(count))
        return Cluster(nodes, ("rack", "node"), queues=a_tree(self.rng, GPUS * count) if quotas else ())

    def a_task(self, gpus: int) -> Task:
        return Task(gpus)

    def a_submission(self) -> JobSubmitted:
        rng = self.rng
        self.submitted += 1
        gpus, count = rng.choice([(1, 1), (1, 1), (2, 1), (4, 1), (4, 2)])
        gang = Gang((Role("worker", count, count, self.a_task(gpus)),), Topology(rng.choice(["", "rack"])))
        queue, priority = rng.choice(self.queues), rng.randrange(2)
        job = Job(str(self.submitted), gang, queue=queue, priority=priority)
        if self.max_wait_ms is not None and rng.random() < 0.3:
            return JobSubmitted(replace(job, duration_ms=rng.choice([2_000, 5_000])))
        return JobSubmitted(replace(job, max_wait_ms=self.max_wait_ms if rng.random() < 0.3 else None))

    def happen(self, events: list[Event]) -> None:
        for event in events:
            try:
                record(self.state, self.journal, event, self.now)
            except ValueError:
                assert isinstance(event, JobSubmitted), "only what a queue can never have is refused"

    def decide(self) -> None:
        self.asked.update((action.id, None) for action in turn(self.state, self.journal, [], self.now).actions)

    def go_on(self) -> None:
        """Some actions are done, some jobs end, others come."""
        rng = self.rng
        self.now += 1_000
        done = [action for action in self.asked if rng.random() < 0.7]
        for action in done:
            del self.asked[action]
        running = [attempt for attempt in self.state.attempts_present() if attempt.phase is Phase.RUNNING]
        ending = rng.sample(running, min(len(running), rng.choice([0, 1, 3])))
        self.happen(
            [
                *map(Done, done),
                *(AttemptEnded(attempt.job.id, attempt.number, Outcome.SUCCEEDED) for attempt in ending),
                *(self.a_submission() for _ in range(rng.choice([0, 1, 4]))),
            ]
        )


class Mixed(History):
    """Likewise, where CPUs run out as well and queues deserve some, and some jobs share GPUs or need none."""

    def a_cluster(self, count: int, quotas: bool) -> Cluster:
        plain = super().a_cluster(count, quotas)
        nodes = tuple(
            replace(node, gpu_type="A100-80", gpu_memory_gb=80.0, cpus_milli=CPUS_MILLI) for node in plain.nodes
        )
        by_cpus = self.rng.random() < 0.5
        queues = tuple(_with_cpus(queue) if by_cpus else queue for queue in plain.queues)
        return replace(plain, nodes=nodes, queues=queues)

    def a_task(self, gpus: int) -> Task:
        cpus_milli = self.rng.choice([1_000, 4_000, 12_000])
        if gpus > 1 or self.rng.random() < 0.5:
            return Task(gpus, cpus_milli=cpus_milli)
        permille = self.rng.choice([0, 200, 500, 700])
        share = fraction_ask(permille) if permille else None
        return Task(1 if share else 0, share=share, cpus_milli=cpus_milli)


def _with_cpus(queue: Queue) -> Queue:
    """Of CPUs what it has of GPUs: as many as belong to them."""
    gpus = (queue.guaranteed.gpus_permille, queue.deserved.gpus_permille)
    guaranteed, deserved = (None if each is None else each * CPUS_MILLI // GPUS // 1000 for each in gpus)
    return replace(
        queue,
        guaranteed=queue.guaranteed._replace(cpus_milli=guaranteed),
        deserved=queue.deserved._replace(cpus_milli=deserved),
    )


@contextmanager
def every_class_is_looked_at() -> Iterator[None]:
    """And every search for victims is made, beside what terminating attempts leave one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cycle, "Candidates", PlainCandidates)
        patch.setattr(transaction, "Vacancy", PlainVacancy)
        patch.setattr(Stopping, "may_begin", lambda way, groups: True)
        patch.setattr(LastToGo, "is_behind", lambda last, key: True)
        yield


@contextmanager
def other_bounds(rng: Random) -> Iterator[None]:
    """As on a large cluster, where nodes are not looked at one by one, and not all that may reclaim are tried."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(potential, "NODES_MAX", rng.choice([0, potential.NODES_MAX]))
        patch.setattr(builder, "RECLAIMS_MAX", rng.choice([1, 3, builder.RECLAIMS_MAX]))
        yield


@pytest.mark.parametrize("policy", EVERY_POLICY)
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_what_is_decided_is_the_same_as_if_every_class_were_looked_at_whenever_the_next_is_wanted(
    policy: str, rng: Random
) -> None:
    all_plans_are_the_same(policy, rng)


def test_a_class_that_was_kept_off_by_what_was_reserved_is_looked_at_on_all_nodes() -> None:
    """By a history of a few dozen jobs, in which one may preempt on a node where nothing has grown."""
    all_plans_are_the_same("fair:preempt=true", Random(102))


def all_plans_are_the_same(policy: str, rng: Random) -> None:
    kind = rng.choice([History, Mixed])
    history = kind(rng, (policy,), rng.choice([None, *MAX_WAITS_MS]), quotas=rng.random() < 0.6)
    for _ in range(6):
        with other_bounds(rng):
            plan = decide(history.state, history.now)
            with every_class_is_looked_at():
                plainly = decide(history.state, history.now)
        assert replace_verdicts(plan) == replace_verdicts(plainly)
        history.decide()
        history.go_on()


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_what_is_decided_is_the_same_as_if_every_search_beside_what_is_reserved_were_made(rng: Random) -> None:
    """And as if all that is reserved were in the way of each of them."""
    history = rng.choice([History, Mixed])(rng, EVERY_POLICY, max_wait_ms=3_000, quotas=rng.random() < 0.5)
    for _ in range(6):
        plan = decide(history.state, history.now)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BlockedSeats, "knows", lambda *asked: False)
            patch.setattr(Blocks, "_may_have_gpus", lambda *asked: True)
            assert decide(history.state, history.now) == plan
        history.decide()
        history.go_on()


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_decisions_at_one_moment_come_to_an_end_where_jobs_are_overdue(rng: Random) -> None:
    """In about one of thirty a second finds more; a fifth never does."""
    history = rng.choice([History, Mixed])(rng, EVERY_POLICY, max_wait_ms=3_000, quotas=rng.random() < 0.5)
    for _ in range(6):
        for _ in range(5):
            plan = decide(history.state, history.now)
            history.decide()
            if not plan.actions and not plan.claims:
                break
        else:
            pytest.fail("five decisions at one moment, and none was empty")
        history.go_on()


def replace_verdicts(plan: Plan) -> Plan:
    """Of classes that are not tried the reason is not told anew: whoever asks has it worked out."""
    return structs.replace(plan, verdicts=())


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_what_is_decided_by_quota_is_the_same_as_if_every_class_were_looked_at(rng: Random) -> None:
    history = History(rng, BY_QUOTA)
    for _ in range(8):
        with other_bounds(rng):
            plan = decide(history.state, history.now)
            with every_class_is_looked_at():
                plainly = decide(history.state, history.now)
        assert replace_verdicts(plan) == replace_verdicts(plainly)
        history.decide()
        history.go_on()


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_the_index_of_classes_is_kept_as_it_would_be_built(rng: Random) -> None:
    history = History(
        rng, ("fair", "priority", "fifo"), max_wait_ms=rng.choice(MAX_WAITS_MS), quotas=rng.random() < 0.5
    )
    history.state.pending_classes()
    for _ in range(8):
        history.decide()
        history.go_on()
        assert told_apart(history.state, history.state.pending_classes()) == told_apart(
            history.state,
            index_of(history.state.fit, history.state.tells_apart, history.state.classes.values(), history.state.jobs),
        )


def told_apart(state: State, index: ClassIndex) -> dict[str, list[tuple[str, bool]]]:
    """The first job of every class of a queue, and whether it goes before all others."""
    return {
        path: sorted((waiting.jobs[0][1], bool(each.late >> number & 1)) for number, waiting in each.by_number.items())
        for path, each in index.queues.items()
        if each.mask == sum(1 << number for number in each.by_number)
    }


@pytest.mark.parametrize("max_wait_ms", MAX_WAITS_MS)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_a_second_decision_right_after_the_first_is_empty(max_wait_ms: int | None, rng: Random) -> None:
    history = History(rng, BY_QUOTA, max_wait_ms)
    for _ in range(8):
        history.decide()
        again = decide(history.state, history.now)
        assert (again.claims, again.actions, again.withdrawn) == ((), (), ())
        history.go_on()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_nor_does_it_add_anything_where_jobs_of_several_resources_wait_too_long(rng: Random) -> None:
    history = Mixed(rng, BY_QUOTA, 3_000)
    for _ in range(8):
        history.decide()
        again = decide(history.state, history.now)
        assert (again.claims, again.actions, again.withdrawn) == ((), (), ())
        history.go_on()


@pytest.mark.parametrize("max_wait_ms", MAX_WAITS_MS)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_nobody_waits_who_may_have_what_it_asks_for_and_has_a_place_that_is_kept_for_nobody(
    max_wait_ms: int | None, rng: Random
) -> None:
    history = History(rng, BY_QUOTA, max_wait_ms)
    state = history.state
    for _ in range(8):
        with other_bounds(rng):
            history.decide()
        for waiting in state.classes.values():
            record = state.jobs[waiting.jobs[0][1]]
            if state.shortfall(record) is None and not present(state, record.job.id).reserved_for:
                with Transaction(state) as transaction:
                    assert transaction.seat(record) is None, (
                        f"{record.job.id} of {record.job.queue} waits beside free GPUs"
                    )
        history.go_on()


@pytest.mark.parametrize("max_wait_ms", MAX_WAITS_MS)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_why_a_job_waits_is_right_whenever_it_is_asked(max_wait_ms: int | None, rng: Random) -> None:
    history = History(rng, BY_QUOTA, max_wait_ms)
    state = history.state
    for _ in range(6):
        history.decide()
        for waiting in state.classes.values():
            record = state.jobs[waiting.jobs[0][1]]
            short, now = state.shortfall(record), present(state, record.job.id)
            full = short is not None and not short.by_limit and state.capacity.free_total < record.gpus_min
            reason = present_reason(state, record.job.id)
            assert reason is now.reason
            if now.reserved_for:
                assert max_wait_ms is not None
                assert reason is Reason.RESERVED
                assert all(state.jobs[each.other.job].overdue for each in now.reserved_for)
            elif short is None or full:
                assert reason in (Reason.GPUS, Reason.TOPOLOGY, Reason.FRAGMENTED)
            else:
                assert reason is Reason.QUOTA
        history.go_on()


@contextmanager
def queues_are_told_apart() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Policy, "tells_apart", Minds.QUEUES)
        yield


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(min_value=0))
def test_a_policy_that_minds_priorities_only_decides_as_if_it_told_queues_apart(seed: int) -> None:
    history = History(Random(seed), ("priority",), quotas=False)
    with queues_are_told_apart():
        other = History(Random(seed), ("priority",), quotas=False)
    assert history.state.tells_apart is Minds.PRIORITIES
    for _ in range(8):
        plan = decide(history.state, history.now)
        history.decide()
        history.go_on()
        with queues_are_told_apart():
            by_queue = decide(other.state, other.now)
            other.decide()
            other.go_on()
        assert (plan.claims, plan.actions, plan.withdrawn) == (by_queue.claims, by_queue.actions, by_queue.withdrawn)
    assert len(history.state.classes) <= len(other.state.classes)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_a_kind_of_which_everybody_got_devices_is_told_no_reason(rng: Random) -> None:
    history = History(rng, ("kai", "fair:backfill=easy"), max_wait_ms=3_000)
    for _ in range(10):
        plan = decide(history.state, history.now)
        placed = [claim.job for claim in plan.claims]
        in_line = [job for kind in history.state.classes.values() for _, job in kind.jobs]
        in_line += [key.rpartition("/")[0] for key in plan.withdrawn]
        waiting = {history.state.jobs[job].shape: job for job in in_line if job not in placed}
        for verdict in plan.verdicts:
            assert history.state.jobs[verdict.job].shape in waiting, f"{verdict.job} is told {verdict.reason}"
        history.decide()
        history.go_on()


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_the_groups_of_queues_are_those_of_all_who_have_devices(rng: Random) -> None:
    history = History(rng)
    for _ in range(8):
        history.decide()
        history.go_on()
        found: dict[str, dict[tuple[int, str], int]] = {}
        for attempt in history.state.attempts_present():
            groups = found.setdefault(attempt.job.queue, {})
            groups[attempt.group] = groups.get(attempt.group, 0) + len(attempt.bookings)
        assert {queue: groups for queue, groups in history.state.preemptible_gpus.groups.items() if groups} == found
