"""The reason why a job waits, in one clear line, made from the same Explanation that programs get as data."""

from __future__ import annotations

from phalanx.engine.state.records import JobState
from phalanx.engine.state.state import State
from phalanx.engine.why.evidence import Reserved
from phalanx.engine.why.explain import Explanation
from phalanx.protocol.reason import Reason
from phalanx.simulate.figures.never_fit import misfit_words
from phalanx.words.lack import lacking
from phalanx.words.never_fits import most_of_a_node
from phalanx.words.others import name_of, names_of
from phalanx.words.phrases import listed
from phalanx.words.predicate import ruled_out
from phalanx.words.quota import out_of_budget, over_quota
from phalanx.words.virtual_cluster import lacking_in_cells

REASON_WORDS = {
    Reason.NEVER_FITS: "no part of the cluster could hold it",
    Reason.HELD: "it is held",
    Reason.SCALED_TO_ZERO: "it has no load, and no replica by its scale",
    Reason.DEPENDENCY_FAILED: "an outcome it waits for did not come",
    Reason.DEPENDENCY: "another job comes first",
    Reason.BEGIN_TIME: "its begin time has not come",
    Reason.BACKOFF: "it is tried again after a pause",
    Reason.ARRAY_LIMIT: "enough members of its array run",
    Reason.BUDGET: "its budget is used up",
    Reason.QUOTA: "its quota is used up",
    Reason.BEHIND: "it is behind a job that no other may pass",
    Reason.UNHEALTHY: "too many nodes are not healthy",
    Reason.GPUS: "too few GPUs are free",
    Reason.AMOUNT: "too few CPUs, NICs or too little memory is free beside the GPUs",
    Reason.TOPOLOGY: "no one domain has room for all of it",
    Reason.FRAGMENTED: "too few of the free GPUs lie together",
    Reason.RESERVED: "what it needs is reserved for another job",
    Reason.MAINTENANCE: "nodes it takes are closed for maintenance soon",
    Reason.MAKING_ROOM: "the jobs that it preempts have to end first",
    Reason.PREPARING: "its devices are being cut",
    Reason.UNDECIDED: "nothing has been decided on it yet",
}
"""A reason in a few words, where it stands at the end of a line about something else."""

OVER_WORDS = {
    JobState.SUCCEEDED: "it succeeded",
    JobState.FAILED: "it failed",
    JobState.CANCELLED: "it was cancelled",
}

NEVER = "no part of this cluster could ever hold it"


def because_in(state: State, explanation: Explanation) -> str:
    """Why the job of a State waits, in one line, with what only the State tells: how it ended, and what nodes have."""
    return because(explanation, state.record(explanation.job).end_reason, most_of_a_node(state, explanation))


def because(explanation: Explanation, end_reason: str = "", too_small: str = "") -> str:
    """Why the job waits, in one line; of one that ends or has ended, what its record says of that. `too_small` is what
    it asks of one node that no node has.
    """
    words = _because(explanation, end_reason)
    if too_small:
        words = words.replace(NEVER, f"{NEVER}: {too_small}", 1)
    if explanation.state is JobState.SUSPENDED and explanation.reason is not None:
        return f"it is suspended and goes on where it was; {words}"
    return words


def _because(explanation: Explanation, end_reason: str) -> str:
    refusal = explanation.refusal
    match explanation.reason:
        case None:
            state = explanation.state.value
            words = OVER_WORDS.get(explanation.state, f"it is {state}")
            return f"{words}: {end_reason}" if end_reason not in ("", state) else words
        case Reason.HELD:
            return "it is held; release it to let it start"
        case Reason.SCALED_TO_ZERO:
            return "it has no load, and with min: 0 no replica; it starts when its query tells of load, or by resize"
        case Reason.DEPENDENCY:
            return f"it waits for {names_of(explanation.waits_for)}"
        case Reason.DEPENDENCY_FAILED:
            return f"it waits for an outcome of {names_of(explanation.waits_for)} that did not come; cancel it"
        case Reason.BEGIN_TIME:
            return "its begin time has not come"
        case Reason.BACKOFF:
            return f"{_failed(explanation)}; it is tried again after a pause"
        case Reason.ARRAY_LIMIT:
            return "as many members of its array run as may at a time"
        case Reason.BEHIND:
            return f"it is behind {name_of(explanation.behind)}, which does not fit and may not be passed"
        case Reason.QUOTA if explanation.virtual_cluster is not None:
            return lacking_in_cells(explanation, explanation.virtual_cluster)
        case Reason.BUDGET if explanation.budgets:
            return out_of_budget(explanation.budgets[0])
        case Reason.QUOTA | Reason.BUDGET:
            return over_quota(explanation.quota)
        case Reason.RESERVED:
            return _reserved(explanation.reserved_for)
        case Reason.MAINTENANCE:
            names = listed(tuple(window.name for window in explanation.maintenance if window.name))
            which = f" ({names})" if names else ""
            if refusal is not None:
                return f"nodes that it needs are closed for maintenance{which}{ruled_out(refusal)}"
            return f"it would fit, but not end before nodes it takes are closed for maintenance{which}"
        case Reason.MAKING_ROOM:
            verb = "have" if len(explanation.waits_for) > 1 else "has"
            return f"its devices are promised; it starts when {names_of(explanation.waits_for)} {verb} left"
        case Reason.NEVER_FITS:
            return NEVER + _too_small(explanation) + ruled_out(refusal)
        case Reason.PREPARING:
            return "its devices are being cut into the instances it asked for"
        case Reason.UNDECIDED:
            return "no decision has looked at it as things are now"
        case _:
            return lacking(explanation)


def _reserved(others: tuple[Reserved, ...]) -> str:
    """The jobs for which devices are kept from some moment on, or what is left of a limit from now on."""
    jobs = names_of(tuple(each.other for each in others))
    if others and others[0].limit:
        return f"it would fit, but what is left of the limit of queue {others[0].limit} is kept for {jobs}"
    return f"it would fit, but not end before what it takes is reserved for {jobs}"


def _too_small(explanation: Explanation) -> str:
    """What of the cluster is too small for a job, by the rule that says where it must lie."""
    if explanation.misfit is None or explanation.refusal is None:
        return ""
    return f": it {misfit_words(explanation.misfit, explanation.refusal.nodes)}"


def _failed(explanation: Explanation) -> str:
    """What went wrong last: it did not start, or it ran and then failed."""
    if explanation.wasted > 1:
        return f"other jobs were preempted for it, and it crashed within 10 minutes {explanation.wasted} times in a row"
    if explanation.failed_runs and not explanation.failed_starts:
        times = explanation.failed_runs
        return "it ran and failed" if times == 1 else f"it ran and failed {times} times"
    return "it failed to start"
