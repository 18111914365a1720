"""Queues of KAI, read from their manifests (scheduling.run.ai).

| KAI | here |
|---|---|
| `quota` of a resource | `deserved`; 0 says nothing; -1, without end, says nothing, and of GPUs nothing is reclaimed |
| `limit` of a resource | `limit`; -1 is none; 0, or none given, is nothing beyond `quota` |
| `overQuotaWeight` of a resource | `weight`, in whole numbers of that proportion; 0 is nothing beyond `quota` |
| `priority` | the same; 100 if none is given |
| `preemptMinRuntime` | `min_run`; that of the queue it lies in if none is given |
| `reclaimMinRuntime` | `min_run_reclaim`; 0 at the top if it has none and a queue has `preemptMinRuntime` |
| `parentQueue` | the queue it lies in |
| a resource that is not named | `limit` 0: in KAI its quota and limit are 0, and the queue gets none of it |

CPUs come in thousandths, and memory in megabytes of a million bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

from phalanx.cluster.formats.limits import GPUS_MAX, QUEUE_PRIORITY_MAX, QUEUE_WEIGHT_MAX
from phalanx.cluster.formats.manifests import Manifest, read_manifests
from phalanx.cluster.formats.queue_tree import Imported, Named, as_tree
from phalanx.cluster.queues import Queue, Quota
from phalanx.document import Field, Fields

API = "scheduling.run.ai"
SPEC_KEYS = ("displayName", "parentQueue", "priority", "resources", "preemptMinRuntime", "reclaimMinRuntime")
RESOURCES = ("gpu", "cpu", "memory")
RESOURCE_KEYS = ("quota", "limit", "overQuotaWeight")
PER_UNIT = (Fraction(1000), Fraction(1), Fraction(10**6, 1 << 20))
"""How many of what is counted here make one of KAI's: of a GPU, a thousandth of a CPU, a million bytes."""

PRIORITY = 100
UNLIMITED = Fraction(-1)
AMOUNT_MAX = 1000 * GPUS_MAX * 1000


class Amount(NamedTuple):
    """What a queue has of one resource, as KAI says it."""

    quota: Fraction
    limit: Fraction
    weight: Fraction

    @property
    def is_capped(self) -> bool:
        """Whether it may have nothing beyond its quota."""
        return not self.limit or not self.weight


