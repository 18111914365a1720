"""What `why` offers is true: made so, the job gets its devices, nothing smaller does, and asking changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations

from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

from builders import World, a_job, everything, made
from phalanx.cluster.capacity import MB_PER_GB
from phalanx.cluster.cluster import CLUSTER, Cluster, Health
from phalanx.cluster.maintenance import Maintenance
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.fold.check import check
from phalanx.engine.state.journal import Journal
from phalanx.engine.transaction.transaction import Transaction
from phalanx.engine.why.candidates import LONGEST_MS, chains
from phalanx.engine.why.change import Change, ChangeKind, changed
from phalanx.engine.why.explain import Explanation, redacted
from phalanx.engine.why.why import why
from phalanx.placement.gang import GangTrial
from phalanx.protocol.action import Start
from phalanx.protocol.event import (
    AttemptEnded,
    Done,
    Event,
    JobHeld,
    JobSubmitted,
    NodeHealthChanged,
    Outcome,
)
from phalanx.protocol.plan import Plan
from phalanx.protocol.reason import LACK_REASON, Reason
from phalanx.words.deadline import deadline_words
from phalanx.workload.array import members
from phalanx.workload.gang import Task
from phalanx.workload.job import Job
from phalanx.workload.rewrite import rewritten
from strategies import CLUSTERS, deep, jobs, mixed

POLICIES = [
    "fifo",
    "fifo:skip=true",
    "priority",
    "backfill",
    "backfill:mode=conservative",
    "backfill:estimate=learned",
    "srtf",
    "drf",
    "yarn-cs:shares=a:0.5/b:0.3,relax_after=1,preempt_above=60",
    "tiresias-las:limits=1/40",
    "edf:preempt=true",
]


OTHERS = [
    "phalanx",
    "fair",
    "fair:preempt=true,backfill=easy",
    "fair-tree:backfill=conservative",
    "multifactor:backfill=easy",
    "kai",
    "volcano",
    "las",
]
"""Policies that order queues, remember, reserve and move at once; the first is the one where no other is named."""


QUEUES = (Queue("a", limit=Quota(5_000)), Queue("b", guaranteed=Quota(2_000), deserved=Quota(3_000)))
SPENT = (Queue("a", deserved=Quota(2_000), budget_gpu_ms=1_500), Queue("b", min_run_ms=800, min_run_reclaim_ms=500))
TREE = (Queue("r", limit=Quota(4_000)), Queue("r/a", limit=Quota(3_000)), Queue("r/b", guaranteed=Quota(1_000)))
"""Queues with quotas that bind, with budgets that run out, and with limits one inside the other."""


@st.composite
def dressed(draw: st.DrawFn, job: Job, queues: Sequence[str]) -> Job:
    """A job with what the policies look at."""
    return replace(
        job,
        queue=draw(st.sampled_from(queues)),
        duration_ms=draw(st.sampled_from([None, 500, 3_000, 60_000])),
        deadline_ms=draw(st.sampled_from([None, 60_000])),
        max_run_ms=None,
        max_wait_ms=draw(st.sampled_from([None, None, None, 600])),
        preemptible=draw(st.sampled_from([True, True, True, False])),
    )


@st.composite
def with_odd_amounts(draw: st.DrawFn, job: Job) -> Job:
    """A job whose tasks ask for CPUs and memory in amounts that do not go into each other."""
    cpus_milli = draw(st.sampled_from([0, 700, 1_350, 2_333, 5_000]))
    memory_mb = draw(st.sampled_from([0, 0, 33, 70, 96]))

    def odd(task: Task) -> Task:
        limit_milli = max(cpus_milli, task.cpus_limit_milli)
        return replace(task, cpus_milli=cpus_milli, cpus_limit_milli=limit_milli, memory_mb=memory_mb)

    return rewritten(job, odd)


@st.composite
def crowded(draw: st.DrawFn, policies: list[str]) -> World:
    """A cluster on which CPUs and memory are what jobs wait for."""
    cluster = replace(draw(st.sampled_from([mixed(), deep()])), queues=draw(st.sampled_from([(), (), QUEUES])))
    nodes = tuple(replace(node, memory_mb=node.memory_mb or 100) for node in cluster.nodes)
    world = World(replace(cluster, nodes=nodes), draw(st.sampled_from(policies)))
    for number in range(draw(st.integers(2, 5))):
        plain = submissions(draw, world.state.cluster, number, world)
        odd = [draw(with_odd_amounts(each.job)) for each in plain]
        begin(world, world.turn(*(JobSubmitted(job) for job in odd if taken(world, job))))
    return world


@st.composite
def worlds(draw: st.DrawFn, policies: list[str] = POLICIES) -> World:
    """A cluster with some jobs running, some waiting, and now and then something held, sick or over."""
    cluster = draw(st.sampled_from([each() for each in CLUSTERS.values()]))
    cluster = replace(cluster, queues=draw(st.sampled_from([(), (), QUEUES, SPENT, TREE])))
    if draw(st.integers(0, 3)) == 0:
        closed = (draw(st.sampled_from(cluster.nodes)).name,)
        cluster = replace(cluster, maintenance=(Maintenance("m", closed, draw(st.sampled_from([700, 5_000])), 90_000),))
    world = World(cluster, draw(st.sampled_from(policies)))
    for number in range(draw(st.integers(1, 4))):
        submitted = submissions(draw, cluster, number, world)
        begin(world, world.turn(*submitted, after_ms=draw(st.sampled_from([0, 1, 900]))))
        begin(world, world.turn(*happenings(draw, world), after_ms=draw(st.sampled_from([0, 0, 700]))))
    return world


def submissions(draw: st.DrawFn, cluster: Cluster, number: int, world: World) -> list[JobSubmitted]:
    count = draw(st.integers(1, 3))
    others = tuple(world.state.jobs)
    queues = world.state.quotas.leaves() or ["a", "b"]
    drawn = [draw(dressed(draw(jobs(cluster, f"j{number}{i}", world.now, others)), queues)) for i in range(count)]
    return [JobSubmitted(member) for job in drawn if taken(world, job) for member in members(job)]


def taken(world: World, job: Job) -> bool:
    """Whether the engine takes a job: not one that its queue could never have."""
    try:
        check(world.state, JobSubmitted(job))
    except ValueError:
        return False
    return True


def happenings(draw: st.DrawFn, world: World) -> Iterator[Event]:
    what = draw(st.sampled_from(["nothing", "nothing", "end", "sick", "hold"]))
    running = [attempt for attempt in world.state.attempts() if not attempt.waits and not attempt.ceding]
    waiting = [name for name, each in world.state.jobs.items() if each.attempt is None and each.final is None]
    if what == "end" and running:
        attempt = running[draw(st.integers(0, len(running) - 1))]
        yield AttemptEnded(attempt.job.id, attempt.number, Outcome.SUCCEEDED)
    if what == "sick":
        node = draw(st.sampled_from(world.state.cluster.nodes)).name
        yield NodeHealthChanged(node, draw(st.sampled_from([Health.DRAINING, Health.SUSPECT, Health.FAILED])))
    if what == "hold" and waiting:
        yield JobHeld(draw(st.sampled_from(waiting)))


def begin(world: World, plan: Plan) -> None:
    """Reports starts done until nothing more starts."""
    for _ in range(20):
        begun = [Done(action.id) for action in world.asked.values() if isinstance(action, Start)]
        if not begun:
            return
        world.turn(*begun)


def asked(world: World) -> Iterator[Explanation]:
    for name, record in world.state.jobs.items():
        if record.final is None:
            yield why(world.state, name)


def plan_after(journal: Journal, job: str, change: Change) -> Plan:
    """The next plan of a world in which the change was really made."""
    return made(journal, job, change)[1]


def less_far(change: Change) -> list[int]:
    """Amounts between what is offered and what is asked: the next ones to both, all round ones, and some in between."""
    first, last = change.amount + 1, change.amount_was - 1
    steps = {ChangeKind.CPUS: 1_000, ChangeKind.SHARE: 100 if change.amount_was > 100 else 10}
    step = steps.get(change.kind, MB_PER_GB)
    spread = [first + (last - first) * part // 8 for part in range(9)]
    round_ = range(-(-first // step) * step, last + 1, step)
    return sorted(dict.fromkeys(amount for amount in (*spread, *round_) if first <= amount <= last))


def smaller(world: World, job: str, change: Change) -> Iterator[Change]:
    """Every change of the same kind that goes less far."""
    match change.kind:
        case ChangeKind.REPLICAS | ChangeKind.GPUS | ChangeKind.NICS:
            for amount in range(change.amount + 1, change.amount_was):
                yield replace(change, amount=amount)
        case ChangeKind.CPUS | ChangeKind.MEMORY | ChangeKind.SHARE | ChangeKind.SHARE_MEMORY:
            for amount in less_far(change):
                yield replace(change, amount=amount)
        case ChangeKind.DURATION if change.amount < LONGEST_MS:
            yield replace(change, amount=change.amount + 1)
        case ChangeKind.MIN_RUN:
            yield replace(change, amount=change.amount - 1)
        case ChangeKind.ARRAY_LIMIT:
            for amount in range(change.amount_was + 1, change.amount):
                yield replace(change, amount=amount)
        case ChangeKind.SELECTOR | ChangeKind.TOLERATION | ChangeKind.REPAIR | ChangeKind.DEPENDENCY:
            for names in subsets(change.names):
                yield replace(change, names=names)
        case ChangeKind.END:
            for ends in subsets(change.ends):
                yield replace(change, ends=ends)
        case ChangeKind.TOPOLOGY:
            outward = (*reversed(world.state.cluster.levels), CLUSTER)
            for level in outward[: outward.index(change.names[0] or CLUSTER)]:
                inner = outward[: outward.index(level)]
                was = tuple(rule for rule in change.names_was if rule in inner)
                if was:
                    yield replace(change, names=(level,), names_was=was)
        case ChangeKind.GPU_TYPE if not change.names:
            for name in world.state.capacity.gpu_types:
                yield replace(change, names=(name,))


def subsets(things: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    """All that have less in them, but not nothing."""
    few = range(1, len(things)) if len(things) <= 5 else (1, len(things) - 1)
    return chain.from_iterable(combinations(things, count) for count in few)


FEW = settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@given(worlds())
@FEW
def test_asking_why_changes_nothing(world: World) -> None:
    before = everything(world.state)
    answers = list(asked(world))
    deadlines = [deadline_words(world.state, job) for job in world.state.jobs]
    assert everything(world.state) == before
    assert list(asked(world)) == answers
    assert [deadline_words(world.state, job) for job in world.state.jobs] == deadlines


@given(worlds())
@FEW
def test_with_the_offered_change_made_the_job_gets_its_claim_in_the_next_plan(world: World) -> None:
    for answer in asked(world):
        for change in answer.changes:
            event(change.kind)
            note(f"{answer.job}: {change}")
            assert answer.job in plan_after(world.journal, answer.job, change).starts


@given(worlds())
@FEW
def test_no_smaller_change_of_the_same_kind_would_do(world: World) -> None:
    for answer in asked(world):
        for change in answer.changes:
            for less in smaller(world, answer.job, change):
                note(f"{answer.job}: {less} instead of {change}")
                assert answer.job not in plan_after(world.journal, answer.job, less).starts


@given(worlds(OTHERS))
@FEW
def test_what_is_offered_is_true_and_smallest_under_policies_that_order_queues_or_move_others(world: World) -> None:
    for answer in asked(world):
        for change in answer.changes:
            note(f"{answer.job}: {change}")
            assert answer.job in plan_after(world.journal, answer.job, change).starts
            for less in smaller(world, answer.job, change):
                note(f"{answer.job}: {less} instead of {change}")
                assert answer.job not in plan_after(world.journal, answer.job, less).starts


AMOUNTS = (ChangeKind.CPUS, ChangeKind.MEMORY, ChangeKind.SHARE, ChangeKind.SHARE_MEMORY)
"""Kinds of which every amount is a change, to the unit in which a job file says it."""


@given(crowded(POLICIES + OTHERS))
@FEW
def test_of_cpus_and_memory_not_a_thousandth_or_a_megabyte_more_would_do(world: World) -> None:
    for answer in asked(world):
        for change in answer.changes:
            if change.kind not in AMOUNTS:
                continue
            event(change.kind)
            note(f"{answer.job}: {change}")
            assert answer.job in plan_after(world.journal, answer.job, change).starts
            for less in smaller(world, answer.job, change):
                note(f"{answer.job}: {less} instead of {change}")
                assert answer.job not in plan_after(world.journal, answer.job, less).starts


@given(crowded(POLICIES + OTHERS), st.lists(st.integers(1, 999), min_size=2, max_size=8))
@FEW
def test_who_starts_with_some_of_its_cpus_and_memory_starts_with_less_of_them(world: World, parts: list[int]) -> None:
    """What bisecting relies on."""
    for answer in asked(world):
        record = world.state.record(answer.job)
        if record.attempt is not None:
            continue
        for chain_ in chains(world.state, record):
            if not chain_.divisible:
                continue
            most, least = chain_.changes[0].amount_was, chain_.changes[-1].amount
            amounts = sorted({least + (most - least) * part // 1000 for part in parts})
            starts = [
                answer.job in plan_after(world.journal, answer.job, replace(chain_.changes[0], amount=amount)).starts
                for amount in amounts
            ]
            event(f"{chain_.changes[0].kind}: {'some' if True in starts and False in starts else 'all or none'} start")
            note(f"{answer.job}: {chain_.changes[0].kind} {list(zip(amounts, starts, strict=True))}")
            assert starts == sorted(starts, reverse=True)


@given(worlds())
@FEW
def test_with_the_dominant_cause_removed_the_job_starts_or_the_next_cause_is_given(world: World) -> None:
    for answer in asked(world):
        if answer.next is None:
            continue
        event(f"{answer.reason}, then {answer.next.reason}")
        note(f"{answer.job}: {answer.next}")
        state, plan = made(world.journal, answer.job, answer.next.change)
        assert (answer.job in plan.starts) == (answer.next.reason is None)
        if answer.next.reason is not None:
            assert why(state, answer.job).reason is answer.next.reason


@given(worlds())
@FEW
def test_every_job_that_waits_is_told_one_reason_and_counts_that_add_up(world: World) -> None:
    for answer in asked(world):
        assert answer.reason is world.state.reason(answer.job) or answer.reason is not Reason.UNDECIDED
        if answer.reason in LACK_REASON.values():
            # What was told when the job was last looked at may be over: the reason is that of now.
            assert answer.fits_now or (answer.refusal and answer.reason is LACK_REASON[answer.refusal.lack])
        if answer.refusal is not None:
            assert sum(count for _, count in answer.refusal.ruled_out) <= answer.refusal.nodes
        assert sum(each.gpus for each in answer.holders) <= sum(each.gpus for each in answer.held)
        free = sum(gpus * nodes for gpus, nodes in answer.free)
        assert answer.refusal is None or free == answer.refusal.gpus_free


@given(worlds())
@FEW
def test_gpus_are_blamed_for_where_they_lie_only_if_without_cpus_memory_and_nics_there_is_no_place_either(
    world: World,
) -> None:
    for answer in asked(world):
        if answer.reason in (Reason.TOPOLOGY, Reason.FRAGMENTED) and not answer.fits_now:
            bare = changed(world.state.jobs[answer.job].asked, Change(ChangeKind.AMOUNTS))
            with Transaction(world.state):
                trial = GangTrial(world.state.fit, world.state.packing, bare)
                assert not trial.seat()
                trial.undo()


@given(worlds(), st.sampled_from([(), ("a",), ("a", "b")]))
@FEW
def test_nothing_of_a_hidden_queue_is_told_but_queue_gpus_and_expected_end(
    world: World, visible: tuple[str, ...]
) -> None:
    hidden = {name for name, record in world.state.jobs.items() if record.job.queue not in visible}
    for answer in asked(world):
        shown = redacted(answer, visible)
        users = shown.quota.holders if shown.quota is not None else ()
        parts = [shown.behind, *shown.waits_for, *shown.holders, *users, *(o for c in shown.changes for o in c.ends)]
        assert not {part.job for part in parts if part is not None} & hidden
        assert [(o.queue, o.gpus, o.expected_end_ms) for o in shown.holders] == [
            (o.queue, o.gpus, o.expected_end_ms) for o in answer.holders
        ]
        assert shown.reason is answer.reason


def test_a_job_is_left_as_it_is_by_changes_that_are_not_of_the_job() -> None:
    job = a_job("j", 2)
    for kind in (ChangeKind.RELEASE, ChangeKind.PASS, ChangeKind.END, ChangeKind.REPAIR, ChangeKind.RETRY):
        assert changed(job, Change(kind)) is job
