"""Runs a Python program as one rank: `python bootstrap.py [--standby MODULES] COMMAND…`, by the interpreter of the job.

It tells the launcher what the program raised and, when asked, where it stands. A standby imports modules first; then it
forks a rank for each line on its standard input, and tells of their ends. Nothing but the standard library is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import runpy
import select
import signal
import sys
import threading
import time
import traceback
from types import ModuleType, TracebackType

FOLDER = "PHALANX_WORKER_DIR"
RETURNED = "returned"
"""A file in the worker's folder from the moment its program has returned: what Python does then is no hang."""

READY = "PHALANX_STANDBY_FD"
"""A descriptor on which a standby says that it is ready, and what becomes of the ranks that it forks."""
STACK_SIGNAL = signal.SIGUSR2
PR_SET_PDEATHSIG = 1


def main() -> None:
    end_with_the_launcher()
    arguments = sys.argv[1:]
    if arguments[0] == "--standby":
        stand_by(arguments[1].split(","))
        arguments = arguments[2:]
    folder = os.environ[FOLDER]
    # Kept open: a signal may come when no file can be opened any more.
    stacks = os.open(os.path.join(folder, "stacks"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    faulthandler.enable(stacks)
    # What holds again once Python shuts down: there is no stack to tell then, and the signal must not kill.
    signal.signal(STACK_SIGNAL, signal.SIG_IGN)
    faulthandler.register(STACK_SIGNAL, stacks, all_threads=True)
    try:
        run(arguments)
    except Exception as error:
        tell(folder, error)
        sys.exit(1)
    finally:
        with contextlib.suppress(OSError):
            os.close(os.open(os.path.join(folder, RETURNED), os.O_CREAT | os.O_WRONLY))


def end_with_the_launcher() -> None:
    """A rank never outlives its agent: without it nothing could stop it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def stand_by(modules: list[str]) -> None:
    """Imports what takes long, and forks ranks until the launcher ends; returns in each of the ranks."""
    for module in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    told = int(os.environ.pop(READY))
    refuse_what_no_fork_survives()
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.freeze()
    os.write(told, b"ready\n")
    asked = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            tell_of_the_ended(told)
        if 0 in ready:
            read = os.read(0, 65536)
            if not read:
                raise SystemExit(0)
            *lines, asked = (asked + read).split(b"\n")
            for line in lines:
                if forks(told, line):
                    for descriptor in (told, woken, wakes):
                        os.close(descriptor)
                    return


def refuse_what_no_fork_survives() -> None:
    """Ends a standby whose modules have begun what a forked process does not have: the launcher does without."""
    torch = sys.modules.get("torch")
    if threading.active_count() > 1 or (torch is not None and torch.cuda.is_initialized()):
        print("phalanx: a module of --preload starts threads or CUDA: ranks start cold", file=sys.stderr, flush=True)  # noqa: T201
        raise SystemExit(1)


def forks(told: int, line: bytes) -> bool:
    """Forks a rank with the variables that the line says; whether this is the rank."""
    template = os.getpid()
    pid = os.fork()
    if pid:
        # The launcher may signal the rank as soon as it hears of it.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        os.write(told, f"forked {pid}\n".encode())
        return False
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    end_with_the_launcher()
    if os.getppid() != template:
        os._exit(1)
    os.environ.update(json.loads(line))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        # Its generator would be the same in all ranks.
        numpy.random.seed()
    return True


def tell_of_the_ended(told: int) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        os.write(told, f"ended {pid} {os.waitstatus_to_exitcode(status)}\n".encode())


def run(command: list[str]) -> None:
    """As `python COMMAND…` would: a file, or `-m` and a module."""
    if command[0] == "-m":
        sys.argv = command[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = command
    sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
    with open(os.path.abspath(command[0]), "rb") as file:
        code = compile(file.read(), command[0], "exec")
    module = ModuleType("__main__")
    module.__file__ = command[0]
    module.__dict__["__builtins__"] = __builtins__
    # Held, since a module that is let go of loses what its functions need.
    sys.modules["__bootstrap__"], sys.modules["__main__"] = sys.modules["__main__"], module
    exec(code, module.__dict__)


def tell(folder: str, error: Exception) -> None:
    """Prints what was raised, as Python would, and leaves it for the launcher."""
    # The frames of this file are not the program's.
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    said = {"error": type(error).__name__, "message": str(error), "trace": text, "at_s": time.time()}
    print(text, end="", file=sys.stderr, flush=True)  # noqa: T201
    with contextlib.suppress(OSError):
        path = os.path.join(folder, "error.json")
        with open(path + ".part", "w") as file:
            json.dump(said, file)
        os.replace(path + ".part", path)


if __name__ == "__main__":
    main()
