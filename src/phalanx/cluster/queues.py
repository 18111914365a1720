"""Queues: what the owner of a cluster allots to its users. A tree, named by paths such as research/llm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import NamedTuple

GPUS_PERMILLE, CPUS_MILLI, MEMORY_MB = range(3)
RESOURCES = ("GPUs", "CPUs", "GB of memory")
"""The resources of which a queue has a quota, as people call them."""

UNITS = (1000, 1000, 1024)
"""How many of what is counted make one of what people say."""

LISTED_MAX, COMPARED_MAX, NAME_MAX = 20, 1_000, 200
"""How many queues are listed, and how many are compared, up to which length, with one that there is not."""


class Quota(NamedTuple):
    """An amount of each resource; None where nothing is said of one."""

    gpus_permille: int | None = None
    cpus_milli: int | None = None
    memory_mb: int | None = None


UNSAID = Quota()


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue. `path` names it and, before each slash, the queues it lies in.

    What is `guaranteed` is never lent. What is `deserved` beyond that, its nominal quota, is lent while it is idle, and
    reclaimed when it is wanted. No queue gets beyond its `limit`. `weight` is its part of what several queues want,
    `cpu_weight` and `memory_weight` that of CPUs and memory where it is another; `priority` is its place among queues.
    With `reclaimable` off nothing is taken back of what it has borrowed. `min_run_ms` is how long its jobs run before
    they may be stopped for other jobs; `min_run_reclaim_ms`, where it is given, how long they and those of the queues
    inside do before they may be for a queue beside it. `budget_gpu_ms` is what they may use of GPU time in all.
    `patience_ms` is that of the cluster, where it is another for its jobs.

    `normal_priority` is the priority that its jobs, and those of the queues inside, usually have;
    `member_priority_max` and `operator_priority_max` are the highest that members and operators may give them. What
    is None is as in the queue it lies in (`priority_caps`).
    """

    path: str
    guaranteed: Quota = UNSAID
    deserved: Quota = UNSAID
    limit: Quota = UNSAID
    weight: int = 1
    priority: int = 0
    reclaimable: bool = True
    min_run_ms: int = 0
    budget_gpu_ms: int | None = None
    min_run_reclaim_ms: int | None = None
    cpu_weight: int | None = None
    memory_weight: int | None = None
    patience_ms: int | None = None
    normal_priority: int | None = None
    member_priority_max: int | None = None
    operator_priority_max: int | None = None

    @property
    def weights(self) -> tuple[int, int, int]:
        """Its weight for each resource."""
        return (self.weight, self.cpu_weight or self.weight, self.memory_weight or self.weight)

    @property
    def parent(self) -> str:
        """The path of the queue it lies in; empty at the top."""
        return self.path.rpartition("/")[0]


class PriorityCaps(NamedTuple):
    """The highest priorities that members and operators may give jobs of a queue; None is any."""

    members: int
    operators: int | None = None


def priority_caps(path: str, queue_at: Callable[[str], Queue | None]) -> PriorityCaps:
    """What holds for the jobs of a queue: what it says, or the nearest of those it lies in that says something.

    Where none does, members may give the normal priority, which is 0, and operators any.
    """
    around = [queue for each in ancestors(path) if (queue := queue_at(each)) is not None]

    def nearest(name: str) -> int | None:
        return next((value for queue in around if (value := getattr(queue, name)) is not None), None)

    normal, members = nearest("normal_priority") or 0, nearest("member_priority_max")
    return PriorityCaps(normal if members is None else members, nearest("operator_priority_max"))


