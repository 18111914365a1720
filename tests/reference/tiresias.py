"""What the product is compared with: the rules of the Tiresias simulator (Gu et al., NSDI 2019), written plainly.

One integer of free GPUs, integer times, gangs all or nothing, preemption and placement free. It is slow on purpose:
queues are lists, everything is looked at again at every event, nothing is kept up to date. It shares no code with the
product.

At one instant: completions, arrivals in file order, queue jumps, then one scheduling pass.

Where the rules leave room:
- A job larger than the cluster never enters a queue, so that it holds up nobody, not even in strict fifo.
- A job moves one queue an event. If it is then due for another jump, it makes that at the next event, whatever that is.
- Jobs that move at one instant do so in the order of submission.
- Jobs of equal key keep the order they had among all, which the keys of the past have made: `ties="place"`. With
  `ties="submission"` the earlier submitted goes first.
- Waiting counts towards promotion in every queue once the job has run, goes on counting over later runs, and starts
  again at zero with the promotion.
- With no sample above a job's service its Gittins index is 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import accumulate
from math import floor
from typing import Any

NEVER = 10**18


@dataclass(frozen=True, slots=True)
class RefJob:
    id: str
    submit: int
    duration: int
    gpus: int


@dataclass(frozen=True, slots=True)
class RefResult:
    """`start` (the first) and `end` hold the jobs that ran, `preemptions` all; makespan is from the first submit."""

    start: dict[str, int]
    end: dict[str, int]
    preemptions: dict[str, int]
    mean_jct: Fraction
    makespan: int


@dataclass(eq=False, slots=True)
class Run:
    """A submitted job that has not ended."""

    job: RefJob
    number: int  # among all submitted
    running: bool = False
    queue: int = 0
    remaining: int = 0
    executed: int = 0  # since it last entered queue 0
    waited: int = 0  # after having run, since it last entered queue 0

    def let_pass(self, elapsed: int) -> None:
        if self.running:
            self.remaining -= elapsed
            self.executed += elapsed
        elif self.executed > 0:
            self.waited += elapsed


@dataclass(eq=False)
class Rule:
    """One list of all jobs in the system; says who gets GPUs."""

    queues: list[list[Run]] = field(init=False, default_factory=lambda: [[]])

    def jump(self) -> None:
        """Moves the jobs that are due from queue to queue."""

    def next_jumps(self, now: int) -> list[int]:
        return []

    def choose(self, gpus: int) -> list[Run]:
        """The jobs that get GPUs: in queue order and list order, each that still fits."""
        chosen = []
        for run in (run for queue in self.queues for run in queue):
            if run.job.gpus <= gpus:
                gpus -= run.job.gpus
                chosen.append(run)
        return chosen

    def settle(self) -> None:
        """Reorders the queues after the pass."""


class Fifo(Rule):
    """Up to the first that does not fit. All that run came before all that wait, so nobody is preempted."""

    def choose(self, gpus: int) -> list[Run]:
        used = accumulate(run.job.gpus for run in self.queues[0])
        return [run for run, total in zip(self.queues[0], used, strict=True) if total <= gpus]


class Fjf(Rule):
    """As fifo, but skips what does not fit; those that run come first, so nobody is preempted."""

    def settle(self) -> None:
        for queue in self.queues:
            queue.sort(key=lambda run: not run.running)  # stable


@dataclass(eq=False)
class Smallest(Rule):
    """All jobs sorted in place by a key; each that still fits runs, the rest do not."""

    key: Callable[[Run], int]
    ties: str = "place"

    def choose(self, gpus: int) -> list[Run]:
        if self.ties == "submission":
            self.queues[0].sort(key=lambda run: run.number)
        self.queues[0].sort(key=self.key)
        return super().choose(gpus)


@dataclass(eq=False)
class Dlas(Fjf):
    """A row of fjf queues: a running job whose service reaches its queue's limit goes to the end of the next."""

    limits: Sequence[int]
    width: Callable[[RefJob], int]

    def __post_init__(self) -> None:
        self.queues = [[] for _ in range(len(self.limits) + 1)]

    def service(self, run: Run) -> int:
        return run.executed * self.width(run.job)

    def time_to_jump(self, run: Run) -> int:
        """How long until the job is due to jump if it goes on as it is; 0 or less: it is due."""
        if not run.running or run.queue == len(self.limits):
            return NEVER
        missing = self.limits[run.queue] - self.service(run)
        return -(-missing // self.width(run.job))  # rounded up

    def leap(self, run: Run) -> int:
        """Takes what a jump changes in the job and says which queue it goes to."""
        return run.queue + 1

    def jump(self) -> None:
        due = [run for queue in self.queues for run in queue if self.time_to_jump(run) <= 0]
        for run in sorted(due, key=lambda run: run.number):
            self.queues[run.queue].remove(run)
            run.queue = self.leap(run)
            self.queues[run.queue].append(run)

    def next_jumps(self, now: int) -> list[int]:
        times = [self.time_to_jump(run) for queue in self.queues for run in queue]
        return [now + time for time in times if time > 0]


@dataclass(eq=False)
class PromotingDlas(Dlas):
    """A pending job below queue 0 that has run and waited ⌊executed · knob⌋ goes back to queue 0 as if new."""

    knob: Fraction | float

    def time_to_jump(self, run: Run) -> int:
        if run.running or run.queue == 0 or run.executed == 0:
            return super().time_to_jump(run)
        return floor(run.executed * self.knob) - run.waited

    def leap(self, run: Run) -> int:
        if run.running:
            return super().leap(run)
        run.executed = 0
        run.waited = 0
        return 0


@dataclass(eq=False)
class Gittins(Dlas):
    """As dlas-gpu, with each queue sorted by index before the pass, highest first, ties by submit time."""

    index: Callable[[int], Fraction]

    def choose(self, gpus: int) -> list[Run]:
        for queue in self.queues:
            queue.sort(key=lambda run: (-self.index(self.service(run)), run.job.submit))
        return super().choose(gpus)


def gittins_index(samples: Sequence[int], service: int, quantum: int, form: str = "theory") -> Fraction:
    """P/E over the next quantum: the chance to end in it, over the expected service spent in it.

    Samples are total services of past jobs, in rising order. With `form="code"` a job that ends counts with its whole
    size, as in the authors' simulator, where theory counts what it still needs.
    """
    first = bisect_right(samples, service)
    last = bisect_right(samples, service + quantum)
    ending = samples[first:last]
    # Both P and E are divided by the number of samples above `service`, which cancels.
    spent = sum(ending) + quantum * (len(samples) - last)
    if form == "theory":
        spent -= service * len(ending)
    elif form != "code":
        raise ValueError(f"form is {form!r}; expected 'theory' or 'code'")
    return Fraction(len(ending), spent) if ending else Fraction(0)


def rule_named(
    name: str,
    tick: int = 1,
    limits: Sequence[int] = (3250, 7200),
    knob: Fraction | float = 2,
    samples: Sequence[int] = (),
    quantum: int = 3250,
    form: str = "theory",
    ties: str = "place",
) -> Rule:
    """A rule with its parameters: limits, quantum and samples in (GPU-)seconds, a second being `tick` units of time."""
    ticks = [limit * tick for limit in limits]
    history = sorted(sample * tick for sample in samples)
    index = cache(lambda service: gittins_index(history, service, quantum * tick, form))
    rules: dict[str, Callable[[], Rule]] = {
        "fifo": Fifo,
        "fjf": Fjf,
        "sjf": lambda: Smallest(lambda run: run.job.gpus, ties),
        "shortest": lambda: Smallest(lambda run: run.remaining, ties),
        "shortest-gpu": lambda: Smallest(lambda run: run.remaining * run.job.gpus, ties),
        "dlas": lambda: Dlas(ticks, lambda job: 1),
        "dlas-gpu": lambda: Dlas(ticks, lambda job: job.gpus),
        "dlas-gpu-s": lambda: PromotingDlas(ticks, lambda job: job.gpus, knob),
        "gittins": lambda: Gittins(ticks, lambda job: job.gpus, index),
    }
    if name == "gittins" and not samples:
        raise ValueError("gittins needs samples of past services")
    if name not in rules:
        raise ValueError(f"no rule {name!r}; expected one of {', '.join(rules)}")
    return rules[name]()


def simulate(jobs: list[RefJob], gpus: int, rule: str, **parameters: Any) -> RefResult:
    """Runs the jobs to their ends. The parameters are those of `rule_named`."""
    if len({job.id for job in jobs}) < len(jobs) or any(job.gpus < 1 or job.duration < 1 for job in jobs):
        raise ValueError("expected jobs with ids of their own, at least 1 GPU and a duration of at least 1")
    policy = rule_named(rule, **parameters)
    coming = sorted((job for job in jobs if job.gpus <= gpus), key=lambda job: job.submit)
    live: list[Run] = []
    result = RefResult({}, {}, {job.id: 0 for job in jobs}, Fraction(0), 0)
    now = 0
    while coming or live:
        ends = [now + run.remaining for run in live if run.running]
        then = min([job.submit for job in coming[:1]] + ends + policy.next_jumps(now))
        for run in live:
            run.let_pass(then - now)
        now = then
        for run in [run for run in live if run.remaining == 0]:
            result.end[run.job.id] = now
            policy.queues[run.queue].remove(run)
            live.remove(run)
        while coming and coming[0].submit == now:
            live.append(Run(coming[0], len(jobs) - len(coming), remaining=coming.pop(0).duration))
            policy.queues[0].append(live[-1])
        policy.jump()
        give_gpus(live, policy.choose(gpus), result, now)
        policy.settle()
    return summed_up(jobs, result)


def give_gpus(live: list[Run], chosen: list[Run], result: RefResult, now: int) -> None:
    ids = {run.job.id for run in chosen}
    for run in live:
        if run.running and run.job.id not in ids:
            result.preemptions[run.job.id] += 1
        run.running = run.job.id in ids
        if run.running:
            result.start.setdefault(run.job.id, now)


def summed_up(jobs: list[RefJob], result: RefResult) -> RefResult:
    spans = [result.end[job.id] - job.submit for job in jobs if job.id in result.end]
    if not spans:
        return result
    makespan = max(result.end.values()) - min(job.submit for job in jobs)
    return RefResult(result.start, result.end, result.preemptions, Fraction(sum(spans), len(spans)), makespan)
