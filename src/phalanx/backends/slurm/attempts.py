"""All attempts on Slurm: submitted once, followed to their end, and found again after a restart."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from phalanx.backends.attempts import LAST, Key, RemoteAttempts
from phalanx.backends.local.attempt_files import Answer, Ending
from phalanx.backends.local.folder import new_state
from phalanx.backends.local.host.unix_user import task_ids
from phalanx.backends.local.orders import tasks_by_role
from phalanx.backends.slurm import jobs as slurm
from phalanx.backends.slurm.attempt import SlurmAttempt, read_attempt
from phalanx.backends.slurm.commands import SlurmDown, SlurmError, run
from phalanx.backends.slurm.endings import answer_to, ending_of, failed_start, start_failure
from phalanx.backends.slurm.jobs import GONE, RUNNING, SlurmJob
from phalanx.backends.slurm.node_agent import ask_to_stop
from phalanx.backends.slurm.orders import NodeYard, write_orders
from phalanx.backends.slurm.reports import last_line
from phalanx.backends.slurm.request import sbatch_arguments, shares_of
from phalanx.backends.slurm.script import batch_script
from phalanx.cluster.cluster import Cluster
from phalanx.protocol.action import Start, Stop
from phalanx.protocol.event import DevicesAssigned, Done, Event
from phalanx.workload.job import Job

PENDING_PATIENCE_S = 120.0
"""How long Slurm may keep an attempt pending: its nodes were free when it was planned, and others may need a word."""

LEAVING_S = 5.0
"""How long after its grace an attempt is left to end by itself, before Slurm is told to end it."""

OF_THE_MOMENT = ("submit limit", "violates accounting/qos policy", "limit on number of jobs")
"""What Slurm says of a user or an account that has as many jobs as it may have now."""

log = logging.getLogger(__name__)


class SlurmAttempts(RemoteAttempts[SlurmAttempt]):
    """Each is one job of Slurm, and its nodes put down how its tasks are."""

    engine = "Slurm"
    passing = (SlurmDown,)
    _yard: NodeYard

    def __init__(
        self,
        yard: NodeYard,
        jobs: Callable[[str], Job],
        cluster: Callable[[], Cluster],
        addresses: Callable[[], Mapping[str, str]],
        emit: Callable[[list[Event]], None],
    ) -> None:
        super().__init__(yard, emit)
        self._jobs = jobs
        self._cluster = cluster
        self._addresses = addresses
        self._mark = f"phalanx:{_own_name(yard)}:"

    @property
    def are_moving(self) -> bool:
        """Whether something is about to change that is worth a look soon."""
        return any(each.state != RUNNING or each.start or each.is_leaving for each in self.live.values())

    def look(self, with_slurm: bool) -> None:
        """Looks at what the nodes have put down and, `with_slurm`, asks Slurm."""
        reported = [each for each in list(self.live.values()) if self._look_at_nodes(each)]
        asked = list(self.live.values()) if with_slurm else reported
        known = [each for each in asked if each.slurm_id]
        if known:
            found = slurm.ask_jobs(each.slurm_id for each in known)
            for each in known:
                self._follow(each, found[each.slurm_id])
        for each in list(self.live.values()) if with_slurm else ():
            self._push(each)

    def _plan(self, action: Start, now: int) -> SlurmAttempt:
        key = (action.id.job, action.id.attempt)
        job = self._jobs(action.id.job)
        shares = shares_of(job, action.placement, {node.name: node for node in self._cluster().nodes})
        write_orders(self._yard, action, job, self._addresses(), now)
        folder = self._yard.folder(*key)
        comment = f"{self._mark}{key[0]}/{key[1]}"
        tasks = tasks_by_role(job.gang.roles)
        booked = [(slot.node, tasks[slot.role]) for slot in action.placement.slots]
        return SlurmAttempt(
            *key,
            folder,
            action.placement.slots,
            sbatch_arguments(job, shares, comment, folder.path, task_ids(self._yard.identity(job))),
            action.id,
            _sum((node, task.cpus_milli) for node, task in booked),
            _sum((node, task.memory_mb) for node, task in booked),
            parts=len(shares),
            sought=True,
        )

    def _push(self, attempt: SlurmAttempt) -> None:
        """Brings an attempt on as far as Slurm lets us: submitted, released, or ended."""
        try:
            self._submit(attempt)
            self._release(attempt)
            self._end_in_time(attempt)
        except SlurmDown as error:
            log.warning("job %s: %s", attempt.job, error)
        except SlurmError as error:
            self._refused(attempt, str(error))

    def _submit(self, attempt: SlurmAttempt) -> None:
        if attempt.slurm_id or attempt.key not in self.live:
            return
        if not attempt.sought:
            # It is unknown what became of the last try: a second job would be one too many.
            comment = f"{self._mark}{attempt.job}/{attempt.attempt}"
            found = [job for job in slurm.find_by_comment(comment) if job.comment == comment]
            attempt.slurm_id, attempt.sought = (found[0].id if found else ""), True
        if not attempt.slurm_id and attempt.is_leaving:
            self._finish(attempt, SlurmJob("", GONE))
            return
        if not attempt.slurm_id:
            attempt.sought = False
            told = run(attempt.argv, batch_script(attempt.folder.path, attempt.parts))
            attempt.slurm_id = told.strip().partition(";")[0]
        attempt.sought = True
        attempt.put_down()

    def _release(self, attempt: SlurmAttempt) -> None:
        if attempt.slurm_id and not attempt.released and not attempt.is_leaving:
            slurm.release(attempt.slurm_id)
            attempt.released, attempt.since_s = True, time.monotonic()
            attempt.put_down()

    def _refused(self, attempt: SlurmAttempt, reason: str) -> None:
        """Slurm does not take it, and will not."""
        if attempt.start is None or attempt.slurm_id:
            log.warning("job %s: %s", attempt.job, reason)
            return
        passes = any(word in reason.lower() for word in OF_THE_MOMENT)
        attempt.failure = failed_start(attempt.start, f"Slurm refused the job: {reason}", retryable=passes)
        self._finish(attempt, SlurmJob("", GONE))

    def _stop(self, action: Stop) -> None:
        attempt = self.live.get((action.id.job, action.id.attempt))
        if attempt is None:
            self._answer_for(action)
            return
        # What has started by now is told first.
        self._look_at_nodes(attempt)
        if action.id not in attempt.stops:
            attempt.stops.append(action.id)
        folder = attempt.folder.path
        ask_to_stop(folder, action.id.term, action.id.seq, action.grace_ms, action.reason)
        # What has not started has nothing to save.
        grace_s = action.grace_ms / 1000 + LEAVING_S if attempt.start is None else 0.0
        until_s = time.monotonic() + grace_s
        attempt.kill_at_s = until_s if attempt.kill_at_s is None else min(until_s, attempt.kill_at_s)
        attempt.put_down()
        self._hasten(attempt)

    def _hasten(self, attempt: SlurmAttempt) -> None:
        """Ends what has not begun, and has what runs look at what it is asked."""
        if not attempt.slurm_id:
            self._push(attempt)
        elif attempt.start is None:
            slurm.hurry(attempt.slurm_id)
        else:
            slurm.cancel(attempt.slurm_id)

    def _end_in_time(self, attempt: SlurmAttempt) -> None:
        """Ends in Slurm what is to end and does not, and what Slurm keeps pending for too long."""
        now_s = time.monotonic()
        if not attempt.slurm_id or attempt.key not in self.live:
            return
        is_overdue = attempt.kill_at_s is not None and now_s > attempt.kill_at_s
        is_undone = attempt.failure is not None and attempt.kill_at_s is None
        if is_overdue or is_undone:
            slurm.cancel(attempt.slurm_id)
            attempt.kill_at_s = now_s + LEAVING_S

    def _look_at_nodes(self, attempt: SlurmAttempt) -> bool:
        """Takes on what its nodes say; whether all tasks are over, so that Slurm is worth asking."""
        states = attempt.reports.look()
        if attempt.start is not None and not attempt.is_leaving:
            answers = [answer_to(state, attempt.start.seq) for state in states.values()]
            failed = [answer for answer in answers if answer is not None and not answer["ok"]]
            if failed:
                self._give_up(attempt, failed[0])
            elif all(answer is not None for answer in answers):
                self._started(attempt)
        ends = [state["ending"] for state in states.values() if state is not None and state["ending"] is not None]
        return len(ends) == len(states) or any(end["outcome"] == "failed" for end in ends)

    def _give_up(self, attempt: SlurmAttempt, why: Answer) -> None:
        """Undoes a start: it is told once Slurm has ended the job."""
        attempt.failure = why
        attempt.put_down()
        self._push(attempt)

    def _started(self, attempt: SlurmAttempt) -> None:
        assert attempt.start is not None
        devices = attempt.reports.devices()
        given = tuple(
            replace(slot, node=devices[slot.rank][0], devices=devices[slot.rank][1])
            for slot in attempt.slots
            if slot.rank in devices
        )
        answer = Answer(term=attempt.start.term, seq=attempt.start.seq, ok=True, reason="", retryable=True, node="")
        state = attempt.folder.state() or new_state()
        attempt.folder.write_state({**state, "phase": "running", "answers": [*state["answers"], answer]})
        start, attempt.start, attempt.given = attempt.start, None, given
        attempt.put_down()
        if len(given) == len(attempt.slots) and given != attempt.slots:
            self._emit(DevicesAssigned(attempt.job, attempt.attempt, given))
        self._emit(Done(start))

    def _follow(self, attempt: SlurmAttempt, job: SlurmJob) -> None:
        """Takes on what Slurm says of an attempt."""
        attempt.state = job.state
        if self._is_elsewhere(attempt, job):
            where = f"Slurm gave it {', '.join(job.nodes)} in place of {', '.join(attempt.nodes)}"
            assert attempt.start is not None
            self._give_up(attempt, failed_start(attempt.start, where))
        if job.is_over:
            attempt.reports.look()
            self._look_at_nodes(attempt)
            self._finish(attempt, job)
        elif job.is_pending and attempt.released and attempt.start is not None:
            self._mind_pending(attempt, job)

    def _is_elsewhere(self, attempt: SlurmAttempt, job: SlurmJob) -> bool:
        """Whether an attempt that starts has other nodes than were asked for."""
        if attempt.start is None or attempt.is_leaving or job.is_pending or not job.nodes:
            return False
        return sorted(job.nodes) != sorted(attempt.nodes)

    def _mind_pending(self, attempt: SlurmAttempt, job: SlurmJob) -> None:
        assert attempt.start is not None
        if attempt.failure is None and time.monotonic() - attempt.since_s > PENDING_PATIENCE_S:
            waited = f"Slurm kept job {job.id} pending for {PENDING_PATIENCE_S:g} s ({job.reason})"
            self._give_up(attempt, failed_start(attempt.start, waited))

    def _finish(self, attempt: SlurmAttempt, job: SlurmJob) -> None:
        """Puts down and tells how an attempt ended, once Slurm has given its devices back."""
        states = attempt.reports.look()
        answers: list[Answer] = []
        ending: Ending | None = None
        if attempt.start is not None:
            said = last_line(f"{attempt.folder.path}/slurm.out")
            why = attempt.failure or start_failure(states, attempt.start, job, said)
            if attempt.stops and attempt.failure is None:
                why = failed_start(attempt.start, "stopped while it was starting")
            if why is not None:
                answers.append(why)
                ending = Ending(outcome="unstarted", exit_code=0, reason=why["reason"])
        self._close(attempt, answers, ending or ending_of(states, job))

    def _read(self, key: Key) -> SlurmAttempt | None:
        return read_attempt(*key, self._yard.folder(*key))

    def _take_up(self, attempt: SlurmAttempt) -> None:
        attempt.since_s = time.monotonic()
        if attempt.start is None:
            self._tell_devices(attempt)
        if attempt.stops:
            attempt.kill_at_s = time.monotonic() + self._jobs(attempt.job).grace_ms / 1000 + LEAVING_S

    def _tell_devices(self, attempt: SlurmAttempt) -> None:
        """Tells the devices of an attempt that has started; the news may have been lost with the server."""
        devices = attempt.reports.devices()
        attempt.given = tuple(
            replace(slot, devices=devices[slot.rank][1]) if slot.rank in devices else slot for slot in attempt.slots
        )
        if attempt.given != attempt.slots:
            self._emit(DevicesAssigned(attempt.job, attempt.attempt, attempt.given))

    def _end_unknown(self, attempt: SlurmAttempt, grace_ms: int) -> None:
        ask_to_stop(attempt.folder.path, 0, LAST, grace_ms, "unknown")
        attempt.kill_at_s = time.monotonic() + grace_ms / 1000 + LEAVING_S

    def _look_again(self) -> None:
        self.look(with_slurm=True)


def _sum(parts: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for node, amount in parts:
        found[node] = found.get(node, 0) + amount
    return found


def _own_name(yard: NodeYard) -> str:
    """What tells jobs of this server apart from those of another, for as long as its folder is there."""
    path = yard.backend / "slurm-name"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        name = secrets.token_hex(6)
        draft = path.with_suffix(".new")
        draft.write_text(name)
        os.replace(draft, path)
        return name
