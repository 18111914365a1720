"""A Python whose torch is imported already: `python()` is its path, for a launcher or a torchrun.

It is a small program. It has a process, forked where torch has been imported once for all of them, run what it was to
run, with its variables, descriptors, folder and network; it passes on signals, and ends as that process ends. An agent
of our own needs no torch, and is run by the real Python.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import json
import multiprocessing
import os
import random
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from phalanx.train.launch.bootstrap import end_with_the_launcher

PRELOAD = [
    "torch.distributed.tensor",
    "torch.distributed.checkpoint",
    "phalanx.train.checkpoint.store",
    "phalanx.train.checkpoint.store.media.remote",
]
"""What ranks of benchmarks and tests import."""

CLONE_NEWNET = 0x40000000

PROGRAM = """#!{python} -IS
import ctypes, json, os, signal, socket, sys
arguments = sys.argv[1:]
if arguments[:2] == ["-m", "phalanx"]:
    os.execv({python!r}, [{python!r}, *arguments])
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
numbers = [0, 1, 2, *map(int, filter(None, [os.environ.get("PHALANX_STANDBY_FD")]))]
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
server.connect({path!r})
arguments = [each for each in arguments if each != "-u"]
asked = dict(arguments=arguments, variables=dict(os.environ), folder=os.getcwd(), descriptors=numbers)
network = os.open("/proc/self/ns/net", os.O_RDONLY)
socket.send_fds(server, [json.dumps(asked).encode()], [*numbers, network])
pid = int(server.recv(64))
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGCONT):
    signal.signal(number, lambda number, _: os.killpg(pid, number))
code = int(server.recv(64))
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@functools.cache
def python() -> str:
    """Where it is; the process that forks lives as long as this one."""
    folder = Path(tempfile.mkdtemp(prefix="phalanx-warm-"))
    context: ForkServerContext = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    path = folder / "socket"
    process = context.Process(target=serve, args=(str(path),), daemon=True)
    process.start()
    while not path.exists():
        assert process.is_alive()
        time.sleep(0.01)
    program = folder / "python3"
    program.write_text(PROGRAM.format(python=sys.executable, path=str(path)))
    program.chmod(0o755)
    return str(program)


def serve(path: str) -> None:
    # It is a child of what forks, and ends with it.
    end_with_the_launcher()
    quicken_torchrun()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{path}.part")
        listener.listen(64)
        os.rename(f"{path}.part", path)
        Forks(listener).serve()


def quicken_torchrun() -> None:
    """Spares torchrun's agents what their rendezvous writes down of each change: it names its function by
    `inspect.stack`, a search through all modules. On a busy machine others change the state meanwhile, each time.
    """
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous

    dynamic_rendezvous.get_method_name = lambda depth=2: ""


class Forks:
    """The processes that were asked for, by the connection and by the descriptor that tells of the end of each."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._asked: dict[int, tuple[socket.socket, int, int]] = {}
        self._ends: dict[int, int] = {}

    def serve(self) -> None:
        while True:
            watched: list[Any] = [self._listener, *self._asked, *self._ends]
            ready, _, _ = select.select(watched, [], [])
            for each in ready:
                if each is self._listener:
                    self._fork(self._listener.accept()[0])
                elif each in self._ends:
                    self._tell(each)
                elif each in self._asked:
                    # Nothing more is said by what asked but that it has ended.
                    self._kill(each)

    def _fork(self, asking: socket.socket) -> None:
        said, given, _, _ = socket.recv_fds(asking, 1 << 20, 8)
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            self._close()
            asking.close()
            run(json.loads(said), given)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        for number in given:
            os.close(number)
        end = os.pidfd_open(pid)
        self._asked[asking.fileno()] = (asking, pid, end)
        self._ends[end] = asking.fileno()
        asking.send(str(pid).encode())

    def _tell(self, end: int) -> None:
        asking, pid, _ = self._asked.pop(self._ends.pop(end))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(OSError):
            asking.send(str(code).encode())
        asking.close()
        os.close(end)

    def _kill(self, number: int) -> None:
        _, pid, end = self._asked[number]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        self._tell(end)

    def _close(self) -> None:
        self._listener.close()
        for asking, _, end in self._asked.values():
            asking.close()
            os.close(end)


def run(asked: dict[str, Any], given: list[int]) -> None:
    """Is the process that was asked for, and ends as it."""
    join_network(given.pop())
    # None of those given may be where another is to be.
    high = [fcntl.fcntl(each, fcntl.F_DUPFD, 100) for each in given]
    for number in given:
        os.close(number)
    for number, each in zip(asked["descriptors"], high, strict=True):
        os.dup2(each, number)
        os.close(each)
    # As in a Python of its own, and not the same in all of them.
    random.seed()
    os.environ.clear()
    os.environ.update(asked["variables"])
    os.chdir(asked["folder"])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    code: Any = 0
    try:
        run_program(asked["arguments"])
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def join_network(namespace: int) -> None:
    """Has this process be on the host of what asked for it, where hosts are network namespaces."""
    if os.fstat(namespace).st_ino != os.stat("/proc/self/ns/net").st_ino:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    os.close(namespace)


def run_program(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
