"""All attempts on this machine: started, passed actions on to, listened to, and found again after a restart."""

from __future__ import annotations

import logging
import os
import selectors
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from phalanx.backends.live import Adopted
from phalanx.backends.local.attempt_files import Answer, AttemptState, Ending
from phalanx.backends.local.device_memory import probe
from phalanx.backends.local.device_memory.meter import Meter
from phalanx.backends.local.device_memory.rates import Rates
from phalanx.backends.local.device_memory.usage import used_mb
from phalanx.backends.local.endings import (
    LOST,
    OUTCOMES,
    STOPPED,
    UNASKED,
    awaits_start,
    event_of,
    is_asked_for,
    unbegun,
)
from phalanx.backends.local.fence import Fence
from phalanx.backends.local.orders import Yard, shares_of
from phalanx.backends.local.orphans import end_orphans, kill_shepherd
from phalanx.backends.local.supervised import PassedOn, SupervisedAttempt
from phalanx.backends.local.turn_order import Key, turn_of
from phalanx.backends.local.turns import Turns
from phalanx.backends.local.unknown_attempts import put_away, strays_of
from phalanx.backends.local.wire import Message
from phalanx.errors import PhalanxError
from phalanx.placement.placement import Placement
from phalanx.protocol.action import Action, ActionId, Repartition, Resize, Resume, Start, Stop, Suspend
from phalanx.protocol.event import AttemptEnded, DeviceMemoryMeasured, Done, Event, Failed, Outcome
from phalanx.workload.job import Job

ENDING_S = 15.0
"""How long a shepherd may take beyond the grace of its attempt: processes that were killed, containers to remove."""


RESTORED_GRACE_MAX_MS = 600_000
"""A server that was restored takes no work before what it does not know has ended: it waits no longer than this."""


LAST = 1 << 30
"""The number of a stop that no engine asked for: it comes after all other actions."""