class QuotaConflict(ValueError):  # noqa: N818
    """What two queues are allotted cannot both be true. `path` is the queue to look at."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path


def settled(queues: tuple[Queue, ...], total: Quota) -> dict[str, Queue]:
    """The queues by path with every quota said, the whole cluster under the empty path; conflicts raise QuotaConflict.

    A queue that says nothing is guaranteed and deserves what its queues inside are and do. Unset limits are None; and
    so is what is deserved of a resource of which no queue says what it is guaranteed or deserves: none borrows that.
    """
    spoken_of = tuple(any(_says(queue, resource) for queue in queues) for resource in range(len(RESOURCES)))
    by_path = {queue.path: queue for queue in queues}
    inside: dict[str, list[str]] = {"": []}
    for queue in queues:
        if queue.parent and queue.parent not in by_path:
            raise QuotaConflict(queue.path, f"queue {queue.path} lies in {queue.parent}, which there is not")
        inside.setdefault(queue.parent, []).append(queue.path)
    found: dict[str, Queue] = {}
    for path in sorted(by_path, key=lambda path: -path.count("/")):
        found[path] = _settle(by_path[path], [found[other] for other in inside.get(path, ())], spoken_of)
    tops = [found[path] for path in inside[""]]
    root = Queue("", deserved=total)
    _refuse_excess(root, tops)
    found[""] = _with_sums(root, tops, spoken_of)
    return {"": found[""], **{path: found[path] for path in by_path}}


def _says(queue: Queue, resource: int) -> bool:
    return queue.guaranteed[resource] is not None or queue.deserved[resource] is not None


def _settle(queue: Queue, inside: list[Queue], spoken_of: tuple[bool, ...]) -> Queue:
    _refuse_excess(queue, inside)
    said, queue = queue, _with_sums(queue, inside, spoken_of)
    for resource in range(len(RESOURCES)):
        guaranteed, deserved, limit = queue.guaranteed[resource], queue.deserved[resource], queue.limit[resource]
        assert guaranteed is not None
        if deserved is None:
            continue
        if guaranteed > deserved:
            raise QuotaConflict(
                queue.path,
                f"queue {queue.path} is guaranteed {with_unit(guaranteed, resource)}, "
                f"more than the {_said(deserved, resource)} it deserves",
            )
        if limit is not None and deserved > limit:
            raise QuotaConflict(queue.path, _beyond_limit(said, queue, inside, resource, limit))
    return queue


def _beyond_limit(said: Queue, queue: Queue, inside: list[Queue], resource: int, limit: int) -> str:
    """By what a nominal quota exceeds the limit: by what its queue says, or by the sum of what those inside get."""
    for which, verb in (("guaranteed", "is guaranteed"), ("deserved", "deserves")):
        amount = getattr(queue, which)[resource]
        if amount <= limit:
            continue
        if getattr(said, which)[resource] is None and any(getattr(each, which)[resource] for each in inside):
            return _arithmetic(inside, which, resource, f"the limit of queue {queue.path} is {_said(limit, resource)}")
        amount_said = with_unit(amount, resource)
        return f"queue {queue.path} {verb} {amount_said}, more than its limit of {_said(limit, resource)}"
    raise AssertionError(f"queue {queue.path} is within its limit")


def _with_sums(queue: Queue, inside: list[Queue], spoken_of: tuple[bool, ...]) -> Queue:
    """With what is not said taken from the queues inside. What is guaranteed is deserved, also if only that is said."""
    guaranteed = [
        said if said is not None else sum(each.guaranteed[i] or 0 for each in inside)
        for i, said in enumerate(queue.guaranteed)
    ]
    deserved = [
        max(guaranteed[i], sum(each.deserved[i] or 0 for each in inside)) if said is None and spoken_of[i] else said
        for i, said in enumerate(queue.deserved)
    ]
    return replace(queue, guaranteed=Quota(*guaranteed), deserved=Quota(*deserved))


def _refuse_excess(queue: Queue, inside: list[Queue]) -> None:
    for which in ("guaranteed", "deserved"):
        for resource, said in enumerate(getattr(queue, which)):
            wanted = [getattr(each, which)[resource] or 0 for each in inside]
            if said is not None and sum(wanted) > said:
                has = f"{f'queue {queue.path}' if queue.path else 'the cluster'} has {_said(said, resource)}"
                raise QuotaConflict(inside[0].path, _arithmetic(inside, which, resource, has))


def _arithmetic(inside: list[Queue], which: str, resource: int, there_is: str) -> str:
    """What several queues are allotted, summed up, against what there is."""
    allotted = [each for each in inside if getattr(each, which)[resource]]
    parts = [f"{each.path} {_said(getattr(each, which)[resource], resource)}" for each in allotted]
    amount = with_unit(sum(getattr(each, which)[resource] for each in allotted), resource)
    if len(allotted) == 1:
        verb = "is guaranteed" if which == "guaranteed" else "deserves"
        return f"queue {allotted[0].path} {verb} {amount}, but {there_is}"
    shown = " + ".join(parts[:8]) + (f" + {len(parts) - 8} more" if len(parts) > 8 else "")
    verb = "are guaranteed" if which == "guaranteed" else "deserve"
    return f"{shown} {verb} {amount} together, but {there_is}"


def loose_limits(queues: tuple[Queue, ...]) -> Iterator[str]:
    """Limits above that of a queue around: no contradiction, since both hold, but they bound nothing. In words."""
    by_path = {queue.path: queue for queue in queues}
    for queue in queues:
        for resource, limit in enumerate(queue.limit):
            around = [by_path[path] for path in ancestors(queue.parent) if path in by_path]
            bounds = [(each.limit[resource] or 0, each.path) for each in around if each.limit[resource] is not None]
            if limit is not None and bounds and limit > min(bounds)[0]:
                least, path = min(bounds)
                yield (
                    f"queue {queue.path} has a limit of {with_unit(limit, resource)}, "
                    f"but queue {path} around it one of {_said(least, resource)}, which holds"
                )


def with_unit(amount: int, resource: int) -> str:
    """An amount of a resource as people say it: 1 GPU, 2 GPUs, 1 GB of memory."""
    number = _said(amount, resource)
    return f"{number} {RESOURCES[resource].removesuffix('s') if number == '1' else RESOURCES[resource]}"


def _said(amount: int, resource: int) -> str:
    return f"{amount / UNITS[resource]:g}"


def unknown_queue(queue: str, job: str, known: Sequence[str]) -> str:
    """The words for a job of a queue that there is not: the one that looks most like it, and those there are."""
    close = get_close_matches(queue[:NAME_MAX], known[:COMPARED_MAX], n=1)
    meant = f": did you mean {close[0]!r}?" if close else "."
    return f"Unknown queue {queue!r} of {job}{meant} Queues: {', '.join(known[:LISTED_MAX])}"


def ancestors(path: str) -> Iterator[str]:
    """The path itself, the queues it lies in, and the whole (the empty path), in this order."""
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""
