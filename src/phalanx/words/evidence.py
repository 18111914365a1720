"""What stands behind the reason why a job is pending."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from phalanx.cluster.maintenance import Maintenance
from phalanx.cluster.queues import GPUS_PERMILLE, with_unit
from phalanx.engine.state.records import UNSAID_MS
from phalanx.engine.why.change import Other
from phalanx.engine.why.evidence import Held
from phalanx.engine.why.explain import Explanation
from phalanx.engine.why.position import Level, Position
from phalanx.policy.view import Usage
from phalanx.protocol.reason import Reason
from phalanx.simulate.studies.table import duration_text
from phalanx.words.change import offer
from phalanx.words.others import with_size
from phalanx.words.phrases import NAMES_MAX, counted, listed, moment
from phalanx.words.reason import REASON_WORDS
from phalanx.words.virtual_cluster import virtual_cluster_words


def evidence(
    explanation: Explanation, now_ms: int, usage: Callable[[str], Usage] = lambda queue: Usage()
) -> dict[str, str]:
    """What stands behind the reason, a line each; only what there is. `usage` says what a queue has."""
    held, holders = _in_its_way(explanation)
    lines = {
        "other_ways": "; ".join(offer(change) for change in explanation.changes[1:]),
        "then": _then(explanation),
        "held_by": ", ".join(_held(each, explanation, usage) for each in held),
        "next_to_end": _next_to_end(holders, now_ms, in_gpus=_lacks_gpus(explanation)),
        "free_gpus": ", ".join(f"{counted(nodes, 'node')} with {gpus}" for gpus, nodes in explanation.free),
        "virtual_cluster": virtual_cluster_words(explanation.virtual_cluster),
        "not_healthy": listed(tuple(f"{node} ({health})" for node, health in explanation.unhealthy)),
        "maintenance": ", ".join(
            f"{each.name} {_from_to(each, now_ms)}".lstrip() for each in explanation.maintenance[:NAMES_MAX]
        ),
        "reserved_for": ", ".join(
            f"{with_size(each.other)} {_reserved_moment(each.at_ms, now_ms)}"
            for each in explanation.reserved_for[:NAMES_MAX]
        ),
        "min_run": ", ".join(
            f"{counted(each.gpus, 'GPU')} of {each.queue} {moment(each.until_ms, now_ms)}"
            for each in explanation.spared[:NAMES_MAX]
        ),
        "prefers": _prefers(explanation),
        "overdue": _overdue(explanation),
        "position": _positioned(explanation.position),
        "queues": _compared(explanation.position),
        "priority": _added_up(explanation),
        "not_before": moment(explanation.not_before_ms, now_ms),
    }
    return {key: line for key, line in lines.items() if line}


def _from_to(window: Maintenance, now_ms: int) -> str:
    """When maintenance begins, or has begun, and when it is over."""
    over = f"is over {moment(window.end_ms, now_ms)}"
    return over if window.start_ms <= now_ms else f"begins {moment(window.start_ms, now_ms)} and {over}"


def _in_its_way(explanation: Explanation) -> tuple[tuple[Held, ...], tuple[Other, ...]]:
    """The jobs that have what it waits for: its quota, or the nodes it could use."""
    quota = explanation.quota
    if explanation.reason is Reason.QUOTA and quota is not None:
        return quota.held, quota.holders
    return explanation.held, explanation.holders


def _lacks_gpus(explanation: Explanation) -> bool:
    """Whether it is GPUs that a job waits for, and not what goes with them."""
    if explanation.reason is Reason.QUOTA and explanation.quota is not None:
        return explanation.quota.resource == GPUS_PERMILLE
    return explanation.reason is not Reason.AMOUNT


def _held(held: Held, explanation: Explanation, usage: Callable[[str], Usage]) -> str:
    """What a queue has of that which a job waits for; of what lies beside GPUs on nodes, only in how many jobs."""
    jobs, quota = counted(held.jobs, "job"), explanation.quota
    if explanation.reason is Reason.QUOTA and quota is not None and (has := usage(held.queue)[quota.resource]):
        return f"{held.queue}: {with_unit(has, quota.resource)} in {jobs}"
    if _lacks_gpus(explanation):
        return f"{held.queue}: {counted(held.gpus, 'GPU')} in {jobs}"
    return f"{held.queue}: {jobs}"


def _overdue(explanation: Explanation) -> str:
    if explanation.overdue_ms is None:
        return ""
    bound = "the patience of its queue" if explanation.impatient else "its max_wait"
    late = f"it has waited {duration_text(explanation.overdue_ms / 1000)} longer than {bound}"
    if explanation.is_hopeless:
        return f"{late}, but nothing is kept for it: it can never start as it is"
    kept = "devices are reserved for it"
    if explanation.reason is Reason.UNHEALTHY:
        kept = "devices are reserved for it once enough nodes are healthy"
    if explanation.reason in (Reason.QUOTA, Reason.BUDGET):
        kept = "what its queue may still have is kept for it"
    return f"{late}: it goes first, and {kept}"


def _prefers(explanation: Explanation) -> str:
    """The nodes that it likes more than others, and how much of it lies there."""
    liked = explanation.preferred
    if liked is None:
        return ""
    more = liked.nodes - len(liked.names)
    named = ", ".join(liked.names) + (f" and {more} more" if more else "")
    return f"{named}; {liked.there} of its {counted(liked.tasks, 'task')} lie there" if liked.tasks else named


def _added_up(explanation: Explanation) -> str:
    """What its place in the order adds up from."""
    factors = [factor for factor in explanation.factors if factor.weight]
    if not factors:
        return ""
    parts = ", ".join(f"{each.name} {each.value:.3g} x {each.weight} = {each.points:.0f}" for each in factors)
    return f"{sum(each.points for each in factors):.0f} ({parts})"


def _positioned(position: Position | None) -> str:
    """Its place in the order."""
    if position is None:
        return ""
    among = f"in queue {position.queue}" if position.queue else "pending"
    return f"{position.place} of {position.of} {among}"


def _compared(position: Position | None) -> str:
    """Where its queue stands among those beside it, level by level, and by what they are compared."""
    return "; ".join(map(_level, position.levels)) if position is not None else ""


def _level(level: Level) -> str:
    place = f"{level.queue} {level.place} of {level.of}" if level.place is not None else level.queue
    measures = ", ".join(
        f"{each.name} {'without end' if each.value is None else f'{each.value:.3g}'}" for each in level.measures
    )
    return f"{place} ({measures})" if measures else place


def _then(explanation: Explanation) -> str:
    """The second cause, where taking the first away is not enough."""
    after = explanation.next
    if after is None or after.reason is None:
        return ""
    return f"{offer(after.change)}, it would still wait: {REASON_WORDS[after.reason]}"


def _next_to_end(holders: Iterable[Other], now_ms: int, in_gpus: bool) -> str:
    known = [holder for holder in holders if holder.expected_end_ms is not None][:NAMES_MAX]
    return ", ".join(
        f"{counted(each.gpus, 'GPU') if in_gpus else 'a job'} of {each.queue} {moment(each.expected_end_ms, now_ms)}"
        for each in known
    )


def _reserved_moment(at_ms: int, now_ms: int) -> str:
    """From when on something is reserved."""
    return moment(at_ms, now_ms) if at_ms < UNSAID_MS else "once the jobs have ended that do not say when they end"
