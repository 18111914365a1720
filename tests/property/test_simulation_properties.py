"""The simulator on random traces: exact where the rules of others are known, and sound after every turn."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import racked
from judge import Judge, as_grown
from phalanx.cluster.cluster import Cluster, Health, Node, flat
from phalanx.engine.decide.cycle import decide
from phalanx.engine.state.records import AttemptRecord, JobState, Phase
from phalanx.engine.state.state import State
from phalanx.placement.placement import Placement
from phalanx.policy.policy import Reserve, Targets
from phalanx.policy.registry import BUILTIN
from phalanx.protocol.action import Resize
from phalanx.protocol.reason import Reason
from phalanx.simulate.figures.ledger import permille_of
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.world.costs import NO_COSTS, Costs
from phalanx.workload.job import Kind
from reference.easy import easy
from reference.tiresias import RefJob, simulate

TURNS_MAX = 20_000
"""Far more than any of these small runs takes: one that does not come to an end must fail, not hang."""

Outcome = dict[str, tuple[int, int, int]]
"""First start, end and preemptions of each job that ended."""


@st.composite
def rows(draw: st.DrawFn, gpus: int, ties: bool = True) -> list[RefJob]:
    """Up to 25 jobs of 1 to 8 GPUs in whole seconds, in the order of their submission."""
    count = draw(st.integers(1, 25))
    latest_s = draw(st.sampled_from([6, 40])) if ties else 60
    submit_s = sorted(
        draw(st.lists(st.integers(0, latest_s), min_size=count, max_size=count, unique=not ties)),
    )
    longest_s = draw(st.sampled_from([3, 12, 30]))
    return [
        RefJob(str(i), at, draw(st.integers(1, longest_s)), draw(st.integers(1, min(gpus, 8))))
        for i, at in enumerate(submit_s)
    ]


def in_ms(jobs: list[RefJob]) -> list[RefJob]:
    return [replace(job, submit=1000 * job.submit, duration=1000 * job.duration) for job in jobs]


def told_by_the_reference(jobs: list[RefJob], gpus: int, rule: str, **parameters: object) -> Outcome:
    told = simulate(in_ms(jobs), gpus, rule, tick=1000, **parameters)
    return {name: (told.start[name], end, told.preemptions[name]) for name, end in told.end.items()}


def simulated(jobs: list[RefJob], gpus: int, policy: str) -> Outcome:
    trace = Trace("random", tuple(TraceJob(job.id, job.submit, job.duration, job.gpus) for job in in_ms(jobs)))
    simulation = Simulation(Setup(flat(1, gpus), trace, policy, "count", NO_COSTS))
    simulation.begin()
    simulation.go(watch=TurnsAtMost(TURNS_MAX))
    found: Outcome = {}
    for record in simulation.run.state.jobs.values():
        if record.ended_ms is not None and record.first_start_ms is not None:
            found[record.job.id] = (record.first_start_ms, record.ended_ms, record.preemptions)
    return found


class TurnsAtMost:
    """Fails a run that takes more turns."""

    def __init__(self, most: int) -> None:
        self.left = most

    def __call__(self, state: State) -> None:
        self.left -= 1
        assert self.left > 0, f"the run has not come to an end at {state.now} ms"


PLAIN = {
    "fifo": "fifo",
    "fjf": "fifo:skip=true",
    "sjf": "srtf:by=gpus",
    "shortest": "srtf:by=time",
    "shortest-gpu": "srtf:by=gpu_time",
}


@given(st.data(), st.integers(4, 16))
@pytest.mark.parametrize("rule", PLAIN)
def test_orders_of_one_key_are_those_of_the_reference(rule: str, data: st.DataObject, gpus: int) -> None:
    jobs = data.draw(rows(8))
    assert simulated(jobs, gpus, PLAIN[rule]) == told_by_the_reference(jobs, gpus, rule, ties="submission")


@given(st.data(), st.integers(8, 16))
def test_whoever_passes_the_head_by_easy_backfilling_does_here(data: st.DataObject, gpus: int) -> None:
    jobs = data.draw(rows(8))
    starts = {name: start_ms for name, (start_ms, _, _) in simulated(jobs, gpus, "backfill").items()}
    assert starts == easy(in_ms(jobs), gpus)


LIMITS = [(3, 6), (5, 12), (2, 4, 8), (40,)]


@given(st.data(), st.integers(4, 16), st.sampled_from(LIMITS))
def test_queues_by_time_are_those_of_the_reference(data: st.DataObject, gpus: int, limits: tuple[int, ...]) -> None:
    jobs = data.draw(rows(8))
    policy = f"tiresias-las:dims=1,limits={'/'.join(map(str, limits))}"
    assert simulated(jobs, gpus, policy) == told_by_the_reference(jobs, gpus, "dlas", limits=limits)


GPU_LIMITS = [(12, 36), (20, 60), (7, 20, 50)]


@given(st.data(), st.integers(4, 16), st.sampled_from(GPU_LIMITS))
def test_queues_by_gpu_time_are_those_of_the_reference(data: st.DataObject, gpus: int, limits: tuple[int, ...]) -> None:
    jobs = data.draw(rows(8))
    policy = f"tiresias-las:limits={'/'.join(map(str, limits))}"
    assert simulated(jobs, gpus, policy) == told_by_the_reference(jobs, gpus, "dlas-gpu", limits=limits)


@given(st.data(), st.integers(4, 16), st.sampled_from(GPU_LIMITS), st.sampled_from([0.5, 1, 2, 8]))
def test_promotion_of_the_starving_is_that_of_the_reference(
    data: st.DataObject, gpus: int, limits: tuple[int, ...], knob: float
) -> None:
    jobs = data.draw(rows(8))
    policy = f"tiresias-las:limits={'/'.join(map(str, limits))},starvation={knob}"
    assert simulated(jobs, gpus, policy) == told_by_the_reference(jobs, gpus, "dlas-gpu-s", limits=limits, knob=knob)


SAMPLES = (3, 9, 20, 25, 40, 80, 120)
GITTINS = f"tiresias-gittins:limits=20/60,quantum=20,samples={'/'.join(map(str, SAMPLES))}"


@given(st.data(), st.integers(4, 16), st.sampled_from(["theory", "code"]))
def test_gittins_is_that_of_the_reference_where_no_two_are_submitted_at_once(
    data: st.DataObject, gpus: int, form: str
) -> None:
    jobs = data.draw(rows(gpus, ties=False))
    policy = f"{GITTINS},index={form}"
    told = told_by_the_reference(jobs, gpus, "gittins", limits=(20, 60), quantum=20, samples=SAMPLES, form=form)
    assert simulated(jobs, gpus, policy) == told


TOLD_APART = {
    "who sank together and was stopped together": (
        *("dlas-gpu", "tiresias-las:limits=20/60", 9, {"limits": (20, 60)}),
        [(0, 8, 3), (0, 8, 4), (7, 1, 2), (7, 2, 5)],
    ),
    "who waits in another shape on a node where more and more is left": (
        *("dlas", "tiresias-las:dims=1,limits=3/6", 11, {"limits": (3, 6)}),
        [(0, 7, 3), (0, 7, 1), (1, 6, 1), (4, 4, 4), (6, 2, 7)],
    ),
    "who need not be stopped because somebody behind it is": (
        *("dlas", "tiresias-las:dims=1,limits=3/6", 16, {"limits": (3, 6)}),
        [(0, 4, 2), (0, 4, 2), (0, 6, 8), (0, 7, 3), (0, 4, 5), (6, 1, 5), (6, 1, 4)],
    ),
    "who was promoted and waits to run again": (
        *("dlas-gpu-s", "tiresias-las:limits=20/60,starvation=2", 7, {"limits": (20, 60), "knob": 2}),
        [(0, 23, 2), (1, 15, 5), (3, 4, 6), (5, 39, 3), (5, 36, 7)],
    ),
    "who was stopped before the change that was expected of it": (
        *("gittins", GITTINS, 7, {"limits": (20, 60), "quantum": 20, "samples": SAMPLES}),
        [(0, 12, 5), (2, 6, 6), (5, 31, 7)],
    ),
}


@pytest.mark.parametrize("name", TOLD_APART)
def test_traces_that_tell_rules_apart_come_out_as_by_the_reference(name: str) -> None:
    rule, policy, gpus, parameters, told = TOLD_APART[name]
    jobs = [RefJob(str(i), *row) for i, row in enumerate(told)]
    assert simulated(jobs, gpus, policy) == told_by_the_reference(jobs, gpus, rule, **parameters)


POLICIES = {
    "backfill": ("backfill", "backfill:mode=conservative"),
    "drf": ("drf",),
    "edf": ("edf",),
    "fair": ("fair", "fair:half_life=20s", "fair:preempt=true"),
    "fair-tree": ("fair-tree:half_life=20s",),
    "fifo": ("fifo", "fifo:skip=true"),
    "gavel": ("gavel:round=20", "gavel:round=20,objective=finish_time,space_sharing=true"),
    "kai": ("kai",),
    "las": ("las:quantum=20", "las:dims=1,quantum=3"),
    "multifactor": (
        "multifactor:period=5s,max_age=1m,half_life=20s",
        "multifactor:period=3s,max_age=30s,backfill=easy",
    ),
    "priority": ("priority",),
    "singularity": ("singularity", "singularity:premium=80,standard=50,window=20s"),
    "sjf": ("sjf", "sjf:by=gpu_time"),
    "srtf": ("srtf", "srtf:by=gpus", "srtf:by=gpu_time"),
    "themis": ("themis:lease=20s", "themis:lease=20s,filter=0"),
    "tiresias-gittins": (GITTINS,),
    "tiresias-las": ("tiresias-las:limits=20/60,starvation=2", "tiresias-las:dims=1,limits=3/6,profile=false"),
    "volcano": ("volcano", "volcano:queues=hdrf"),
    "yarn-cs": ("yarn-cs:relax_after=5,preempt_above=50",),
}
RESHAPING = ("gavel", "yarn-cs")
"""Policies that ask for other shapes as time passes: who lost a claim is judged once more in the shape it had."""

PLACEMENTS = ("count", "pack", "spread", "topology", "random")
SOME_COSTS = {
    "none": NO_COSTS,
    "default": Costs(),
    "odd": Costs(start_ms=700, checkpoint_ms=300, restore_ms=500, stop_ms=1, resize_ms=900, locality=False),
}
CLUSTERS = {
    "flat": lambda: flat(3, 4),
    "racks": lambda: racked(2, 2, 4),
    "unlike": lambda: Cluster((Node("a", (), 8, "A"), Node("b", (), 4, "B"), Node("c", (), 2, "B"))),
}


SIZED = ("antman", "gandiva", "optimus", "phalanx", "pollux")
"""Policies that size or reshape gangs as they run, for which another judge is needed: see test_sized_policies.py."""


def test_every_policy_is_tried() -> None:
    assert sorted((*POLICIES, *SIZED)) == sorted(BUILTIN)


@st.composite
def traced_jobs(draw: st.DrawFn, name: str, submit_ms: int) -> TraceJob:
    """Any job: one that is cancelled, fails, is elastic, a service, or larger than the cluster."""
    gpus = draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4, 5, 8, 12, 40]))
    elastic = draw(st.sampled_from([False, False, False, True]))
    return TraceJob(
        name,
        submit_ms,
        draw(st.integers(1, 40)) * draw(st.sampled_from([137, 1000])),
        gpus,
        queue=draw(st.sampled_from(["x", "y"])),
        priority=draw(st.sampled_from([0, 0, 5, 150, 250])),
        gpus_per_node=draw(st.sampled_from([0, 0, 1, 2])),
        gpu_type=draw(st.sampled_from(["", "", "", "B"])),
        model=draw(st.sampled_from(["", "vgg16", "resnet50"])),
        ending=draw(st.sampled_from([*[Ending.COMPLETED] * 3, *Ending])),
        min_gpus=max(gpus // 2, 1) if elastic else 0,
        max_gpus=gpus + draw(st.integers(1, 3)) if elastic else 0,
        deadline_ms=draw(st.sampled_from([None, submit_ms + 30_000])),
        checkpoint_cost_ms=draw(st.sampled_from([0, 0, 2_000])),
        cancel_ms=draw(st.sampled_from([None] * 5 + [submit_ms, submit_ms + 4_000])),
        kind=draw(st.sampled_from([Kind.TRAINING] * 4 + [Kind.SERVICE, Kind.INTERACTIVE])),
    )


@st.composite
def setups(draw: st.DrawFn, policy: str) -> Setup:
    count = draw(st.integers(1, 16))
    submits = sorted(draw(st.lists(st.integers(0, 40), min_size=count, max_size=count)))
    jobs = tuple(draw(traced_jobs(f"j{i}", 500 * at)) for i, at in enumerate(submits))
    cluster = CLUSTERS[draw(st.sampled_from(sorted(CLUSTERS)))]()
    placement = draw(st.sampled_from(PLACEMENTS))
    faults: tuple[tuple[int, str, str, str], ...] = ()
    if placement != "count" and draw(st.booleans()):
        node, at_ms = cluster.nodes[0].name, draw(st.integers(1, 20_000))
        health = draw(st.sampled_from([Health.FAILED, Health.DRAINING]))
        faults = ((at_ms, node, health, ""), (at_ms + 9_000, node, Health.HEALTHY, ""))
    costs = SOME_COSTS[draw(st.sampled_from(sorted(SOME_COSTS)))]
    return Setup(cluster, Trace("random", jobs), policy, placement, costs, draw(st.integers(0, 3)), faults)


class Watcher:
    """Works out anew, after every turn, what the State and the ledger keep up to date."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.judge = Judge(simulation.cluster)
        self.turns = TurnsAtMost(TURNS_MAX)

    def __call__(self, state: State) -> None:
        self.turns(state)
        self.check_devices(state)
        self.check_line(state)
        self.check_standing(state)
        self.check_ledger(state)
        self.check_nothing_is_left_to_do(state)

    def check_devices(self, state: State) -> None:
        state.capacity.check()
        for attempt in state.attempts():
            self.judge.check_placement(as_grown(attempt.job, state.record(attempt.job.id).job), attempt.placement)
            for action in attempt.in_flight.values():
                if isinstance(action, Resize):
                    self.judge.resizes[attempt.key] = action.placement
        self.judge.check_shares(state)
        self.judge.check_jobs(state)

    def check_line(self, state: State) -> None:
        queued = [record for record in state.jobs.values() if record.queued is not None]
        assert state.in_line == len(queued)
        assert state.in_line_gpus == sum(record.asked.gang.gpus_max for record in queued)
        in_classes = [entry for waiting in state.classes.values() for entry in waiting.jobs]
        assert sorted(in_classes) == sorted((record.queued or (), record.job.id) for record in queued)
        for waiting in state.classes.values():
            assert waiting.jobs == sorted(waiting.jobs)
            assert len({state.jobs[job].shape for _, job in waiting.jobs}) == 1

    def check_standing(self, state: State) -> None:
        """Who holds devices or was promised some, and is not leaving, stands in the order; else nobody does."""
        staying = [attempt for attempt in state.attempts() if not attempt.ceding]
        if state.policy.targets is Targets.KEEP:
            assert not list(state.standing.behind(()))
            return
        state.settle_running_order()
        standing = list(state.standing.behind(()))[::-1]
        assert sorted(attempt.key for attempt in standing) == sorted(attempt.key for attempt in staying)
        keys = [attempt.standing or () for attempt in standing]
        assert keys == sorted(keys)
        assert state.standing.gpus_behind(()) == sum(attempt.gpus for attempt in staying)
        if state.policy.targets in (Targets.RANK, Targets.REMAINING):
            for attempt, key in zip(standing, keys, strict=True):
                assert key == state.policy.order(state.jobs[attempt.job.id], state), f"{attempt.key} stands wrong"

    def check_ledger(self, state: State) -> None:
        backend, ledger = self.simulation.backend, self.simulation.backend.ledger
        assert ledger.held_now == sum(permille_of(held(attempt)) for attempt in state.attempts() if holds(attempt))
        for name in ("held", "computed", "lost"):
            assert getattr(ledger, name) == sum(getattr(account, name) for account in ledger.accounts.values()), name
        for record in state.jobs.values():
            name = record.job.id
            if name not in backend.lives:
                assert not record.service_gpu_ms(state.now)
                continue
            life, account = backend.lives[name], ledger.account(name)
            permille = permille_of(life.placement) if life.placement is not None else 0
            held_now = account.held + permille * (state.now - life.held_since_ms)
            computed_now = account.computed + (permille * (state.now - life.since_ms) if life.since_ms >= 0 else 0)
            assert account.lost <= computed_now <= held_now
            assert computed_now <= 1000 * record.service_gpu_ms(state.now) <= held_now
            if self.simulation.setup.costs == NO_COSTS and not record.job.checkpoint.cost_ms:
                assert computed_now == held_now
        assert ledger.held_now <= 1000 * self.simulation.cluster.gpus

    def check_nothing_is_left_to_do(self, state: State) -> None:
        """Deciding again changes nothing, not even if everybody in line is looked at anew."""
        again = decide(state, state.now)
        # With reservations, why somebody waits can change by what others got in the same decision.
        assert not again.news(state.head) or state.policy.reserve is not Reserve.NOBODY
        assert not again.claims
        assert not again.actions
        assert not again.withdrawn
        if state.policy.name in RESHAPING:
            return
        clean_seq, state.clean_seq = state.clean_seq, -1
        plan = decide(state, state.now)
        state.clean_seq = clean_seq
        assert not plan.claims, f"{plan.starts} could have started at {state.now} ms"
        assert not plan.actions


