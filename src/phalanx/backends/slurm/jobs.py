"""Our jobs as Slurm tells of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from phalanx.backends.slurm.commands import SlurmError, SlurmRefused, run
from phalanx.workload.formats.hostlist import HostlistError, expand

_FORMAT = "%A|%i|%T|%N|%r|%k"
"""Number, number with the part of a hetjob, state, nodes, reason and comment: the last alone is a user's text."""

_ACCOUNTED = "JobID,State,NodeList"

PENDING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
LEAVING = ("COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING", "SUSPENDED")
RUNNING = "RUNNING"
GONE = "GONE"
"""Slurm knows the job no more: it forgets those that ended some minutes ago (MinJobAge)."""

CHUNK = 500


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job. A hetjob is one, with the nodes of all its parts and the state of the part that is least far."""

    id: str
    state: str
    nodes: tuple[str, ...] = ()
    reason: str = ""
    comment: str = ""

    @property
    def is_pending(self) -> bool:
        """Whether it has no nodes yet."""
        return self.state in PENDING

    @property
    def is_over(self) -> bool:
        """Whether it is over and its devices are free."""
        return not self.is_pending and self.state != RUNNING and self.state not in LEAVING


def ask_jobs(ids: Iterable[str]) -> dict[str, SlurmJob]:
    """Jobs by number. One that Slurm knows no more is as its accounting has it; without that it is gone."""
    wanted = list(ids)
    found: dict[str, SlurmJob] = {}
    for at in range(0, len(wanted), CHUNK):
        found |= _ask(wanted[at : at + CHUNK])
    forgotten = [job for job in wanted if job not in found]
    if forgotten:
        found |= _accounted(forgotten)
    return {job: found.get(job, SlurmJob(job, GONE)) for job in wanted}


def find_by_comment(prefix: str) -> list[SlurmJob]:
    """All jobs that Slurm still knows with a comment that begins so."""
    found = read_jobs(run(["squeue", "--noheader", "--states=all", f"--format={_FORMAT}"]))
    return [job for job in found.values() if job.comment.startswith(prefix)]


def cancel(job: str) -> None:
    """Ends a job; one that is over or gone is left alone."""
    try:
        run(["scancel", "--quiet", job])
    except SlurmRefused as refused:
        if "invalid job id" not in str(refused).lower() and "already" not in str(refused).lower():
            raise


def hurry(job: str) -> None:
    """Wakes the processes that look after the tasks of a job: there is something for them to read."""
    try:
        run(["scancel", "--quiet", "--signal=CONT", job])
    except SlurmRefused:
        # Its steps have not begun, or have ended: they look by themselves.
        return


def release(job: str) -> None:
    """Lets a held job start."""
    run(["scontrol", "release", job])


def read_jobs(text: str) -> dict[str, SlurmJob]:
    """Jobs from lines of the format above; a line that is none is passed over."""
    found: dict[str, SlurmJob] = {}
    for line in text.splitlines():
        cells = line.split("|", 5)
        if len(cells) == 6 and cells[0].isdecimal():
            part = _job(cells)
            found[part.id] = _together(found[part.id], part) if part.id in found else part
    return found


def _ask(ids: list[str]) -> dict[str, SlurmJob]:
    wanted = ",".join(ids)
    try:
        return read_jobs(run(["squeue", "--noheader", "--states=all", f"--jobs={wanted}", f"--format={_FORMAT}"]))
    except SlurmRefused as refused:
        if "invalid job id" not in str(refused).lower():
            raise
        return {} if len(ids) == 1 else {job: found for each in ids for job, found in _ask([each]).items()}


def _accounted(ids: list[str]) -> dict[str, SlurmJob]:
    """Jobs that Slurm has forgotten: from its accounting or, where there is none, from its list of completed jobs."""
    wanted = ["sacct", "--noheader", "--parsable2", f"--jobs={','.join(ids)}", f"--format={_ACCOUNTED}"]
    for argv in (wanted, [*wanted, "--completion"]):
        try:
            return read_accounted(run(argv))
        except SlurmError:
            continue
    return {}


def read_accounted(text: str) -> dict[str, SlurmJob]:
    """Jobs from what sacct prints. Steps are passed over; of a number that Slurm had twice the last counts."""
    found: dict[str, SlurmJob] = {}
    for line in text.splitlines():
        whole, _, rest = line.partition("|")
        state, _, nodes = rest.partition("|")
        number, _, part = whole.partition("+")
        if number.isdecimal() and state:
            each = SlurmJob(number, state.split()[0].upper(), _names(nodes))
            found[number] = _together(found[number], each) if part not in ("", "0") and number in found else each
    return found


def _job(cells: list[str]) -> SlurmJob:
    number, whole, state, nodes, reason, comment = cells
    id_ = re.sub(r"[+_].*", "", whole) if "+" in whole else number
    return SlurmJob(id_, state.upper(), _names(nodes), reason, "" if comment == "(null)" else comment)


def _names(nodes: str) -> tuple[str, ...]:
    try:
        return expand(nodes)
    except HostlistError:
        return ()


def _together(one: SlurmJob, other: SlurmJob) -> SlurmJob:
    """A hetjob runs once all its parts do, and is over once all are; the worst end counts."""
    least = min(one, other, key=_progress)
    return SlurmJob(one.id, least.state, one.nodes + other.nodes, least.reason, one.comment or other.comment)


def _progress(part: SlurmJob) -> int:
    if not part.is_over:
        return 0 if part.is_pending else 1 if part.state == RUNNING else 2
    return 4 if part.state == "COMPLETED" else 3
