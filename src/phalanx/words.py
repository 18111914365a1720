"""Reasons in words: one clear line for a person, made from the same Explanation that programs get as data."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from phalanx.cluster.capacity import MB_PER_GB
from phalanx.cluster.cluster import NODE
from phalanx.cluster.device import FULL_PERMILLE, Mode, Portion
from phalanx.cluster.maintenance import Maintenance
from phalanx.cluster.queues import GPUS_PERMILLE, with_unit
from phalanx.engine.attempts import left_by_ms
from phalanx.engine.cells_view import VirtualClusterView
from phalanx.engine.change import Change, ChangeKind, Other
from phalanx.engine.deadline import Outlook, outlook
from phalanx.engine.evidence import Budget, Held, QuotaShort, Reserved
from phalanx.engine.explain import Explanation
from phalanx.engine.plan import Reason
from phalanx.engine.position import Level, Position
from phalanx.engine.quotas import said
from phalanx.engine.records import JobRecord, JobState, StopReason
from phalanx.engine.state import State
from phalanx.placement.placement import Refusal
from phalanx.placement.shortage import Barrier, Shortage
from phalanx.policy.view import Usage
from phalanx.simulate.forecast import Forecast
from phalanx.simulate.never_fit import BESIDE, misfit_words
from phalanx.simulate.table import duration_text
from phalanx.workload.gang import Role

GPU_TIME_UNITS = (("GPU-hours", 3_600_000), ("GPU-minutes", 60_000), ("GPU-seconds", 1_000))

NAMES_MAX = 4
"""Names that are listed in a line before the rest is counted."""

DECIMALS = 4
"""Enough to tell a megabyte from the next in gigabytes."""

PREDICATE_WORDS = {
    "gpu_type": "of another GPU type",
    "gpu_memory": "with too little GPU memory",
    "node_gpus": "with too few GPUs",
    "share": "whose GPUs cannot be shared so",
    "node_cpus": "with too few CPUs",
    "node_memory": "with too little memory",
    "node_nics": "with too few NICs",
    "node_cpus_limit": "that allow too few CPUs",
    "node_memory_limit": "that allow too little memory",
    "outside": "outside of where it may go",
    "failed": "failed",
    "draining": "draining",
    "suspect": "suspect",
    "free_gpus": "without enough free GPUs",
    "cpus": "without enough free CPUs",
    "memory": "without enough free memory",
    "nics": "without enough free NICs",
    "cpus_limit": "at their CPU limit",
    "memory_limit": "at their memory limit",
}

BARRIER_WORDS = {
    Barrier.TAKEN: "taken whole",
    Barrier.PROMISED: "promised to others",
    Barrier.UNSUPPORTED: "that cannot be cut so",
    Barrier.MODE: "shared in another way",
    Barrier.SLOT: "without a place left",
    Barrier.MEMORY: "with too little memory left",
    Barrier.COMPUTE: "with too little compute left",
}
"""What is wrong with the devices that give a job no part of them."""

MODE_WORDS = {
    Mode.WHOLE: "whole",
    Mode.FRACTION: "by fractions",
    Mode.MPS: "by MPS",
    Mode.MIG: "by MIG",
    Mode.TURNS: "by turns",
}
"""How a device is shared."""

SLOT_WORDS = {Mode.MPS: "a client", Mode.MIG: "room for such an instance", Mode.TURNS: "such a turn"}
"""What a device that is shared so has a number of."""

NAMING_WORDS = {
    "node_storage.": "with too little {} storage",
    "storage.": "without enough free {} storage",
    "selector ": "without the label {}",
    "taint ": "with the taint {}, which it does not tolerate",
}
"""Words for predicates that end in a name, by how they begin."""

REASON_WORDS = {
    Reason.NEVER_FITS: "no part of the cluster could hold it",
    Reason.HELD: "it is held",
    Reason.DEPENDENCY_FAILED: "an outcome it waits for did not come",
    Reason.DEPENDENCY: "another job comes first",
    Reason.BEGIN_TIME: "its begin time has not come",
    Reason.BACKOFF: "it is tried again after a pause",
    Reason.ARRAY_LIMIT: "enough members of its array run",
    Reason.BUDGET: "its budget is used up",
    Reason.QUOTA: "its quota is used up",
    Reason.BEHIND: "it is behind one that lets nobody pass",
    Reason.UNHEALTHY: "too many nodes are not healthy",
    Reason.GPUS: "too few GPUs are free",
    Reason.AMOUNT: "too few CPUs, NICs or too little memory is free beside the GPUs",
    Reason.TOPOLOGY: "no one domain has room for all of it",
    Reason.FRAGMENTED: "too few of the free GPUs lie together",
    Reason.RESERVED: "what it takes is reserved for somebody else",
    Reason.MAINTENANCE: "nodes it takes are closed for maintenance soon",
    Reason.MAKING_ROOM: "others have to leave first",
    Reason.PREPARING: "its devices are being cut",
    Reason.UNDECIDED: "nothing has been decided on it yet",
}
"""A reason in a few words, where it stands at the end of a line about something else."""


def because(explanation: Explanation, end_reason: str = "") -> str:
    """Why the job waits, in one line; of one that ends or has ended, what its record says of that."""
    refusal = explanation.refusal
    match explanation.reason:
        case None:
            state = explanation.state.value
            return f"it is {state}: {end_reason}" if end_reason not in ("", state) else f"it is {state}"
        case Reason.HELD:
            return "it is held; release it to let it start"
        case Reason.DEPENDENCY:
            return f"it waits for {_others(explanation.waits_for)}"
        case Reason.DEPENDENCY_FAILED:
            return f"it waits for an outcome of {_others(explanation.waits_for)} that did not come; cancel it"
        case Reason.BEGIN_TIME:
            return "its begin time has not come"
        case Reason.BACKOFF:
            return f"it {_failed(explanation)}; it is tried again after a pause"
        case Reason.ARRAY_LIMIT:
            return "as many members of its array run as may at a time"
        case Reason.BEHIND:
            return f"it is behind {_behind(explanation.behind)}, which does not fit and lets nobody pass"
        case Reason.QUOTA if explanation.virtual_cluster is not None:
            return _in_cells(explanation, explanation.virtual_cluster)
        case Reason.BUDGET if explanation.budgets:
            return _out_of_budget(explanation.budgets[0])
        case Reason.QUOTA | Reason.BUDGET:
            return _over_quota(explanation.quota)
        case Reason.RESERVED:
            return _reserved(explanation.reserved_for)
        case Reason.MAINTENANCE:
            names = _list(tuple(window.name for window in explanation.maintenance if window.name))
            which = f" ({names})" if names else ""
            if refusal is not None:
                return f"nodes that it needs are closed for maintenance{which}{_counts(refusal)}"
            return f"it would fit, but not end before nodes it takes are closed for maintenance{which}"
        case Reason.MAKING_ROOM:
            verb = "have" if len(explanation.waits_for) > 1 else "has"
            return f"its devices are promised; it starts when {_others(explanation.waits_for)} {verb} left"
        case Reason.NEVER_FITS:
            return "no part of this cluster could ever hold it" + _too_small(explanation) + _counts(refusal)
        case Reason.PREPARING:
            return "its devices are being cut into the instances it asked for"
        case Reason.UNDECIDED:
            return "no decision has looked at it as things are now"
        case _:
            return _lacking(explanation)


def _reserved(others: tuple[Reserved, ...]) -> str:
    """For whom devices are kept from some moment on, or what is left of a limit from now on, however short a job is."""
    whom = _others(tuple(each.other for each in others))
    if others and others[0].limit:
        return f"it would fit, but what is left of the limit of queue {others[0].limit} is kept for {whom}"
    return f"it would fit, but not end before what it takes is reserved for {whom}"


def _too_small(explanation: Explanation) -> str:
    """What of the cluster is too small for a job, by the rule that says where it must lie."""
    if explanation.misfit is None or explanation.refusal is None:
        return ""
    return f": it {misfit_words(explanation.misfit, explanation.refusal.nodes)}"


def _failed(explanation: Explanation) -> str:
    """What went wrong last: it did not start, or it ran and then failed."""
    if explanation.failed_runs and not explanation.failed_starts:
        times = explanation.failed_runs
        return "ran and failed" if times == 1 else f"ran and failed {times} times"
    return "failed to start"


def _out_of_budget(budget: Budget) -> str:
    if not budget.spent_gpu_ms and not budget.budget_gpu_ms:
        return f"{_whose(budget.queue)} has a budget of 0 GPU-hours"
    (used, whole), unit = _gpu_time(budget.spent_gpu_ms, budget.budget_gpu_ms)
    return f"{_whose(budget.queue)} has used up its budget: {used} of {whole} {unit}"


def _gpu_time(*amounts_gpu_ms: int) -> tuple[list[str], str]:
    """Amounts of GPU time in one unit, in which the largest of them is no small fraction."""
    most = max(amounts_gpu_ms)
    unit, per_unit = next(((unit, ms) for unit, ms in GPU_TIME_UNITS if 10 * most >= ms), GPU_TIME_UNITS[-1])
    if not most:
        unit, per_unit = GPU_TIME_UNITS[0]
    return [_in_unit(each / per_unit) for each in amounts_gpu_ms], unit


def _in_unit(amount: float) -> str:
    return f"{amount:.1f}" if not amount or abs(amount) >= 0.1 else f"{amount:.1g}"


def _whose(queue: str) -> str:
    return f"queue {queue}" if queue else "the whole cluster"


def _over_quota(short: QuotaShort | None) -> str:
    """Which quota is used up, with the arithmetic."""
    if short is None:
        return "its queue has what it needs by now"
    if short.by_budget:
        return f"{_whose(short.at)} has used up its budget of GPU-hours"
    left = said(max(short.left, 0), short.resource)
    needs = f"it needs {with_unit(short.asked, short.resource)}"
    if short.most is not None:
        return f"{needs}, and {_at_most(short, short.most)}; it can never start as it is"
    whose = "of what its queue has or may borrow"
    if short.by_limit:
        whose = f"of the limit of queue {short.at}" if short.at else "of what the policy lets it have"
    verb = "is" if left == "1" else "are"
    return f"{needs}, and {left} {verb} left {whose}{_used_up(short)}"


def _at_most(short: QuotaShort, most: int) -> str:
    """What a queue could ever have, by the limit that says so."""
    limit = short.limit or 0
    owner = "its limit is" if short.at == short.queue else f"the limit of queue {short.at} is"
    text = f"{owner if short.at else 'the cluster has'} {said(limit, short.resource)}"
    rest = f", of which {said(limit - most, short.resource)} guaranteed to others" if limit > most else ""
    return f"queue {short.queue} could never have more than {said(most, short.resource)}: {text}{rest}"


def _used_up(short: QuotaShort) -> str:
    """What of a quota is used, and what is kept for others."""
    if short.limit is None:
        return ""
    kept = f", {said(short.kept, short.resource)} guaranteed to others" if short.kept else ""
    where = "" if short.at else " in the cluster"
    return f" ({said(short.used, short.resource)} of {said(short.limit, short.resource)}{where} used{kept})"


def _lacking(explanation: Explanation) -> str:
    refusal = explanation.refusal
    if refusal is None:
        return "it would fit now"
    free, needed = refusal.gpus_free, refusal.gpus_needed
    if explanation.virtual_cluster is not None and explanation.reason is not Reason.AMOUNT:
        return _in_cells(explanation, explanation.virtual_cluster)
    if explanation.shortage is not None:
        return _short(explanation.shortage) + _spared(explanation)
    match explanation.reason:
        case Reason.UNHEALTHY:
            line = f"too many of the nodes {_whom(refusal)} could use are not healthy"
        case Reason.AMOUNT:
            line = _too_little_beside(refusal)
        case Reason.TOPOLOGY:
            line = f"{free} GPUs are free, but no one domain has room for all {needed}{_most_together(explanation)}"
        case Reason.FRAGMENTED:
            line = f"{free} GPUs are free, but too few of them lie together{_most_together(explanation)}"
        case _:
            line = f"{_whom(refusal)} needs {_number(needed, 'GPU')} and {free} {'is' if free == 1 else 'are'} free"
    return line + _counts(refusal) + _spared(explanation)


def _whom(refusal: Refusal) -> str:
    """Who lacks something: the job, or one role of it."""
    return f"its role {refusal.role}" if refusal.role else "it"


def _too_little_beside(refusal: Refusal) -> str:
    """What is short beside free GPUs: on single nodes, or for all tasks together."""
    what = BESIDE.get(refusal.short_of, refusal.short_of) or "CPUs, memory or NICs"
    if refusal.short_of:
        few = "few" if what.endswith("s") else "little"
        whose = f"all tasks of {_whom(refusal)}" if refusal.role else "all its tasks"
        return f"GPUs are free, but too {few} {what} beside them for {whose}"
    if refusal.role:
        return f"GPUs are free, but not the {what} that {_whom(refusal)} needs"
    return f"GPUs are free, but not the {what} beside them"


def _short(shortage: Shortage) -> str:
    """What the parts of devices lack that a job asks for, with the devices that give none, by what keeps it off."""
    asked = f"{_number(shortage.tasks, 'part')} of GPUs" if shortage.tasks > 1 else "a part of a GPU"
    line = f"it needs {asked} ({_part_words(shortage.wanted)})"
    counts = ", ".join(f"{count} {BARRIER_WORDS[barrier]}" for barrier, count in shortage.barriers)
    counts = f" (of {_number(shortage.devices, 'GPU')}: {counts})" if counts else ""
    if shortage.tasks_most >= shortage.tasks:
        return f"{line}: there is room, but not close enough together{counts}"
    if shortage.tasks_most:
        line += f", and there is room for {shortage.tasks_most}"
    return line + _barrier_words(shortage) + counts


def _part_words(wanted: Portion) -> str:
    memory = f"{_gb(wanted.memory_mb)} of its memory"
    match wanted.mode:
        case Mode.MIG:
            return f"MIG {wanted.mig_profile}"
        case Mode.TURNS:
            return f"one of {wanted.turns} turns, {memory}"
        case mode:
            return f"{MODE_WORDS[mode]}, {wanted.compute_permille / FULL_PERMILLE:g} of its compute, {memory}"


def _barrier_words(shortage: Shortage) -> str:
    """What to tell first of what keeps a part off."""
    match shortage.barrier:
        case Barrier.MEMORY:
            return f"; the GPU that is shared so and has most memory left has {_gb(shortage.memory_mb_most)}"
        case Barrier.COMPUTE:
            most = shortage.compute_permille_most / FULL_PERMILLE
            return f"; the GPU that is shared so and has most compute left has {most:g}"
        case Barrier.SLOT:
            return f"; no GPU that is shared so has {SLOT_WORDS[shortage.wanted.mode]} left"
        case Barrier.MODE:
            modes = " or ".join(MODE_WORDS[mode] for mode in shortage.modes)
            return f"; GPUs that are shared are shared {modes}, and a GPU is shared in one way at a time"
        case _:
            return "; no GPU is free, and none is shared"


def _gb(memory_mb: int) -> str:
    return f"{memory_mb / MB_PER_GB:.3g} GB"


def _to_write(amount: int, per_unit: int) -> str:
    """An amount as a job file that asks for exactly so much would say it: what is read is rounded up there."""
    shown = amount * 10**DECIMALS // per_unit
    return f"{shown // 10**DECIMALS}.{shown % 10**DECIMALS:0{DECIMALS}}".rstrip("0").rstrip(".")


def _spared(explanation: Explanation) -> str:
    """Whose jobs would give way but for the time that their queues let them run."""
    if not explanation.spared:
        return ""
    queues = _list(tuple(dict.fromkeys(each.queue for each in explanation.spared)))
    return f"; jobs of queue {queues} would give way, but have not yet run for its min_run"


def _in_cells(explanation: Explanation, owner: VirtualClusterView) -> str:
    """What a job lacks in its virtual cluster."""
    needed = explanation.refusal.gpus_needed if explanation.refusal is not None else 0
    match explanation.reason:
        case Reason.QUOTA if owner.borrow_limit is None:
            return "its user has as many GPUs as that user may have"
        case Reason.QUOTA:
            return (
                f"virtual cluster {owner.name} has borrowed {_number(owner.gpus_borrowed, 'GPU')}, "
                f"may borrow {owner.borrow_limit}, and it needs {needed}"
            )
        case Reason.UNHEALTHY:
            return (
                f"{owner.cells_bad} of {_number(owner.cells, 'cell')} of virtual cluster {owner.name} have broken "
                f"hardware, and it needs {_number(needed, 'GPU')} that work"
            )
        case Reason.FRAGMENTED | Reason.TOPOLOGY:
            return (
                f"{_number(owner.gpus_free, 'GPU')} of virtual cluster {owner.name} are free, "
                f"but not together: there is room for {_fits(owner)}"
            )
        case _:
            return (
                f"it needs {_number(needed, 'GPU')}; virtual cluster {owner.name} owns {owner.gpus}, "
                f"of which {owner.gpus_free} are free"
            )


def _fits(owner: VirtualClusterView) -> str:
    return ", ".join(f"{count} of {gpus}" for gpus, count in owner.fits)


def _owned(owner: VirtualClusterView | None) -> str:
    """A virtual cluster in one line."""
    if owner is None:
        return ""
    line = f"{owner.name}: {_number(owner.gpus, 'GPU')} in {_number(owner.cells, 'cell')}, {owner.gpus_free} free"
    if owner.gpus_free:
        line += f" (room for tasks: {_fits(owner)} GPUs; {owner.fragmentation:.0%} broken up)"
    if owner.cells_bad:
        line += f", {owner.cells_bad} cells broken, {owner.cells_doomed} of them for want of others"
    return line + (f", {owner.gpus_borrowed} borrowed" if owner.gpus_borrowed else "")


def _most_together(explanation: Explanation) -> str:
    """Where most of what is free lies together."""
    block = explanation.block
    if block is None:
        return ""
    if block.level != NODE:
        return f": the {block.level} with most, {block.name}, has {block.gpus}"
    nodes = explanation.free[0][1] if explanation.free else 0
    where = block.name if nodes == 1 else f"each of {nodes} nodes"
    needs = f", and one task needs {explanation.task_gpus}" if explanation.task_gpus > block.gpus else ""
    return f": at most {block.gpus} on one node ({where}){needs}"


def _counts(refusal: Refusal | None) -> str:
    if refusal is None or not refusal.ruled_out:
        return ""
    parts = ", ".join(f"{count} {predicate_words(name)}" for name, count in refusal.ruled_out)
    return f" (of {_number(refusal.nodes, 'node')}: {parts})"


def predicate_words(name: str) -> str:
    """What is wrong with the nodes that a predicate rules out; some predicates name a storage tier, label or taint."""
    known = PREDICATE_WORDS.get(name)
    if known is not None:
        return known
    for beginning, words in NAMING_WORDS.items():
        if name.startswith(beginning):
            return words.format(name.removeprefix(beginning))
    return f"ruled out by {name}"


def sooner(explanation: Explanation) -> str:
    """The change that asks least and starts the job now, in one line; empty if none is known."""
    if explanation.changes:
        return f"it would start now {offer(explanation.changes[0])}"
    after = explanation.next
    return f"it would start now {offer(after.change)}" if after is not None and after.reason is None else ""


def offer(change: Change) -> str:
    """A change in words, as the end of "it would start now …"."""
    amount, was = change.amount, change.amount_was
    match change.kind:
        case ChangeKind.RELEASE:
            return "if it were released"
        case ChangeKind.BEGIN:
            return "without its begin time"
        case ChangeKind.RETRY:
            return "if it were tried again at once"
        case ChangeKind.DEPENDENCY:
            return f"if it did not wait for {_list(change.names)}"
        case ChangeKind.ARRAY_LIMIT:
            return f"with {amount} members of its array at a time instead of {was}"
        case ChangeKind.PREEMPTIBLE:
            return "if it were preemptible"
        case ChangeKind.DURATION:
            return f"if it took at most {duration_text(amount / 1000)}"
        case ChangeKind.CPUS:
            cpus = f"{_to_write(amount, 1000)} {'CPU' if amount == 1000 else 'CPUs'}"
            return f"with {cpus} {_a_task(change)} instead of {_to_write(was, 1000)}"
        case ChangeKind.MEMORY:
            had = _to_write(was, MB_PER_GB)
            return f"with {_to_write(amount, MB_PER_GB)} GB of memory {_a_task(change)} instead of {had}"
        case ChangeKind.NICS:
            return f"with {_number(amount, 'NIC')} {_a_task(change)} instead of {was}"
        case ChangeKind.AMOUNTS:
            return "without CPUs, memory and NICs"
        case ChangeKind.TOPOLOGY:
            rules = _list(change.names_was)
            return f"with all in one {change.names[0]} instead of one {rules}" if change.names[0] else _rule(rules)
        case ChangeKind.SELECTOR:
            return f"without the node selector {_list(change.names)}"
        case ChangeKind.TOLERATION:
            return f"if it tolerated the taint {_list(change.names)}"
        case ChangeKind.GPU_TYPE:
            return f"on {_list(change.names) or 'GPUs of any type'} instead of {_list(change.names_was)}"
        case ChangeKind.GPU_MEMORY:
            return f"on GPUs of {amount / 1000:g} GB instead of {was / 1000:g} GB"
        case ChangeKind.REPLICAS:
            return f"with {_number(change.gpus, 'GPU')} ({amount} of {change.role} instead of {was})"
        case ChangeKind.GPUS:
            return f"with {_number(amount, 'GPU')} {_a_task(change)} instead of {was} ({change.gpus} in all)"
        case ChangeKind.SHARE:
            part = f"{amount / 1000:g}" if change.names == ("fraction",) else f"{amount} %"
            return f"with {part} of a GPU"
        case ChangeKind.SHARE_MEMORY:
            had = _to_write(was, MB_PER_GB)
            return f"with {_to_write(amount, MB_PER_GB)} GB of a GPU's memory instead of {had} GB"
        case ChangeKind.PASS:
            return "if the policy let it pass those before it"
        case ChangeKind.MAINTENANCE:
            return f"if maintenance {_list(change.names)} were put off"
        case ChangeKind.LIMIT:
            return f"if {_queues(change.names)} had no limit"
        case ChangeKind.GUARANTEE:
            return f"if {_queues(change.names)} lent what is guaranteed"
        case ChangeKind.QUOTA:
            return f"if the policy let queue {_list(change.names)} have more"
        case ChangeKind.BUDGET:
            (used, whole), unit = _gpu_time(amount, was)
            instead = f", not {whole}" if amount else ""
            return f"if the budget of {_whose(change.names[0])} were more than {used} {unit}{instead}"
        case ChangeKind.MIN_RUN:
            return (
                f"if jobs of queue {_list(change.names)} had run for their min_run: in {duration_text(amount / 1000)}"
            )
        case ChangeKind.END:
            return f"if {_ends(change.ends)} ended"
        case ChangeKind.REPAIR:
            return f"if {_list(change.names)} were healthy"


def _queues(names: tuple[str, ...]) -> str:
    return f"{'queue' if len(names) == 1 else 'queues'} {_list(names)}"


def _a_task(change: Change) -> str:
    """Whose tasks change; a role that has only the name that it has by default is not named."""
    return f"a task of {change.role}" if change.role not in ("", Role().name) else "a task"


def _rule(rules: str) -> str:
    return f"without the {rules} rule"


def _ends(others: tuple[Other, ...]) -> str:
    """Who would have to be gone, by queue: "3 jobs of queue b (12 GPUs)"."""
    queues: dict[str, list[Other]] = {}
    for other in others:
        queues.setdefault(other.queue, []).append(other)
    return " and ".join(_of_queue(queue, group) for queue, group in queues.items())


def _of_queue(queue: str, others: list[Other]) -> str:
    """Jobs of one queue: by name where they may be known, else by number."""
    named = tuple(other.job for other in others if other.job)
    gpus = _number(sum(other.gpus for other in others), "GPU")
    jobs = f"{'job' if len(named) == 1 else 'jobs'} {_list(named)}" if named else _number(len(others), "job")
    return f"{jobs} of queue {queue} ({gpus})"


def expected(forecast: Forecast, job: str, now_ms: int) -> str:
    """When a job is expected to start, as an interval from now on, with the age of what is known."""
    span = forecast.spans.get(job)
    if span is None:
        return ""
    age_ms = now_ms - forecast.at_ms
    age = f", told {duration_text(age_ms / 1000)} ago" if age_ms > 0 else ""
    if span.early_ms is None:
        return f"not within {duration_text((forecast.at_ms + forecast.horizon_ms - now_ms) / 1000)}{age}"
    if span.late_ms is None:
        return f"not within {duration_text((span.early_ms - now_ms) / 1000)}{age}"
    early, late = (_at(each_ms, now_ms) for each_ms in (span.early_ms, span.late_ms))
    if early == late:
        return f"{early}{age}"
    return f"{early} to {late.removeprefix('in ')} in 8 of 10 cases{age} ({forecast.runs} runs)"


def starts_when(state: State, explanation: Explanation) -> str:
    """What the start of a job depends on, where that says more than a moment would; else empty."""
    match explanation.reason:
        case Reason.BUDGET if explanation.budgets:
            # What has been used up is never given back.
            return f"not before the budget of {_whose(explanation.budgets[0].queue)} is raised"
        case Reason.MAKING_ROOM:
            by_ms = left_by_ms(state, explanation.job)
            within = "" if by_ms is None or by_ms <= state.now else f": within {_span(by_ms, state.now)}"
            return f"as soon as those have left who make room for it{within}"
        case _:
            return ""


def no_forecast(reason: str) -> str:
    """Instead of when a job is expected to start."""
    return f"unknown: there is no forecast ({reason})"


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
        "free_gpus": ", ".join(f"{_number(nodes, 'node')} with {gpus}" for gpus, nodes in explanation.free),
        "virtual_cluster": _owned(explanation.virtual_cluster),
        "not_healthy": _list(tuple(f"{node} ({health})" for node, health in explanation.unhealthy)),
        "maintenance": ", ".join(
            f"{each.name} {_from_to(each, now_ms)}".lstrip() for each in explanation.maintenance[:NAMES_MAX]
        ),
        "reserved_for": ", ".join(
            f"{_with_size(each.other)} {_at(each.at_ms, now_ms)}" for each in explanation.reserved_for[:NAMES_MAX]
        ),
        "min_run": ", ".join(
            f"{_number(each.gpus, 'GPU')} of {each.queue} {_at(each.until_ms, now_ms)}"
            for each in explanation.spared[:NAMES_MAX]
        ),
        "overdue": _overdue(explanation),
        "position": _positioned(explanation.position),
        "queues": _compared(explanation.position),
        "priority": _added_up(explanation),
        "not_before": _at(explanation.not_before_ms, now_ms),
    }
    return {key: line for key, line in lines.items() if line}


def _from_to(window: Maintenance, now_ms: int) -> str:
    """When maintenance begins, or has begun, and when it is over."""
    over = f"is over {_at(window.end_ms, now_ms)}"
    return over if window.start_ms <= now_ms else f"begins {_at(window.start_ms, now_ms)} and {over}"


def _in_its_way(explanation: Explanation) -> tuple[tuple[Held, ...], tuple[Other, ...]]:
    """Those who have what it waits for: its quota, or the nodes it could use."""
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
    jobs, quota = _number(held.jobs, "job"), explanation.quota
    if _lacks_gpus(explanation):
        return f"{held.queue}: {_number(held.gpus, 'GPU')} in {jobs}"
    if explanation.reason is Reason.QUOTA and quota is not None and (has := usage(held.queue)[quota.resource]):
        return f"{held.queue}: {with_unit(has, quota.resource)} in {jobs}"
    return f"{held.queue}: {jobs}"


def _overdue(explanation: Explanation) -> str:
    if explanation.overdue_ms is None:
        return ""
    late = f"it has waited {duration_text(explanation.overdue_ms / 1000)} longer than its max_wait"
    if explanation.is_hopeless:
        return f"{late}, but nothing is kept for it: it can never start as it is"
    kept = "devices are reserved for it"
    if explanation.reason is Reason.UNHEALTHY:
        kept = "devices are reserved for it once enough nodes are healthy"
    if explanation.reason in (Reason.QUOTA, Reason.BUDGET):
        kept = "what its queue may still have is kept for it"
    return f"{late}: it goes first, and {kept}"


def _added_up(explanation: Explanation) -> str:
    """What its place in the order adds up from."""
    factors = [factor for factor in explanation.factors if factor.weight]
    if not factors:
        return ""
    parts = ", ".join(f"{each.name} {each.value:.3g} x {each.weight} = {each.points:.0f}" for each in factors)
    return f"{sum(each.points for each in factors):.0f} ({parts})"


def _positioned(position: Position | None) -> str:
    """Where it stands in the order."""
    if position is None:
        return ""
    where = f"queue {position.queue}" if position.queue else "line"
    return f"{position.place} of {position.of} in {where}"


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
        f"{_number(holder.gpus, 'GPU') if in_gpus else 'a job'} of {holder.queue} {_at(holder.expected_end_ms, now_ms)}"
        for holder in known
    )


def _at(at_ms: int | None, now_ms: int) -> str:
    return "" if at_ms is None else f"in {duration_text(max(at_ms - now_ms, 0) / 1000)}"


def _behind(other: Other | None) -> str:
    if other is None:
        return "somebody"
    return f"job {other.job}" if other.job else _of(other.queue)


def _of(queue: str) -> str:
    """A job of which nothing else may be known."""
    return f"a job of queue {queue}"


def _with_size(other: Other) -> str:
    name = f"job {other.job}" if other.job else "a job"
    return f"{name} of queue {other.queue} ({_number(other.gpus, 'GPU')})"


def leaving_words(others: Sequence[Other], now_ms: int) -> str:
    """Who would have to leave, with what each has and when it would end by itself."""

    def told(each: Other) -> str:
        ends = f", ends {_at(each.expected_end_ms, now_ms)}" if each.expected_end_ms is not None else ""
        name = f"job {each.job}" if each.job else "a job"
        return f"{name} of queue {each.queue} ({_number(each.gpus, 'GPU')}{ends})"

    return _list(tuple(told(each) for each in others))


def _others(others: tuple[Other, ...]) -> str:
    named = tuple(other.job for other in others if other.job)
    hidden = tuple(_of(other.queue) for other in others if not other.job)
    jobs = f"{'job' if len(named) == 1 else 'jobs'} {_list(named)}" if named else ""
    return " and ".join(filter(None, (jobs, _list(hidden)))) or "somebody"


def _list(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


def _number(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


class Everything:
    """For those who may know the jobs of all queues."""

    def __contains__(self, queue: object) -> bool:
        return True


def deadline_words(state: State, job: str, visible_queues: Container[str] = Everything()) -> str:
    """Whether a job can meet its deadline, by its shape and the GPU time there is; empty if it has none.

    Of the jobs of other queues than the visible ones, only the queue is told.
    """
    record = state.record(job)
    if record.final is not None:
        return _deadline_past(record)
    found = outlook(state, record)
    if found is None:
        return ""
    if not found.length_known:
        return f"job {job} does not say how long it takes (duration): nobody knows whether it meets its deadline"
    if not found.can_be_met:
        return f"job {job} cannot meet its deadline: {_in_the_way(state, job, found)}"
    endangered = (state.jobs[other].job for other in found.endangers)
    known = [f"job {each.id}" if each.queue in visible_queues else _of(each.queue) for each in endangered]
    late = f", but then {', '.join(known)} cannot" if known else ""
    if found.ends_ms is not None:
        spare = _span(record.job.deadline_ms, found.ends_ms)
        ends = _span(found.ends_ms, state.now)
        return f"job {job} meets its deadline if it takes as long as it says: it ends in {ends}, {spare} early{late}"
    held = "is released and " if record.held else ""
    later = f", and it can start in {_span(found.earliest_ms, state.now)} at the earliest" if found.obstacle else ""
    within = f"if it {held}starts within {_span(found.start_by_ms, state.now)}{later}"
    return f"job {job} can meet its deadline {within} ({_gpu_hours_until(found)}){late}"


def preempted_words(state: State, job: str, visible_queues: Container[str] = Everything()) -> str:
    """For whom a job makes room, or how often it has and for whom last, as far as is known; empty if it never had to.

    Of a job of another queue than the visible ones, the queue and the number of GPUs are told.
    """
    record = state.record(job)
    attempt, other = record.attempt, state.jobs.get(record.preempted_for)
    whom = ""
    if other is not None:
        whom = _with_size(Other(other.job.id if other.job.queue in visible_queues else "", other.job.queue, other.gpus))
    if attempt is not None and attempt.stop_reason is StopReason.PREEMPTED:
        return f"it makes room for {whom or 'others'}"
    if not record.preemptions:
        return ""
    times = "once" if record.preemptions == 1 else f"{record.preemptions} times, last"
    return f"{times} for {whom}" if whom else times.removesuffix(", last")


def _deadline_past(record: JobRecord) -> str:
    """What became of the deadline of a job that has ended."""
    deadline_ms, ended_ms = record.job.deadline_ms, record.ended_ms
    if deadline_ms is None or ended_ms is None or record.final is not JobState.SUCCEEDED:
        return ""
    if ended_ms <= deadline_ms:
        return f"job {record.job.id} met its deadline, {_span(deadline_ms, ended_ms)} early"
    return f"job {record.job.id} missed its deadline by {_span(ended_ms, deadline_ms)}"


def _gpu_hours_until(found: Outlook) -> str:
    (needed, available), unit = _gpu_time(found.needed_gpu_ms, found.available_gpu_ms)
    return f"{needed} of {available} {unit} until then"


def _span(until_ms: int | None, since_ms: int) -> str:
    return duration_text(max((since_ms if until_ms is None else until_ms) - since_ms, 0) / 1000)


OBSTACLE_WORDS = {
    Reason.BEGIN_TIME: "its begin time comes in {}",
    Reason.BACKOFF: "it is tried again in {}",
    Reason.DEPENDENCY: "what it waits for takes {}",
    Reason.MAINTENANCE: "nodes it needs are closed for maintenance, and it finds a place in {}",
    Reason.QUOTA: "its queue may have so much in {} at the earliest",
    Reason.GPUS: "what it needs is free together in {} at the earliest",
}
"""What keeps a job from starting, and for how long."""

LASTING_WORDS = {
    Reason.NEVER_FITS: "no part of this cluster could ever hold it",
    Reason.DEPENDENCY_FAILED: "an outcome it waits for did not come",
    Reason.QUOTA: "its queue may never have so much",
    Reason.BUDGET: "the budget of its queue is used up before it can start",
}
"""What keeps a job from ever starting, as things stand."""


def _in_the_way(state: State, job: str, found: Outlook) -> str:
    """What keeps a job from meeting its deadline."""
    deadline_ms = state.jobs[job].job.deadline_ms or 0
    if found.ends_ms is not None and found.ends_ms > deadline_ms:
        return f"if it takes as long as it says, it ends {_span(found.ends_ms, deadline_ms)} late"
    if found.start_by_ms < state.now:
        return f"even if it started now it would end {_span(state.now, found.start_by_ms)} late"
    if found.earliest_ms is None and found.obstacle is not None:
        return LASTING_WORDS[found.obstacle]
    if found.obstacle is not None and (found.earliest_ms or 0) > found.start_by_ms:
        until = OBSTACLE_WORDS[found.obstacle].format(_span(found.earliest_ms, state.now))
        return f"{until}, and it would have to start within {_span(found.start_by_ms, state.now)}"
    return f"it and those due before it need {_gpu_hours_until(found)}"