def holds(attempt: AttemptRecord) -> bool:
    return attempt.phase is not Phase.CLAIMED


def held(attempt: AttemptRecord) -> Placement:
    """What an attempt holds: while it grows what it will have, while it moves that and what it has."""
    for action in attempt.in_flight.values():
        if isinstance(action, Resize):
            will_have, has = permille_of(action.placement), permille_of(attempt.placement)
            if will_have > has:
                return action.placement
            if will_have == has and attempt.placement != action.placement:
                return Placement((*attempt.placement.slots, *action.placement.slots))
    return attempt.placement


SPECS = [
    pytest.param(spec, marks=[pytest.mark.needs("highspy")] if name == "gavel" else [])
    for name, specs in POLICIES.items()
    for spec in specs
]


@pytest.mark.long
@pytest.mark.parametrize("policy", SPECS)
@given(st.data())
@settings(max_examples=30)
def test_every_turn_leaves_the_state_sound(policy: str, data: st.DataObject) -> None:
    simulation = Simulation(data.draw(setups(policy)))
    simulation.begin()
    simulation.go(watch=Watcher(simulation))
    check_the_end(simulation)


ENDS = {
    Ending.COMPLETED: JobState.SUCCEEDED,
    Ending.FAILED: JobState.FAILED,
    Ending.CANCELLED: JobState.CANCELLED,
}


