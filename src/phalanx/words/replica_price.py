"""What replicas of a service would cost other jobs, in one line."""

from __future__ import annotations

from phalanx.engine.why.replica_price import GivesWay, Had, ReplicaPrice
from phalanx.words.others import with_size
from phalanx.words.phrases import counted, gpu_time

HAD = {
    Had.FREE: "{what} would take free GPUs",
    Had.MAX: "it is at its maximum size",
    Had.QUOTA: "{what} would exceed the quota of its queue",
    Had.NO_ROOM: "there is no place for {what}: preempting jobs of lower priorities does not free enough",
}


def price_words(price: ReplicaPrice | None) -> str:
    """`1 more replica would stop job 12 of queue llm (8 GPUs): 3.5 GPU-hours lost`; empty for no price."""
    if price is None:
        return ""
    what = counted(price.replicas, "replica")
    if price.had is not Had.PREEMPTION:
        return HAD[price.had].format(what=what)
    if not price.gives_way:
        return f"{what} would take GPUs of jobs that are ending already"
    amounts, unit = gpu_time(price.lost_gpu_ms)
    return f"{what} would {' and '.join(map(_gives_way, price.gives_way))}: {amounts[0]} {unit} lost"


def _gives_way(each: GivesWay) -> str:
    if each.gpus:
        return f"shrink {with_size(each.other)} by {counted(each.gpus, 'GPU')}"
    return f"stop {with_size(each.other)}"
