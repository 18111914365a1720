"""Changes that would start a job now."""

from __future__ import annotations

from phalanx.cluster.capacity import MB_PER_GB
from phalanx.engine.why.change import Change, ChangeKind
from phalanx.engine.why.explain import Explanation
from phalanx.simulate.studies.table import duration_text
from phalanx.words.others import by_queue
from phalanx.words.phrases import counted, gpu_time, listed, queue_words
from phalanx.workload.gang import Role

DECIMALS = 4
"""Enough to tell a megabyte from the next in gigabytes."""


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
            return f"if it did not wait for {'job' if len(change.names) == 1 else 'jobs'} {listed(change.names)}"
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
            return f"with {counted(amount, 'NIC')} {_a_task(change)} instead of {was}"
        case ChangeKind.AMOUNTS:
            return "without CPUs, memory and NICs"
        case ChangeKind.TOPOLOGY:
            rules = listed(change.names_was)
            return f"with all in one {change.names[0]} instead of one {rules}" if change.names[0] else _rule(rules)
        case ChangeKind.SELECTOR:
            return f"without the node selector {listed(change.names)}"
        case ChangeKind.TOLERATION:
            return f"if it tolerated the taint {listed(change.names)}"
        case ChangeKind.GPU_TYPE:
            return f"on {listed(change.names) or 'GPUs of any type'} instead of {listed(change.names_was)}"
        case ChangeKind.GPU_MEMORY:
            return f"on GPUs of {amount / 1000:g} GB instead of {was / 1000:g} GB"
        case ChangeKind.REPLICAS:
            return f"with {counted(change.gpus, 'GPU')} ({amount} of {change.role} instead of {was})"
        case ChangeKind.GPUS:
            return f"with {counted(amount, 'GPU')} {_a_task(change)} instead of {was} ({change.gpus} in all)"
        case ChangeKind.SHARE:
            part = f"{amount / 1000:g}" if change.names == ("fraction",) else f"{amount} %"
            return f"with {part} of a GPU"
        case ChangeKind.SHARE_MEMORY:
            had = _to_write(was, MB_PER_GB)
            return f"with {_to_write(amount, MB_PER_GB)} GB of a GPU's memory instead of {had} GB"
        case ChangeKind.PASS:
            return "if the policy let it pass those before it"
        case ChangeKind.MAINTENANCE:
            return f"if maintenance {listed(change.names)} were put off"
        case ChangeKind.LIMIT:
            return f"if {_queues(change.names)} had no limit"
        case ChangeKind.GUARANTEE:
            return f"if {_queues(change.names)} lent what is guaranteed"
        case ChangeKind.QUOTA:
            return f"if the policy let queue {listed(change.names)} have more"
        case ChangeKind.BUDGET:
            (used, whole), unit = gpu_time(amount, was)
            instead = f", not {whole}" if amount else ""
            return f"if the budget of {queue_words(change.names[0])} were more than {used} {unit}{instead}"
        case ChangeKind.MIN_RUN:
            return (
                f"if jobs of queue {listed(change.names)} had run for their min_run: in {duration_text(amount / 1000)}"
            )
        case ChangeKind.END:
            return f"if {by_queue(change.ends)} ended"
        case ChangeKind.REPAIR:
            return f"if {listed(change.names)} were healthy"


def _queues(names: tuple[str, ...]) -> str:
    return f"{'queue' if len(names) == 1 else 'queues'} {listed(names)}"


def _a_task(change: Change) -> str:
    """The tasks that change; a role that has only the name that it has by default is not named."""
    return f"a task of {change.role}" if change.role not in ("", Role().name) else "a task"


def _rule(rules: str) -> str:
    return f"without the {rules} rule"


def _to_write(amount: int, per_unit: int) -> str:
    """An amount as a job file that asks for exactly so much would say it: what is read is rounded up there."""
    shown = amount * 10**DECIMALS // per_unit
    return f"{shown // 10**DECIMALS}.{shown % 10**DECIMALS:0{DECIMALS}}".rstrip("0").rstrip(".")