def check_the_end(simulation: Simulation) -> None:
    """Everybody whose job could ever run is gone, as the trace says, and everything has been given back."""
    state = simulation.run.state
    for traced in simulation.setup.trace.jobs:
        record = state.jobs[traced.id]
        if record.final is None:
            assert state.reason(traced.id) is Reason.NEVER_FITS, f"{traced.id} is left over: {state.reason(traced.id)}"
        else:
            may_be_cancelled = [JobState.CANCELLED] if traced.cancel_ms is not None else []
            assert record.final in (ENDS[traced.ending], *may_be_cancelled)
    assert state.capacity.free_total == simulation.cluster.gpus
    assert simulation.backend.ledger.held_now == 0


UNLIKE, RACKS = CLUSTERS["unlike"](), CLUSTERS["racks"]()
BACK_AT_9 = ((97, "a", "failed", ""), (9_097, "a", "healthy", ""))
RARE = {
    "fewer GPUs than it wants on each node": Setup(
        UNLIKE, Trace("t", (TraceJob("a", 0, 137, 1, gpus_per_node=2),)), "fifo", "pack", NO_COSTS
    ),
    "a claim that is taken back leaves what it was promised": Setup(
        UNLIKE,
        Trace(
            "t",
            (
                TraceJob("a", 0, 25_000, 12),
                TraceJob("b", 0, 1_644, 12, min_gpus=6, max_gpus=14),
                TraceJob("c", 4_500, 3_288, 3),
                TraceJob("d", 5_000, 3_288, 1),
            ),
        ),
        "srtf:by=gpus",
        "count",
    ),
    "who has grown can give way again": Setup(
        RACKS,
        Trace("t", (TraceJob("a", 3_000, 4_932, 12, min_gpus=6, max_gpus=14), TraceJob("b", 15_500, 32_000, 3))),
        "las:dims=1,quantum=3",
        "pack",
        faults=((386, "n0", "draining", ""), (9_386, "n0", "healthy", "")),
    ),
    "who grows stands in the order with the GPUs it has": Setup(
        RACKS,
        Trace(
            "t",
            (
                TraceJob("a", 1_000, 32_000, 5),
                TraceJob("b", 1_000, 7_000, 5, min_gpus=2, max_gpus=8),
                TraceJob("c", 1_000, 2_740, 1),
                TraceJob("d", 1_000, 4_658, 5),
                TraceJob("e", 1_000, 3_000, 12),
            ),
        ),
        "tiresias-las:limits=20/60,starvation=2",
        "pack",
        NO_COSTS,
    ),
    "a gang has part of its room on one node and its victims on another": Setup(
        UNLIKE,
        Trace(
            "t",
            (
                TraceJob("a", 0, 32_000, 8, kind=Kind.SERVICE),
                TraceJob("b", 0, 12_000, 2, kind=Kind.SERVICE),
                TraceJob("c", 8_500, 32_000, 1, priority=250),
                TraceJob("d", 15_500, 1_096, 2),
                TraceJob("e", 15_500, 18_000, 8, priority=250, min_gpus=4, max_gpus=11),
            ),
        ),
        "priority",
        "pack",
    ),
    "nothing that is reserved for others behind holds up who comes before them": Setup(
        UNLIKE,
        Trace(
            "t", (TraceJob("a", 0, 2_603, 2), TraceJob("b", 0, 20_000, 8), TraceJob("c", 0, 21_000, 5, gpus_per_node=1))
        ),
        "backfill",
        "pack",
        faults=((3_121, "a", "failed", ""), (12_121, "a", "healthy", "")),
    ),
    "what was reserved is made anew when somebody runs longer than expected": Setup(
        UNLIKE,
        Trace(
            "t",
            (
                TraceJob("a", 0, 5_343, 11),
                TraceJob("b", 12_500, 4_110, 3),
                TraceJob("c", 12_500, 3_014, 11),
                TraceJob("d", 12_500, 26_000, 2, min_gpus=1, max_gpus=5),
                TraceJob("e", 12_500, 2_740, 1),
            ),
        ),
        "backfill:mode=conservative",
        "pack",
        NO_COSTS,
        faults=BACK_AT_9,
    ),
    "the head has its reservation again once the hardware is back": Setup(
        UNLIKE,
        Trace(
            "t",
            (
                TraceJob("a", 0, 24_000, 8),
                TraceJob("b", 0, 32_000, 5),
                TraceJob("c", 0, 32_000, 1),
                TraceJob("d", 0, 12_000, 12, min_gpus=6, max_gpus=15),
                TraceJob("e", 17_500, 24_000, 1),
            ),
        ),
        "backfill",
        "pack",
        NO_COSTS,
        faults=BACK_AT_9,
    ),
    "what is not reserved any more is to be had": Setup(
        RACKS,
        Trace(
            "t",
            (
                TraceJob("a", 0, 3_151, 11),
                TraceJob("b", 2_500, 5_069, 3, min_gpus=1, max_gpus=6),
                TraceJob("c", 2_500, 3_151, 5),
                TraceJob("d", 2_500, 1_918, 2),
                TraceJob("e", 17_500, 3_562, 4),
                TraceJob("f", 17_500, 3_151, 5, min_gpus=2, max_gpus=6),
            ),
        ),
        "backfill",
        "pack",
    ),
}


@pytest.mark.parametrize("name", RARE)
def test_every_turn_leaves_the_state_sound_where_it_is_easily_missed(name: str) -> None:
    simulation = Simulation(RARE[name])
    simulation.begin()
    simulation.go(watch=Watcher(simulation))
    check_the_end(simulation)
