"""Batches: the runs of a study, each in a process of its own if there are processors for it."""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from resource import RUSAGE_SELF, getrusage
from threading import Thread
from time import perf_counter
from traceback import format_exc
from typing import TypeAlias

import msgspec

from phalanx.errors import PhalanxError
from phalanx.policy.guarded import PolicyError
from phalanx.simulate.figures.metrics import Cost
from phalanx.simulate.figures.outcome import outcome
from phalanx.simulate.figures.result import Result
from phalanx.simulate.figures.window import Window
from phalanx.simulate.plugins import resolve_policy
from phalanx.simulate.simulation import Setup, Simulation, Watch
from phalanx.simulate.studies.study import Case, Study

Results: TypeAlias = Generator[tuple[int, Result], None, None]


class RunError(PhalanxError):
    """A run that came to no end. Its text names the policy."""


class DiedError(RunError):
    """A process that ended before its run did. `policy` is the one of that run."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        super().__init__(f"policy {policy}: its process died; if memory ran out, take fewer workers")


class FailedRunsError(RunError):
    """Runs of several cases that came to no end, while the rest did. `errors` are theirs, each once; `by_case` all."""

    def __init__(self, by_case: Mapping[int, PhalanxError]) -> None:
        self.by_case = by_case
        self.errors = list({str(error): error for error in by_case.values()}.values())
        super().__init__("; ".join(map(str, self.errors)))


class Stopped(Exception):  # noqa: N818
    """Raised by a watch to end a run after the turn just taken."""


class _Answer(msgspec.Struct, frozen=True):
    """What a process sends back: a result, what is wrong, or the trace of a mistake of ours."""

    result: Result | None = None
    error: str = ""
    trace: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Answer).decode


def run_one(
    setup: Setup,
    policy: str,
    until_ms: int | None = None,
    watch: Watch | None = None,
    window: Window | None = None,
) -> Result:
    """One run, to its end or until a moment, and what it took. `policy` is the policy as its user wrote it."""
    began_s = perf_counter()
    with naming(policy):
        simulation = Simulation(setup)
        simulation.begin()
    return carry_on(simulation, policy, began_s, until_ms, watch, window)


def carry_on(
    simulation: Simulation,
    policy: str,
    began_s: float,
    until_ms: int | None = None,
    watch: Watch | None = None,
    window: Window | None = None,
) -> Result:
    """Takes a run on from where it is. `began_s` is what the clock `perf_counter` said when it began."""
    with naming(policy):
        with suppress(Stopped):
            simulation.go(until_ms, watch)
        return outcome(simulation, policy, Cost(perf_counter() - began_s, peak_mb()), window)


def peak_mb() -> float:
    """The most memory this process has had."""
    # Linux counts in KiB, macOS in bytes.
    return getrusage(RUSAGE_SELF).ru_maxrss / (1024 * 1024 if sys.platform == "darwin" else 1024)


@contextmanager
def naming(policy: str) -> Iterator[None]:
    """Says of what goes wrong under which policy it did."""
    try:
        yield
    except PolicyError:
        raise
    except (PhalanxError, ValueError) as error:
        raise RunError(f"policy {policy}: {error}") from error
    except Exception as error:
        error.add_note(f"in a run of the policy {policy}")
        raise


def run_cases(study: Study, cases: Sequence[Case], workers: int | None = None) -> Results:
    """The number of each case and its result, as they finish. Without `workers`, as many processes as have work.

    A run that goes wrong is passed over: when all the rest are there, `FailedRunsError` tells of it. A process that
    dies, closing this, or a KeyboardInterrupt end all: what was yielded is there.
    """
    workers = min(workers or processors(), len(cases))
    errors: dict[int, PhalanxError] = {}
    if workers > 1:
        yield from _in_parallel(study, cases, workers, errors)
    else:
        for number, case in enumerate(cases):
            try:
                result = _run(study, case)
            except PhalanxError as error:
                errors[number] = error
            else:
                yield number, result
    if errors:
        raise FailedRunsError(errors) from next(iter(errors.values()))


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run(study: Study, case: Case) -> Result:
    return run_one(study.setup(case), case.policy, study.until_ms, window=study.window)


def _in_parallel(study: Study, cases: Sequence[Case], workers: int, errors: dict[int, PhalanxError]) -> Results:
    # From a server that has loaded this module: a start is quick, and what a process takes is its own.
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    crew: list[_Worker] = []
    try:
        todo = deque(enumerate(cases))
        at_work: dict[object, _Worker] = {}
        for _ in range(workers):
            crew.append(_Worker.hired(context, study))
            at_work[crew[-1].line] = crew[-1].take(*todo.popleft())
        while at_work:
            for line in wait([worker.line for worker in at_work.values()]):
                worker = at_work.pop(line)
                number, result = worker.number, worker.result(errors)
                if todo:
                    at_work[line] = worker.take(*todo.popleft())
                if result is not None:
                    yield number, result
    finally:
        for worker in crew:
            worker.dismiss()


@dataclass(slots=True)
class _Worker:
    """A process that runs cases, one at a time. Each has a line of its own, so that it can be ended at any moment."""

    process: BaseProcess
    line: Connection
    number: int = -1
    case: Case | None = None

    @classmethod
    def hired(cls, context: ForkServerContext, study: Study) -> _Worker:
        """A process that waits for its first case."""
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(study, there), daemon=True)
        process.start()
        there.close()
        return cls(process, here)

    def take(self, number: int, case: Case) -> _Worker:
        """Begins a case."""
        self.number, self.case = number, case
        try:
            self.line.send(case)
        except BrokenPipeError:
            raise self._died() from None
        return self

    def result(self, errors: dict[int, PhalanxError]) -> Result | None:
        """What the case came to; None if it went wrong, which is added to the errors. A mistake of ours is raised."""
        try:
            answer = _decode(self.line.recv_bytes())
        except (EOFError, ConnectionResetError):
            raise self._died() from None
        if answer.result is not None:
            return answer.result
        if answer.trace:
            raise RuntimeError(f"in another process: {answer.trace}")
        errors[self.number] = RunError(answer.error)
        return None

    def dismiss(self) -> None:
        """Ends the process, whatever it is at."""
        self.process.terminate()
        self.process.join()
        self.line.close()

    def _died(self) -> DiedError:
        policy = self.case.policy if self.case is not None else ""
        return DiedError(policy)


def _work(study: Study, line: Connection) -> None:
    """The life of a process: it runs cases until there are no more."""
    # Ctrl-C in a terminal reaches every process; the one that a person started ends the rest.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError):
        while True:
            line.send_bytes(_answer(study, line.recv()))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _answer(study: Study, case: Case) -> bytes:
    """Runs a case. Errors travel as text: not every exception can be put together again from its arguments."""
    try:
        resolve_policy(case.spec)
        return _encode(_Answer(_run(study, case)))
    except PhalanxError as error:
        return _encode(_Answer(error=str(error)))
    except Exception:
        return _encode(_Answer(trace=format_exc()))
