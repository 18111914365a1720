"""yarn-cs: capacity queues, as YARN's scheduler shared out Philly (Jeon et al., ATC 2019).

Each queue is entitled to a share of the GPUs. One may take more while other queues leave theirs idle, and gives the
surplus back, by preemption, once the cluster is nearly full and the owners want what is theirs. A gang is first asked
for as it is, close together; after some time of trying it takes what there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import NamedTuple

from phalanx.cluster.queues import GPUS_PERMILLE
from phalanx.policy.about import About
from phalanx.policy.factor import Measure
from phalanx.policy.loose import loosened
from phalanx.policy.parameters import ParameterError, Parameters
from phalanx.policy.policy import Key, Policy
from phalanx.policy.view import JobView, Moment, RunView, Usage
from phalanx.workload.gang import Gang

RELAX_AFTER_S = 240
"""One try at Philly: two minutes of holding what was found, and two of backing off."""

ENTITLED, NOT_ENTITLED = 0, 1


class Shares(NamedTuple):
    """What queues are entitled to: a queue to so many parts of a whole. `common` is a multiple of all parts."""

    parts: Mapping[str, int]
    whole: int
    common: int


def yarn_cs(parameters: Parameters) -> Policy:
    """`shares` of queues; `preempt_above` percent in use owners get theirs back; `relax_after` seconds gangs spread."""
    named = parameters.per_queue("shares")
    above_percent = parameters.integer("preempt_above", default=90, least=0, most=100)
    relax_after_ms = 1000 * parameters.integer("relax_after", default=RELAX_AFTER_S, least=0)
    if sum(named.values()) > 1:
        raise ParameterError(f"policy yarn-cs: shares add up to {float(sum(named.values())):g}: expected at most 1")

    @lru_cache(maxsize=64)
    def shares(queues: tuple[str, ...]) -> Shares:
        return shares_of(named, queues)

    def queue_order(queue: str, usage: Usage, at: Moment) -> Key:
        parts, _, common = shares(at.queues())
        if not parts[queue]:
            return (NOT_ENTITLED, usage.gpu_permille)
        return (ENTITLED, usage.gpu_permille * common // parts[queue])

    def measures(queue: str, usage: Usage, at: Moment) -> tuple[Measure, ...]:
        parts, whole, _ = shares(at.queues())
        used, share = usage.gpu_permille / max(at.total.gpu_permille, 1), parts[queue] / whole
        return (Measure("share", share), Measure("used", used), Measure("of_share", used / share if share else None))

    def share_of(queue: str, at: Moment) -> int:
        parts, whole, _ = shares(at.queues())
        return -(-at.total.gpu_permille * parts[queue] // whole)

    def keeps(queue: str, at: Moment) -> int:
        """Where the cluster describes queues, quotas say what is reclaimed: a share keeps no queue from its own."""
        described = at.queue(queue)
        return share_of(queue, at) if described is None else described.deserved[GPUS_PERMILLE] or 0

    def victims(head: JobView, victim: RunView, at: Moment) -> bool:
        used = sum(at.usage(queue).gpu_permille for queue in at.queues())
        if 100 * used <= above_percent * at.total.gpu_permille:
            return False
        parts, whole, _ = shares(at.queues())
        queue, other = head.job.queue, victim.job.queue
        wanted = at.usage(queue).gpu_permille + 1000 * head.job.gang.gpus_min
        within_its_share = wanted * whole <= parts[queue] * at.total.gpu_permille
        return within_its_share and at.usage(other).gpu_permille > share_of(other, at)

    def relaxes_ms(job: JobView) -> int:
        tries_from_ms = max(job.submitted_ms, job.job.begin_ms or 0, job.stopped_ms or 0)
        return tries_from_ms + relax_after_ms

    def shape(job: JobView, at: Moment) -> Gang:
        return loosened(job.job.gang) if at.now >= relaxes_ms(job) else job.job.gang

    def changes(job: JobView, at: Moment) -> int | None:
        return relaxes_ms(job) if not job.has_devices and at.now < relaxes_ms(job) else None

    return Policy(
        "yarn-cs",
        queue_order=queue_order,
        measures=measures,
        victims=victims,
        keeps=keeps,
        shape=shape,
        changes=changes,
        parameters=parameters.given,
        about=ABOUT,
    )


def shares_of(named: Mapping[str, Fraction], queues: tuple[str, ...]) -> Shares:
    """The named shares; the other queues divide what these leave, in equal parts."""
    others = [queue for queue in queues if queue not in named]
    each = (1 - sum(named.values(), Fraction(0))) / max(len(others), 1)
    fractions = {**named, **dict.fromkeys(others, each)}
    whole = lcm(*(share.denominator for share in fractions.values()))
    parts = {queue: share.numerator * (whole // share.denominator) for queue, share in fractions.items()}
    return Shares(parts, whole, lcm(*(part for part in parts.values() if part)))


ABOUT = About(
    summary="capacity queues that lend what is idle, and get it back once the cluster is full",
    algorithm="first in, first out, in capacity queues",
    decides_by="what a queue uses of its share, then submission",
    dimensions="spatial between queues, temporal inside",
    preemption="yes, of what a queue has beyond its share",
    starvation="no queue starves; large jobs in one may",
    placement="consolidated, relaxed after a time",
    source="Jeon et al., ATC 2019",
)