class Supervisors:
    """Works in one thread. What happens is handed to `emit`."""

    def __init__(self, yard: Yard, jobs: Callable[[str], Job], emit: Callable[[list[Event]], None]) -> None:
        self._yard = yard
        self._jobs = jobs
        self._hand_over = emit
        self._fence = Fence(yard.data)
        self._flocks: dict[tuple[str, int], SupervisedAttempt] = {}
        self._turns = Turns(yard.turn_ms, self._send, leave_memory=not probe.why_not())
        self._rates = Rates(yard.backend)
        self._meter = Meter(used_mb) if yard.device_names else None
        self._selector = selectors.DefaultSelector()

    def watch(self, handle: int, hook: Callable[[], None]) -> None:
        """Calls the hook whenever there is something to read."""
        self._selector.register(handle, selectors.EVENT_READ, hook)

    def attend(self) -> None:
        """Waits for the next thing and sees to it."""
        for key, _ in self._selector.select(self._patience_s()):
            key.data()
        self._turns.look()
        if self._meter is not None:
            news = self._meter.look(self._shepherds)
            self._emit(*(DeviceMemoryMeasured(job, attempt, mb) for (job, attempt), mb in news.items()))

    def _patience_s(self) -> float | None:
        waits_s = [] if self._meter is None else [self._meter.patience_s()]
        turn_s = self._turns.patience_s()
        return min(waits_s if turn_s is None else [*waits_s, turn_s], default=None)

    def _shepherds(self) -> Iterator[tuple[int, Key]]:
        """The processes that look after attempts which run."""
        for key, attempt_process in self._flocks.items():
            state = attempt_process.folder.state()
            if state is not None and state["phase"] == "running":
                yield state["pid"], key

    def let_go(self) -> None:
        """Closes all lines; the shepherds go on."""
        for attempt_process in self._flocks.values():
            attempt_process.let_go()
        self._selector.close()
        self._fence.close()

    def adopt(self, attempts: Iterable[Adopted], now: int) -> None:
        """Takes over what runs, tells what has ended, and ends what belongs to no known attempt."""
        present = {(each.job, each.attempt): each for each in attempts}
        if self._yard.history.restored:
            self._settle_restored(present, now)
        for key in list(self._fence.marked()):
            if key not in present:
                self._end_stray(*key)
        for each in present.values():
            self._adopt(each, now)

    def _settle_restored(self, present: Mapping[Key, Adopted], now: int) -> None:
        """Ends what a restored store does not know, and puts its folders away."""
        strays = list(strays_of(self._yard, present))
        unknown = {(stray.job, stray.attempt) for stray in strays}
        running = list(self._fence.marked())
        self._end_with_grace(
            [key for key in running if key in unknown or key not in present or self._is_ahead(present[key])]
        )
        for stray in strays:
            self._yard.history.found(put_away(self._yard, stray, (stray.job, stray.attempt) in running, now))

    def _is_ahead(self, adopted: Adopted) -> bool:
        """Whether an attempt was suspended, resumed or resized in the lost time: the State has other news."""
        state = self._yard.folder(adopted.job, adopted.attempt).state()
        return state is not None and state["newest"] >= adopted.next_seq

    def _end_with_grace(self, attempts: Iterable[Key]) -> None:
        """Has attempts end within their grace, and waits for that; what stays is killed."""
        supervised, grace_ms = [self._flock(*key) for key in attempts], 0
        for attempt_process in supervised:
            attempt_process.unknown = True
            order = attempt_process.folder.order()
            if order is None:
                self._forget(attempt_process)
            elif self._reach(attempt_process):
                own_ms = min(order["grace_ms"], RESTORED_GRACE_MAX_MS)
                grace_ms = max(grace_ms, own_ms)
                attempt_process.send(_stop_message(0, "restored", own_ms))
            else:
                self._seek(attempt_process)
        self._await_end(supervised, grace_ms / 1000 + ENDING_S)
        for attempt_process in supervised:
            self._hang_up(attempt_process)
            if not attempt_process.ended:
                # It does not answer, or does not listen.
                kill_shepherd(attempt_process.folder)
                self._seek(attempt_process)

    def _await_end(self, supervised: list[SupervisedAttempt], patience_s: float) -> None:
        deadline_s = time.monotonic() + patience_s
        while (
            not all(attempt_process.ended for attempt_process in supervised)
            and (left_s := deadline_s - time.monotonic()) > 0
        ):
            for key, _ in self._selector.select(left_s):
                key.data()

    def _hang_up(self, attempt_process: SupervisedAttempt) -> None:
        """Listens no more: another attempt may have its number."""
        if attempt_process.wire is not None:
            self._selector.unregister(attempt_process.wire)
            del self._flocks[attempt_process.job, attempt_process.attempt]
            attempt_process.let_go()

    def _emit(self, *events: Event) -> None:
        if events:
            self._hand_over(list(events))

    def carry_out(self, action: Action, now: int) -> None:
        """Has an action done, or answers why not."""
        self._see_to(action, now, self._fence.refuses)

    def _see_to(self, action: Action, now: int, refuses: Callable[[ActionId], str]) -> None:
        try:
            refusal = refuses(action.id)
            if refusal:
                self._emit(Failed(action.id, refusal, retryable=False))
            elif isinstance(action, Start):
                self._start(action, now)
            elif isinstance(action, Repartition):
                self._cut(action)
            else:
                self._pass_on(action)
        except PhalanxError as error:
            self._emit(Failed(action.id, str(error), retryable=False))
        except OSError as error:
            self._emit(Failed(action.id, f"{error.filename or 'this machine'}: {error.strerror}", retryable=True))
        except Exception as error:
            # A fault of ours must not end the thread, and with it every other job's news.
            logging.getLogger(__name__).exception("%s", action)
            self._emit(Failed(action.id, f"a fault of the local backend: {error!r}", retryable=False))

    def _start(self, action: Start, now: int) -> None:
        """Starts an attempt once, however often it is asked for."""
        attempt_process = self._flock(action.id.job, action.id.attempt)
        state = attempt_process.folder.state()
        if state is not None:
            self._answer_again(action, state)
            return
        if attempt_process.wire is not None:
            return
        job = self._jobs(action.id.job)
        self._end_older(action.id)
        order = self._yard.order(action, job, now)
        attempt_process.folder.make()
        self._make_folders(attempt_process, job, order.get("user", []))
        attempt_process.folder.write_turn(turn_of(action.placement))
        attempt_process.folder.write_shares(shares_of(action.placement))
        attempt_process.folder.write_order(order)
        self._fence.mark(attempt_process.job, attempt_process.attempt)
        self._listen(attempt_process, attempt_process.spawn().fileno())

    def _make_folders(self, attempt_process: SupervisedAttempt, job: Job, user: list[int]) -> None:
        """Makes what a job may see and write to, closed to all but its own Unix user."""
        data = self._yard.data
        homes = [self._yard.home(job)] if user and self._yard.is_at_home_here(job) else []
        for home in homes:
            if home.exists() and home.stat().st_uid != user[0]:
                # Of an account of this name that was deleted: its files are not the new one's.
                home.rename(f"{home}.{home.stat().st_uid}")
        for folder in (data / "jobs" / job.id / "work", data / "checkpoints" / job.id, *homes):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            if user:
                os.chown(folder, user[0], user[1])
        certificate = self._yard.certificate_for(job.id, attempt_process.attempt)
        if certificate:
            shutil.copyfile(certificate, attempt_process.folder.certificate_path)
        shared = os.path.dirname(attempt_process.folder.notice_path)
        os.chmod(shared, 0o750)
        if user:
            # Never the user's own: what the shepherd writes there as root must not be led elsewhere by a link.
            os.chown(shared, -1, user[1])

    def _end_older(self, action: ActionId) -> None:
        """Nothing of an older attempt may run beside a newer one, even if it is not known any more."""
        for attempt in range(1, action.attempt):
            attempt_process = self._flocks.get((action.job, attempt))
            if attempt_process is not None and not attempt_process.ended:
                attempt_process.send(_stop_message(action.term, "superseded"))

    def _answer_again(self, action: Action, state: AttemptState) -> None:
        known = [answer for answer in state["answers"] if answer["seq"] == action.id.seq]
        if known:
            self._emit(*(event_of(action.id.job, action.id.attempt, answer) for answer in known))
        elif action.id.seq < state["newest"]:
            reason = f"action {state['newest']} of this attempt came first"
            self._emit(Failed(action.id, reason, retryable=False))

    def _cut(self, action: Repartition) -> None:
        if action.node in self._yard.device_names:
            raise PhalanxError(f"device {action.device} of {action.node}: this backend cuts no real GPU by MIG")
        self._emit(Done(action.id))

    def _pass_on(self, action: PassedOn) -> None:
        """Has the shepherd do it, or answers for one that is not there."""
        attempt_process = self._flock(action.id.job, action.id.attempt)
        if attempt_process.ended or not self._reach(attempt_process):
            self._answer_for(attempt_process, action)
            return
        attempt_process.asked[action.id.seq] = action
        if isinstance(action, Stop):
            self._turns.leave((attempt_process.job, attempt_process.attempt))
        attempt_process.send(self._message_of(action))

    def _message_of(self, action: PassedOn) -> Message:
        numbers = {"term": action.id.term, "seq": action.id.seq}
        match action:
            case Stop(grace_ms=grace_ms, reason=reason):
                return {"do": "stop", "grace_ms": grace_ms, "reason": reason, **numbers}
            case Suspend(host_mb=host_mb):
                return {"do": "suspend", "host_mb": host_mb, **numbers}
            case Resume(placement=placement):
                return {"do": "resume", **self._devices(action.id, placement), **numbers}
            case Resize(placement=placement):
                folder = self._yard.folder(action.id.job, action.id.attempt)
                folder.write_turn(turn_of(placement))
                folder.write_shares(shares_of(placement))
                return {"do": "resize", **self._change(action.id, placement), **numbers}

    def _devices(self, action: ActionId, placement: Placement | None) -> Message:
        """The devices that a suspended attempt goes on with: in the place of which it had, and those of each rank."""
        if placement is None:
            return {}
        names = self._yard.device_names
        had = {task["rank"]: task for task in self._yard.folder(action.job, action.attempt).gang()}
        pairs: dict[str, str] = {}
        for slot in placement.slots:
            for old, new in zip(had[slot.rank]["devices"], slot.devices, strict=True):
                if slot.node in names:
                    pairs[names[slot.node][old]] = names[slot.node][new]
        return {"devices": pairs, "places": {str(slot.rank): list(slot.devices) for slot in placement.slots}}

    def _change(self, action: ActionId, placement: Placement) -> Message:
        """The members that join and leave, compared with those in the gang now."""
        job = self._jobs(action.job)
        folder = self._yard.folder(action.job, action.attempt)
        order = folder.order()
        assert order is not None, f"{folder.path} has no order"
        around = self._yard.around(order, job)
        wanted = self._yard.task_orders(job, action.attempt, placement, around)
        gang = folder.gang()
        present, kept = list(map(_place, gang)), list(map(_place, wanted))
        return {
            "add": [task for task in wanted if _place(task) not in present],
            "remove": [task["rank"] for task in gang if _place(task) not in kept],
        }

    def _answer_for(self, attempt_process: SupervisedAttempt, action: PassedOn) -> None:
        """Answers for an attempt that has no shepherd; under its lock, so that none can come up meanwhile."""
        if not isinstance(action, Stop):
            self._emit(Failed(action.id, "the attempt does not run", retryable=False))
            return
        attempt_process.folder.make()
        lock = attempt_process.lock_after_end() if attempt_process.ended else attempt_process.folder.lock()
        if lock is None:
            self._pass_on(action)
            return
        try:
            done = Answer(term=action.id.term, seq=action.id.seq, ok=True, reason="", retryable=True, node="")
            state = attempt_process.folder.close([done], STOPPED)
        finally:
            os.close(lock)
        self._answer_again(action, state)
        self._forget(attempt_process)

    def _forget(self, attempt_process: SupervisedAttempt) -> None:
        """What has ended is in its folder, where it is found when asked for again."""
        attempt_process.ended = True
        self._turns.leave((attempt_process.job, attempt_process.attempt))
        self._fence.unmark(attempt_process.job, attempt_process.attempt)

    def _flock(self, job: str, attempt: int) -> SupervisedAttempt:
        """One that is listened to, or one to look at its folder with."""
        return self._flocks.get((job, attempt)) or self._supervised(job, attempt)

    def _supervised(self, job: str, attempt: int) -> SupervisedAttempt:
        return SupervisedAttempt(job, attempt, self._yard.folder(job, attempt))

    def _reach(self, attempt_process: SupervisedAttempt) -> bool:
        """Whether a shepherd can be told something."""
        if attempt_process.wire is not None:
            return True
        if not os.path.exists(attempt_process.folder.order_path) or attempt_process.connect() is None:
            return False
        assert attempt_process.wire is not None
        self._listen(attempt_process, attempt_process.wire.fileno())
        return True

    def _listen(self, attempt_process: SupervisedAttempt, handle: int) -> None:
        self._flocks[attempt_process.job, attempt_process.attempt] = attempt_process
        self.watch(handle, partial(self._hear, attempt_process, handle))

    def _hear(self, attempt_process: SupervisedAttempt, handle: int) -> None:
        messages = attempt_process.wire.receive() if attempt_process.wire is not None else None
        for message in messages or ():
            self._hear_first(attempt_process, message)
            self._tell(attempt_process, message["answers"], message["ending"])
            self._hear_last(attempt_process, message)
            if message.get("rests", False):
                self._turns.rests((attempt_process.job, attempt_process.attempt))
        if messages is None:
            self._selector.unregister(handle)
            del self._flocks[attempt_process.job, attempt_process.attempt]
            attempt_process.let_go()
            attempt_process.reap()
            if not attempt_process.ended:
                self._seek(attempt_process)
            elif attempt_process.asked:
                self._answer_rest(attempt_process)

    def _hear_first(self, attempt_process: SupervisedAttempt, message: Message) -> None:
        """What a message says before its answers: nothing here, where every device is the one that was planned."""

    def _hear_last(self, attempt_process: SupervisedAttempt, message: Message) -> None:
        """What a message says beyond its answers."""

    def _seek(self, attempt_process: SupervisedAttempt) -> None:
        """Finds out what became of an attempt whose shepherd has left: perhaps it was the twin of another."""
        if self._reach(attempt_process):
            return
        lock = attempt_process.folder.lock()
        if lock is None:
            return
        try:
            state = attempt_process.folder.state()
            if state is None or state["ending"] is None:
                state = self._bury(attempt_process, state)
        finally:
            os.close(lock)
        if state is None:
            self._go_on(attempt_process)
        else:
            self._tell(attempt_process, state["answers"], state["ending"])
            self._answer_rest(attempt_process)

    def _bury(self, attempt_process: SupervisedAttempt, state: AttemptState | None) -> AttemptState | None:
        """Ends what is left of an attempt under its lock, as lost; None where another shepherd can go on with it."""
        end_orphans(attempt_process.folder)
        return unbegun(attempt_process) if state is None else attempt_process.folder.close([], LOST)

    def _go_on(self, attempt_process: SupervisedAttempt) -> None:
        """Has another shepherd go on with an attempt, and tells it what the one before it has not answered."""
        self._listen(attempt_process, attempt_process.spawn().fileno())
        for seq in sorted(attempt_process.asked):
            attempt_process.send(self._message_of(attempt_process.asked[seq]))

    def _answer_rest(self, attempt_process: SupervisedAttempt) -> None:
        """Answers what the shepherd was told when it had its ears shut already."""
        asked, attempt_process.asked = attempt_process.asked, {}
        for seq in sorted(asked):
            self._answer_for(attempt_process, asked[seq])

    def _tell(self, attempt_process: SupervisedAttempt, answers: list[Answer], ending: Ending | None) -> None:
        events: list[Event] = []
        for answer in answers:
            asked = attempt_process.asked.pop(answer["seq"], None)
            if asked is not None and "moved" in answer:
                self._rates.learn(answer["moved"]["way"], answer["moved"]["mb"], answer["moved"]["ms"])
            if answer["seq"] != LAST:
                events.append(event_of(attempt_process.job, attempt_process.attempt, answer))
        if ending is not None and not attempt_process.ended:
            self._forget(attempt_process)
            if ending["outcome"] in OUTCOMES:
                outcome = OUTCOMES[ending["outcome"]]
                # A reason begins with the word for its cause.
                cause = ending["reason"].partition(":")[0].partition(" ")[0] or "exit"
                code, reason, ended_ms = ending["exit_code"], ending["reason"], ending.get("ended_ms")
                events.append(
                    AttemptEnded(attempt_process.job, attempt_process.attempt, outcome, code, reason, cause, ended_ms)
                )
        if attempt_process.unknown:
            return
        self._emit(*events)
        if answers and not attempt_process.ended:
            self._see_to_turn(attempt_process)

    def _see_to_turn(self, attempt_process: SupervisedAttempt) -> None:
        """Has an attempt take turns that runs and asks for it; what it was asked before may have changed that."""
        turn, state = attempt_process.folder.turn(), attempt_process.folder.state()
        if turn is None or any(isinstance(action, Stop) for action in attempt_process.asked.values()):
            return
        key = (attempt_process.job, attempt_process.attempt)
        if state is not None and state["phase"] == "running":
            self._turns.join(key, turn)
        else:
            self._turns.leave(key)

    def _send(self, key: Key, message: Message) -> None:
        attempt_process = self._flocks.get(key)
        if attempt_process is not None:
            attempt_process.send(message)

    def _end_stray(self, job: str, attempt: int) -> None:
        """Ends what runs for an attempt that is not known."""
        attempt_process = self._flock(job, attempt)
        if self._reach(attempt_process):
            attempt_process.send(_stop_message(0, "nobody's"))
        else:
            self._seek(attempt_process)

    def _adopt(self, adopted: Adopted, now: int) -> None:
        attempt_process = self._flock(adopted.job, adopted.attempt)
        state = attempt_process.folder.state()
        begun = state is not None or not awaits_start(adopted)
        if state is not None and state["ending"] is not None:
            self._tell(attempt_process, state["answers"], state["ending"])
            if not is_asked_for(adopted, state):
                ended_ms = state["ending"].get("ended_ms")
                self._emit(
                    AttemptEnded(
                        attempt_process.job, attempt_process.attempt, Outcome.LOST, 0, UNASKED, "lost", ended_ms
                    )
                )
        elif begun and not self._reach(attempt_process):
            self._lose(attempt_process)
        for action in adopted.in_flight:
            # A leader that takes over stands in for what older leaders have asked for.
            self._see_to(action, now, self._fence.outdated)

    def _lose(self, attempt_process: SupervisedAttempt) -> None:
        attempt_process.folder.make()
        self._seek(attempt_process)


def _place(task: Mapping[str, Any]) -> tuple[object, ...]:
    return (task["rank"], task["node"], *task["devices"])


def _stop_message(term: int, reason: str, grace_ms: int = 0) -> Message:
    return {"do": "stop", "grace_ms": grace_ms, "reason": reason, "term": term, "seq": LAST}
