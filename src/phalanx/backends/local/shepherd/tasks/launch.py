"""Launching tasks together: all are brought to the very edge of their commands, and go over it only if all can.

A child tells of itself through a pipe that closes when its command begins: `!` it is ready, then nothing; `~` or
`x`, and why it failed, with or without hope.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from phalanx.backends.local.host.kernel import die_with_parent, leave_keyring

READY, AGAIN, NEVER = b"!", b"~", b"x"
GO = b"."

PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ETXTBSY)
"""What may be better the next time; a command that does not exist will not."""


class Stage:
    """What the children of one launch wait for: one byte each, or the end of all that could send it."""

    def __init__(self) -> None:
        self._gate, self._lever = os.pipe()

    def open(self, count: int) -> None:
        """Lets so many children begin."""
        os.write(self._lever, GO * count)
        self.close()

    def close(self) -> None:
        """Lets no more children begin."""
        if self._gate >= 0:
            os.close(self._gate)
            os.close(self._lever)
            self._gate = self._lever = -1

    def wait(self) -> None:
        """In a child: waits to be let begin; ends with the parent."""
        os.close(self._lever)
        if os.read(self._gate, 1) != GO:
            os._exit(1)


class Recruit:
    """A child on its way to its command. `confine` takes from it, in the child, what the command must not have."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], workdir: str, confine: Callable[[], None]) -> None:
        self._argv = list(argv)
        self._env = dict(env)
        self._workdir = workdir
        self._confine = confine
        self._is_set_up = False

    def fork(self, streams: Callable[[], tuple[int, int, int]], stage: Stage | None) -> tuple[int, int]:
        """Makes the child; its pid, and the pipe through which it tells of itself."""
        parent = os.getpid()
        listen, tell = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(listen)
            os.close(tell)
            raise
        if pid:
            os.close(tell)
            return pid, listen
        os.close(listen)
        try:
            self._become(parent, streams, stage, tell)
        except OSError as error:
            # What we set up for a task may go better elsewhere or later; what the job itself asks for will not.
            passing = not self._is_set_up or error.errno in PASSING
            os.write(tell, (AGAIN if passing else NEVER) + self._complaint(error).encode())
        except BaseException as error:
            os.write(tell, NEVER + repr(error).encode())
        finally:
            os._exit(127)

    def _become(self, parent: int, streams: Callable[[], tuple[int, int, int]], stage: Stage | None, tell: int) -> None:
        os.setsid()
        leave_keyring()
        die_with_parent(parent)
        _forget_signals()
        for number, handle in enumerate(streams()):
            os.dup2(handle, number)
        if sys.stdin is not None and os.isatty(0):
            _take_terminal()
        self._confine()
        # The kernel forgets it with a change of user.
        die_with_parent(parent)
        os.umask(0o022)
        self._is_set_up = True
        os.chdir(self._workdir)
        if stage is not None:
            os.write(tell, READY)
            stage.wait()
        os.execvpe(self._argv[0], self._argv, self._env)

    def _complaint(self, error: OSError) -> str:
        where = os.fsdecode(error.filename) if error.filename else ""
        refused = f" to Unix user {os.getuid()}, which the tasks run as" if error.errno == errno.EACCES else ""
        if where == self._workdir:
            return f"workdir '{where}': {error.strerror}{refused}"
        if "/" in self._argv[0] and error.errno == errno.ENOENT:
            return f"command '{self._argv[0]}': there is no such program, seen from {self._workdir}"
        if error.errno == errno.ENOENT and os.path.basename(where) == os.path.basename(self._argv[0]):
            return f"command '{self._argv[0]}': there is no such program on the job's PATH"
        if refused and "/" not in self._argv[0] and not os.access(os.path.dirname(where), os.X_OK):
            reach = f"as far as Unix user {os.getuid()}, which the tasks run as, can reach it"
            return f"command '{self._argv[0]}': there is no such program on the job's PATH, {reach}"
        return f"command '{self._argv[0]}': {where and f'{where}: '}{error.strerror}{refused}"


def _forget_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def failure(told: bytes) -> tuple[str, bool] | None:
    """Why a child failed, by all it told, and whether trying again could help; None if its command has begun."""
    complaint = told.removeprefix(READY)
    if not complaint:
        return None if told else ("a task died before its command began", True)
    return complaint[1:].decode(errors="replace"), complaint.startswith(AGAIN)