@dataclass(frozen=True, slots=True)
class KaiQueue:
    """One queue as its manifest says it."""

    manifest: Manifest
    parent: str
    priority: int
    amounts: tuple[Amount | None, ...]
    min_run_ms: int | None
    min_run_reclaim_ms: int | None
    lost: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its own name."""
        return self.manifest.name

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """Its parts of what is left over of each resource; as of GPUs, where it has no part and none is needed."""
        gpus, *others = self.amounts
        own = gpus.weight if gpus is not None else Fraction(1)
        return (own, *(amount.weight if amount is not None and amount.weight else own for amount in others))

    @property
    def keeps_all(self) -> bool:
        """Whether its quota of GPUs has no end, so that it never has more than that."""
        return self.amounts[0] is not None and self.amounts[0].quota == UNLIMITED


def read_kai_queues(text: str, source: str) -> Imported:
    """The tree of the queues in a file of manifests."""
    queues = [_read(manifest) for manifest in read_manifests(text, source, API, "Queue")]
    by_name = {queue.name: queue for queue in queues}
    weights = _whole_weights(queues)
    return as_tree(tuple(_named(queue, by_name, weights[queue.name]) for queue in queues))


def _read(manifest: Manifest) -> KaiQueue:
    spec = manifest.fields.get("spec", lambda spec: spec.mapping(SPEC_KEYS), None) or Fields(manifest.place, {})
    resources = spec.get("resources", lambda field: field.mapping(RESOURCES), None) or Fields(manifest.place, {})
    lost = [*manifest.remarks]
    if "displayName" in spec:
        lost.append(f"displayName: {spec['displayName'].text()}")
    return KaiQueue(
        manifest,
        spec.get("parentQueue", Field.text, ""),
        spec.get("priority", lambda field: field.integer(-QUEUE_PRIORITY_MAX, QUEUE_PRIORITY_MAX), PRIORITY),
        tuple(resources.get(resource, _read_amount, None) for resource in RESOURCES),
        spec.get("preemptMinRuntime", Field.duration_ms, None),
        spec.get("reclaimMinRuntime", Field.duration_ms, None),
        tuple(lost),
    )


def _read_amount(field: Field) -> Amount:
    fields = field.mapping(RESOURCE_KEYS)
    return Amount(
        fields.get("quota", _read_number, Fraction(0)),
        fields.get("limit", _read_number, Fraction(0)),
        fields.get("overQuotaWeight", lambda weight: Fraction(weight.decimal(0, QUEUE_WEIGHT_MAX)), Fraction(1)),
    )


def _read_number(field: Field) -> Fraction:
    value = Fraction(field.decimal(-1, AMOUNT_MAX))
    if value < 0 and value != UNLIMITED:
        raise field.expected("an amount, or -1 for no end")
    return value


def _named(queue: KaiQueue, by_name: dict[str, KaiQueue], weights: tuple[int, ...]) -> Named:
    reclaim_ms = queue.min_run_reclaim_ms
    if queue.parent not in by_name and any(other.min_run_ms for other in by_name.values()):
        # Else the time before a preemption would hold for reclaims, too.
        reclaim_ms = reclaim_ms or 0
    weight, *others = weights
    cpu_weight, memory_weight = (None if other == weight else other for other in others)
    made = Queue(
        queue.name,
        deserved=Quota(*map(_deserved, queue.amounts, PER_UNIT)),
        limit=Quota(*map(_limit, queue.amounts, PER_UNIT)),
        weight=weight,
        priority=queue.priority,
        reclaimable=not queue.keeps_all,
        min_run_ms=_min_run_ms(queue, by_name),
        min_run_reclaim_ms=reclaim_ms,
        cpu_weight=cpu_weight,
        memory_weight=memory_weight,
    )
    lost = (*queue.lost, *_lost(queue))
    return Named(queue.manifest.place, queue.name, queue.parent, made, lost)


def _deserved(amount: Amount | None, per_unit: Fraction) -> int | None:
    return _counted(amount.quota, per_unit) if amount is not None and amount.quota > 0 else None


def _limit(amount: Amount | None, per_unit: Fraction) -> int | None:
    if amount is None:
        return 0
    limit = amount.quota if amount.is_capped else amount.limit
    return None if limit == UNLIMITED else _counted(limit, per_unit)


def _counted(amount: Fraction, per_unit: Fraction) -> int:
    return -(-(amount * per_unit).numerator // (amount * per_unit).denominator)


def _min_run_ms(queue: KaiQueue, by_name: dict[str, KaiQueue]) -> int:
    """That of the queue, or of the nearest that it lies in and that says any."""
    for _ in by_name:
        if queue.min_run_ms is not None or queue.parent not in by_name:
            break
        queue = by_name[queue.parent]
    return queue.min_run_ms or 0


def _whole_weights(queues: list[KaiQueue]) -> dict[str, tuple[int, ...]]:
    """Weights as whole numbers: among those that lie in one queue only their proportion matters."""
    beside: dict[str, list[KaiQueue]] = {}
    for queue in queues:
        beside.setdefault(queue.parent, []).append(queue)
    found: dict[str, tuple[int, ...]] = {}
    for neighbours in beside.values():
        whole = lcm(*(weight.denominator for queue in neighbours for weight in queue.weights))
        parts = [[int(weight * whole) for weight in queue.weights] for queue in neighbours]
        common = gcd(*(part for of_one in parts for part in of_one)) if whole > 1 else 1
        for queue, of_one in zip(neighbours, parts, strict=True):
            if max(of_one) > common * QUEUE_WEIGHT_MAX:
                raise queue.manifest.place.error("its overQuotaWeight and those beside it have too many digits")
            found[queue.name] = tuple(max(part // common, 1) for part in of_one)
    return found


def _lost(queue: KaiQueue) -> Iterator[str]:
    """What a queue says that comes out otherwise here, or otherwise than it reads."""
    unnamed = [resource for resource, amount in zip(RESOURCES, queue.amounts, strict=True) if amount is None]
    if unnamed:
        yield f"{', '.join(unnamed)} not named in resources: limit 0, as in KAI; -1 is no limit"
    for resource, amount in zip(RESOURCES, queue.amounts, strict=True):
        if amount is None:
            continue
        if amount.quota == UNLIMITED:
            yield f"quota of {resource} without end: say what it deserves"
        elif amount.is_capped:
            why = "overQuotaWeight" if amount.limit else "limit"
            yield f"{why} of {resource} is 0 or not given: its limit is its quota of {float(amount.quota):g}"
