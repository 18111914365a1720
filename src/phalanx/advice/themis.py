"""The adviser of policy themis: works out how unfairly jobs fare, and holds the auctions of what has no lease."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from zlib import crc32

from phalanx.advice.auction import Bid, auction
from phalanx.advice.present import present_jobs
from phalanx.engine.state.records import FOREVER_MS, JobRecord, Phase
from phalanx.engine.state.state import State
from phalanx.policy.themis import Rule
from phalanx.protocol.event import Advice
from phalanx.workload.throughputs import Throughputs

KEPT_MIN = 0.1
"""The least part of a lease that is worth a start."""

REMAINING_MIN_MS = 1000
"""A job that has run for as long as it said has so little left."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job fares at an auction. `rho` is its finish-time fairness: above 1 it is worse off than with its part."""

    record: JobRecord
    rho: float
    elapsed_ms: int
    remaining_ms: int
    lease_end_ms: int | None

    @property
    def job(self) -> str:
        return self.record.job.id

    def is_up(self, now: int) -> bool:
        """Whether it has no lease, or none any more."""
        return self.lease_end_ms is None or self.lease_end_ms <= now

    def bid(self, lease_ms: int) -> Bid:
        """What a lease is worth: how many times sooner it would be done than if it waited for the next."""
        done_ms = self.elapsed_ms + self.remaining_ms
        return Bid(self.job, self.record.job.gang.gpus_min, log((done_ms + lease_ms) / done_ms))


class Themis:
    """Answers for one State after the other. It keeps nothing, and asks nothing of speeds."""

    def __init__(self, throughputs: Throughputs | None = None) -> None:
        pass

    def __call__(self, state: State, now: int) -> Advice:
        """The auction that takes place now."""
        rule = Rule(**state.memory["rule"])
        standings = _standings(state, rule, now)
        up = [each for each in standings if each.is_up(now)]
        gpus = _capacity(state) - sum(each.record.gpus for each in standings if not each.is_up(now))
        bidders = sorted(up, key=lambda each: (-each.rho, each.record.number))[: rule.bidders(len(up))]
        won = auction([each.bid(rule.lease_ms) for each in bidders], max(gpus, 0), rule.payments)
        body = {f"lease {job}": float(now + round(max(kept, KEPT_MIN) * rule.lease_ms)) for job, kept in won}
        winners = dict.fromkeys(job for job, _ in won)
        for rank, job in enumerate((*winners, *_by_lot(up, winners, state.memory["round"]))):
            body[f"rank {job}"] = float(rank)
        for each in up:
            if each.lease_end_ms is not None and each.job not in winners:
                body[f"up {each.job}"] = float(each.record.opened[1])
        body.update((f"rho {each.job}", round(each.rho, 6)) for each in bidders)
        next_ms = _next_ms(standings, body, rule, now)
        if next_ms is not None:
            body["next"] = float(next_ms)
        return Advice("themis", body)


def _standings(state: State, rule: Rule, now: int) -> list[Standing]:
    present = sorted(present_jobs(state), key=lambda record: record.number)
    gpus = max(state.total.gpu_permille // 1000, 1)
    return [_standing(state, record, rule, now, len(present) / gpus) for record in present if record.job.gang.gpus_min]


def _standing(state: State, record: JobRecord, rule: Rule, now: int, jobs_per_gpu: float) -> Standing:
    """ρ = T_shared ÷ T_ideal, the latter with 1/N of the cluster, on which a job is slower in proportion."""
    executed_ms, elapsed_ms = record.executed_ms(now), now - record.submitted_ms
    estimate_ms = record.estimate_ms
    if estimate_ms >= FOREVER_MS:
        # Nothing is known: a job that has run for so long will run for as long again.
        estimate_ms = 2 * max(executed_ms, rule.lease_ms)
    remaining_ms = max(estimate_ms - executed_ms, REMAINING_MIN_MS)
    ideal_ms = max(estimate_ms, executed_ms + REMAINING_MIN_MS) * max(1.0, record.job.gang.gpus_max * jobs_per_gpu)
    rho = (elapsed_ms + remaining_ms) / ideal_ms
    return Standing(record, rho, elapsed_ms, remaining_ms, _lease_end_ms(state, record, rule))


def _lease_end_ms(state: State, record: JobRecord, rule: Rule) -> int | None:
    """A job that gets devices has them for a lease; a winner, for what it keeps of one. None: it has no lease."""
    attempt = record.attempt
    if attempt is None or attempt.phase is Phase.STOPPING or attempt.key in state.to_stop:
        return None
    won_ms: int | None = state.memory["leases"].get(record.job.id)
    return won_ms if won_ms is not None else record.opened[0] + rule.lease_ms


def _capacity(state: State) -> int:
    """GPUs that take new work, less those of attempts that may not be stopped."""
    capacity = state.capacity
    gpus = sum(
        (capacity.all_devices[node] & ~capacity.unhealthy[node]).bit_count()
        for node in range(len(state.topology.nodes))
        if capacity.open >> node & 1
    )
    return gpus - sum(attempt.gpus for attempt in state.attempts_present() if not attempt.stoppable)


def _by_lot(up: list[Standing], winners: dict[str, None], auction_number: int) -> list[str]:
    """The rest, for what is left over, in an order as good as drawn by lot and the same whenever it is asked for."""
    rest = [each.job for each in up if each.job not in winners]
    return sorted(rest, key=lambda job: (crc32(f"{auction_number} {job}".encode()), job))


def _next_ms(standings: list[Standing], body: dict[str, float], rule: Rule, now: int) -> int | None:
    """When the next lease ends; None while no job waits, or none has anything that could be auctioned."""
    ends = [body.get(f"lease {each.job}", each.lease_end_ms) for each in standings if each.lease_end_ms is not None]
    waits = any(each.lease_end_ms is None for each in standings)
    if not waits or not ends:
        return None
    return max(int(min(end for end in ends if end is not None)), now + rule.pause_ms)
