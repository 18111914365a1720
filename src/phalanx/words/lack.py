"""What a job lacks of the nodes, where its queue may have it."""

from __future__ import annotations

from phalanx.cluster.cluster import NODE, Health
from phalanx.engine.why.explain import Explanation
from phalanx.placement.placement import Refusal
from phalanx.protocol.reason import Reason
from phalanx.simulate.figures.never_fit import BESIDE
from phalanx.words.phrases import counted, listed
from phalanx.words.predicate import ruled_out
from phalanx.words.shortage import shortage_words
from phalanx.words.virtual_cluster import lacking_in_cells


def lacking(explanation: Explanation) -> str:
    """What keeps a job from every place there is, with the nodes that are ruled out."""
    refusal = explanation.refusal
    if refusal is None:
        return "it would fit now"
    free, needed = refusal.gpus_free, refusal.gpus_needed
    if explanation.virtual_cluster is not None and explanation.reason is not Reason.AMOUNT:
        return lacking_in_cells(explanation, explanation.virtual_cluster)
    if explanation.shortage is not None:
        return shortage_words(explanation.shortage) + _spared(explanation)
    match explanation.reason:
        case Reason.UNHEALTHY:
            line = f"too many of the nodes {_subject(refusal)} could use {_not_to_be_had(explanation)}"
        case Reason.AMOUNT:
            line = _too_little_beside(refusal)
        case Reason.TOPOLOGY:
            line = f"{free} GPUs are free, but no one domain has room for all {needed}{_most_together(explanation)}"
        case Reason.FRAGMENTED:
            line = f"{free} GPUs are free, but too few of them lie together{_most_together(explanation)}"
        case _:
            line = f"{_subject(refusal)} needs {counted(needed, 'GPU')} and {free} {'is' if free == 1 else 'are'} free"
    return line + ruled_out(refusal) + _spared(explanation)


def _not_to_be_had(explanation: Explanation) -> str:
    """What is wrong with nodes that a job could use. Spares are well, and kept for jobs that lose a node."""
    spares = [node for node, health in explanation.unhealthy if health == Health.SPARE]
    if not spares:
        return "are not healthy"
    kept = "are kept as spares by the cluster's `recovery`"
    return kept if len(spares) == len(explanation.unhealthy) else f"are not healthy, or {kept}"


def _subject(refusal: Refusal) -> str:
    """What lacks something: the job, or one role of it."""
    return f"its role {refusal.role}" if refusal.role else "it"


def _too_little_beside(refusal: Refusal) -> str:
    """What is short beside free GPUs: on single nodes, or for all tasks together."""
    what = BESIDE.get(refusal.short_of, refusal.short_of) or "CPUs, memory or NICs"
    if refusal.short_of:
        few = "few" if what.endswith("s") else "little"
        tasks = f"all tasks of {_subject(refusal)}" if refusal.role else "all its tasks"
        return f"GPUs are free, but too {few} {what} beside them for {tasks}"
    if refusal.role:
        return f"GPUs are free, but not the {what} that {_subject(refusal)} needs"
    return f"GPUs are free, but not the {what} beside them"


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


def _spared(explanation: Explanation) -> str:
    """Queues whose jobs would be preempted but for the time that their queues let them run."""
    if not explanation.spared:
        return ""
    queues = listed(tuple(dict.fromkeys(each.queue for each in explanation.spared)))
    return f"; jobs of queue {queues} would give way, but have not yet run for its min_run"
