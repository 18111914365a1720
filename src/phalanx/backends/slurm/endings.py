"""How an attempt ended: what its nodes report, and what Slurm says."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.backends.local.attempt_files import Answer, AttemptState, Ending
from phalanx.backends.slurm.jobs import GONE, SlurmJob
from phalanx.protocol.action import ActionId

States = Mapping[str, AttemptState | None]

LOST_STATES = {
    "NODE_FAIL": "a node failed",
    "BOOT_FAIL": "a node did not boot",
    "PREEMPTED": "Slurm preempted it for another job",
    "REVOKED": "Slurm moved it to another cluster",
}
"""Ends that no job is to blame for: the attempt is lost, and made up for."""

FAILED_STATES = {
    "TIMEOUT": "timeout: Slurm's time limit was reached",
    "DEADLINE": "deadline: Slurm's deadline was reached",
    "OUT_OF_MEMORY": "oom: out of memory, says Slurm",
    "CANCELLED": "cancelled: it was cancelled in Slurm, not by phalanx",
}


def ending_of(states: States, job: SlurmJob) -> Ending:
    """The end of an attempt that phalanx did not stop. Slurm has none of it any more."""
    if job.state in LOST_STATES:
        return _lost(f"lost: {LOST_STATES[job.state]} (Slurm job {job.id})")
    ends = [state["ending"] for state in states.values() if state is not None and state["ending"] is not None]
    ended_ms = max((end.get("ended_ms", 0) for end in ends), default=0)
    failed = [end for end in ends if end["outcome"] == "failed"]
    # What Slurm ends dies by its signals, which says less than Slurm does.
    if job.state in FAILED_STATES:
        failed = [end for end in failed if not end["reason"].startswith("signal ")]
    if failed:
        return _at(min(failed, key=lambda end: end.get("ended_ms", 0)), ended_ms)
    if job.state in FAILED_STATES:
        code = 137 if job.state == "OUT_OF_MEMORY" else 1
        reason = f"{FAILED_STATES[job.state]} (job {job.id})"
        return _at(Ending(outcome="failed", exit_code=code, reason=reason), ended_ms)
    if len(ends) == len(states) and all(end["outcome"] == "succeeded" for end in ends):
        return _at(Ending(outcome="succeeded", exit_code=0, reason=ends[0]["reason"]), ended_ms)
    if job.state == GONE:
        return _lost(f"lost: Slurm does not know job {job.id} any more, and its nodes have not told of its end")
    return _lost(f"lost: what looked after its tasks was killed (Slurm job {job.id}: {job.state.lower()})")


def start_failure(states: States, start: ActionId, job: SlurmJob, said: str) -> Answer | None:
    """Why an attempt did not start, where it did not and is over; None if all its tasks ran."""
    found = {node: answer_to(state, start.seq) for node, state in states.items()}
    for answer in found.values():
        if answer is not None and not answer["ok"]:
            return answer
    silent = [node for node, answer in found.items() if answer is None]
    if not silent:
        return None
    why = LOST_STATES.get(job.state) or (said if said else f"it ended as {job.state.lower()} in Slurm")
    return failed_start(start, f"Slurm job {job.id} ended before the tasks on {silent[0]} ran: {why}", silent[0])


def answer_to(state: AttemptState | None, seq: int) -> Answer | None:
    """The answer of one node to an action; None if it has not answered."""
    found = [answer for answer in state["answers"] if answer["seq"] == seq] if state is not None else []
    return found[0] if found else None


def failed_start(start: ActionId, reason: str, node: str = "", retryable: bool = True) -> Answer:
    """A start that failed."""
    return Answer(term=start.term, seq=start.seq, ok=False, reason=reason, retryable=retryable, node=node)


def _at(ending: Ending, ended_ms: int) -> Ending:
    found = Ending(outcome=ending["outcome"], exit_code=ending["exit_code"], reason=ending["reason"])
    if ended_ms:
        found["ended_ms"] = ended_ms
    return found


def _lost(reason: str) -> Ending:
    return Ending(outcome="lost", exit_code=0, reason=reason)
