"""The process of studies: starts what is queued, ends what is cancelled or takes too long, and tidies up."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from logging import Logger
from pathlib import Path

import msgspec

from phalanx.mortal import die_with_parent
from phalanx.server.clock import wall_ms
from phalanx.server.log import log_to_stderr
from phalanx.server.options import Options, options_of
from phalanx.server.studies.limits import AT_ONCE, STUDIES_OF_ONE, STUDY_KEPT_MS, TIME_S_MAX
from phalanx.server.studies.shelf import (
    ANSWER,
    COURSE,
    ERROR,
    TRACE,
    Course,
    Shelf,
    Study,
    StudyState,
    write,
)
from phalanx.server.studies.uploads import Uploads

LOOK_S = 0.25
AFTER_TROUBLE_S = 5.0
TIDY_S = 60.0
STDERR = "stderr"
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Each thread of a library for linear algebra would take memory and a processor of its own."""

STOPPED = "the server was stopped while it ran: begin it again"
DIED = "its process was killed, by the system for want of memory perhaps: take a part of the trace"
TOO_LONG = f"it took longer than {TIME_S_MAX // 60} minutes: take a part of the trace, fewer policies or fewer seeds"
DEFECT = "a defect of the server; its log has more"


class Running:
    """The process of a study, with all that it may start."""

    def __init__(self, study: Study, folder: Path, options: Options) -> None:
        self.user = study.asked.user
        self.began_ms = wall_ms()
        self._began_s = time.monotonic()
        handle = options.in_memory()
        try:
            with (folder / STDERR).open("wb") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "phalanx.server.studies.run", str(handle), str(folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    pass_fds=(handle,),
                    env={**os.environ, **THREADS},
                    preexec_fn=die_with_parent,
                    process_group=0,
                )
        finally:
            os.close(handle)

    @property
    def code(self) -> int | None:
        """How it ended; None while it goes on."""
        return self._process.poll()

    @property
    def is_late(self) -> bool:
        """Whether it has had all its time."""
        return time.monotonic() - self._began_s > TIME_S_MAX

    def end(self) -> None:
        """Ends it, whatever it is at."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Studies:
    """The studies of a server, and the processes of those that run."""

    def __init__(self, options: Options, log: Logger) -> None:
        self._options = options
        self._log = log
        folder = options.file("studies")
        self._shelf, self._uploads = Shelf(folder), Uploads(folder)
        self._running: dict[str, Running] = {}
        self._tidied_s = 0.0
        for draft in self._shelf.drafts():
            shutil.rmtree(draft, ignore_errors=True)
        for study in self._shelf.studies():
            if study.course.state is StudyState.RUNNING:
                self._close(study.id, StudyState.FAILED, study.course.began_ms, STOPPED)

    def turn(self) -> None:
        """Looks after what runs, and starts what is queued while there are places."""
        self._look_after_running()
        queued = [study for study in self._shelf.studies() if study.course.state is StudyState.QUEUED]
        for study in queued:
            if study.is_to_end:
                self._close(study.id, StudyState.CANCELLED)
            elif self._has_place_for(study.asked.user):
                self._start(study)
        for name in list(self._shelf.names()):
            if name not in self._running and self._shelf.is_removed(name):
                self._shelf.remove(name)
        if time.monotonic() - self._tidied_s > TIDY_S:
            self._tidied_s = time.monotonic()
            self._tidy()

    def end(self) -> None:
        """Ends all that runs."""
        for name, running in self._running.items():
            running.end()
            self._close(name, StudyState.FAILED, running.began_ms, STOPPED)

    def _has_place_for(self, user: str) -> bool:
        return len(self._running) < AT_ONCE and all(each.user != user for each in self._running.values())

    def _start(self, study: Study) -> None:
        folder = self._shelf.folder(study.id)
        # Before there is a process: on a full disk none is started, again and again.
        write(folder / COURSE, msgspec.json.encode(Course(StudyState.RUNNING, wall_ms())))
        try:
            self._running[study.id] = Running(study, folder, self._options)
        except OSError as error:
            self._close(study.id, StudyState.FAILED, None, f"its process could not be started: {error.strerror}")

    def _look_after_running(self) -> None:
        for name, running in list(self._running.items()):
            study = self._shelf.study(name)
            code = running.code
            if study is None or study.is_to_end:
                self._finish(name, running, StudyState.CANCELLED)
            elif code is None and running.is_late:
                self._finish(name, running, StudyState.FAILED, TOO_LONG)
            elif code == 0 and (self._shelf.folder(name) / ANSWER).exists():
                self._finish(name, running, StudyState.DONE)
            elif code is not None:
                self._finish(name, running, StudyState.FAILED, self._why(name, code))

    def _finish(self, name: str, running: Running, state: StudyState, error: str = "") -> None:
        running.end()
        self._close(name, state, running.began_ms, error)
        del self._running[name]

    def _close(self, name: str, state: StudyState, began_ms: int | None = None, error: str = "") -> None:
        """Writes down how a study ended. The trace is of no more use."""
        folder = self._shelf.folder(name)
        (folder / TRACE).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            write(folder / COURSE, msgspec.json.encode(Course(state, began_ms, wall_ms(), error)))

    def _why(self, name: str, code: int) -> str:
        folder = self._shelf.folder(name)
        with suppress(OSError):
            return (folder / ERROR).read_text("utf-8")
        if code < 0:
            return DIED
        with suppress(OSError):
            self._log.error("a study failed", extra={"study": name, "trace": (folder / STDERR).read_text()[-4_000:]})
        return DEFECT

    def _tidy(self) -> None:
        """Removes what is old, and of each user what are too many."""
        now_ms = wall_ms()
        self._uploads.remove_old(now_ms)
        ended = [study for study in reversed(self._shelf.studies()) if not study.is_under_way]
        seen: Counter[str] = Counter()
        for study in ended:
            seen[study.asked.user] += 1
            if seen[study.asked.user] > STUDIES_OF_ONE or study.asked.created_ms < now_ms - STUDY_KEPT_MS:
                self._shelf.remove(study.id)


def main(handle: str) -> int:
    """Runs the studies of a server. `handle` is the number of the file that holds its options."""
    options = options_of(handle)
    log = log_to_stderr("studies")
    studies = Studies(options, log)
    is_to_end = False

    def stop(*_: object) -> None:
        nonlocal is_to_end
        is_to_end = True

    signal.signal(signal.SIGTERM, stop)
    log.info("ready")
    while not is_to_end:
        try:
            studies.turn()
        except OSError as error:
            # A full disk, say: what is queued stays so.
            log.error(str(error))
            time.sleep(AFTER_TROUBLE_S)
        time.sleep(LOOK_S)
    studies.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
