"""Reasons in words: one clear line for a person, made from the same Explanation that programs get as data."""

from __future__ import annotations

from phalanx.engine.explain import Explanation
from phalanx.engine.plan import Reason
from phalanx.placement.placement import Refusal

PREDICATE_WORDS = {
    "gpu_type": "of another GPU type",
    "gpu_memory": "with too little GPU memory",
    "node_gpus": "with too few GPUs",
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


def because(explanation: Explanation) -> str:
    """Why the job waits, in one line."""
    refusal = explanation.refusal
    match explanation.reason:
        case None:
            return f"it is {explanation.state.value}"
        case Reason.HELD:
            return "it is held; release it to let it start"
        case Reason.DEPENDENCY:
            return f"it waits for {_list(explanation.waits_for)}"
        case Reason.DEPENDENCY_FAILED:
            return f"it waits for an outcome of {_list(explanation.waits_for)} that did not come; cancel it"
        case Reason.BEGIN_TIME:
            return "its begin time has not come"
        case Reason.BACKOFF:
            return "it failed to start and is tried again after a pause"
        case Reason.ARRAY_LIMIT:
            return "as many members of its array run as may at a time"
        case Reason.BEHIND:
            return f"it is behind job {explanation.behind}, which does not fit and lets nobody pass"
        case Reason.MAKING_ROOM:
            return f"its devices are promised; it starts when {_list(explanation.waits_for)} has left"
        case Reason.NEVER_FITS:
            return "no part of this cluster could ever hold it" + _counts(refusal)
        case Reason.PREPARING:
            return "its devices are being cut into the instances it asked for"
        case Reason.UNDECIDED:
            return "it has just arrived"
        case _:
            return _lacking(explanation.reason, refusal)


def _lacking(reason: Reason, refusal: Refusal | None) -> str:
    if refusal is None:
        return "it would fit now"
    free, needed = refusal.gpus_free, refusal.gpus_needed
    match reason:
        case Reason.UNHEALTHY:
            line = "too many of the nodes it could use are not healthy"
        case Reason.AMOUNT:
            line = "GPUs are free, but not the CPUs, memory or NICs beside them"
        case Reason.TOPOLOGY:
            line = f"{free} GPUs are free, but no one domain has room for all {needed}"
        case Reason.FRAGMENTED:
            line = f"{free} GPUs are free, but too few of them lie together on a node"
        case _:
            line = f"it needs {needed} GPUs and {free} are free"
    return line + _counts(refusal)


def _counts(refusal: Refusal | None) -> str:
    if refusal is None or not refusal.ruled_out:
        return ""
    parts = ", ".join(f"{count} {PREDICATE_WORDS.get(name, f'by {name}')}" for name, count in refusal.ruled_out)
    return f" (of {refusal.nodes} nodes: {parts})"


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "somebody"
