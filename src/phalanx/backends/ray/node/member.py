"""A member: the part of a gang that is on one node, and the line to the shepherd that runs its tasks."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable
from typing import Any

from phalanx.backends.local.attempt_files import Answer, AttemptState, Ending
from phalanx.backends.local.folder import SHARED, AttemptFolder, write_durably
from phalanx.backends.local.orphans import end_orphans
from phalanx.backends.local.wire import Message, Wire

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "USER", "LOGNAME", "SHELL", "TMPDIR")
"""All that a task gets of the surroundings of Ray on its node."""

READ_BYTES_MAX = 64 << 10
"""How much of all logs is sent at once: what is above 100 kB would go by the object store, which may be full."""

LOST = "lost: what looked after its tasks was killed"

_LINE = 3
_PROGRAM = (
    "import os, sys\n"
    # Ray kills the children of an actor that ends: a shepherd is none, so that it can end its tasks first.
    "if os.fork(): os._exit(0)\n"
    "sys.path.append(sys.argv[3])\n"
    "from phalanx.backends.local.shepherd.__main__ import main\n"
    "main(sys.argv[1], int(sys.argv[2]))\n"
)


class Member:
    """What one gang runs on this node. `root` is where the shepherd's program is found."""

    def __init__(self, folder: AttemptFolder, root: str) -> None:
        self.folder = folder
        self.wire: Wire | None = None
        self._root = root

    def begin(self, order: dict[str, Any]) -> None:
        """Starts its tasks, once however often it is asked for."""
        if self.folder.order() is not None:
            return
        self.folder.make()
        own = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        for task in order["tasks"]:
            self._settle_in(task, own)
        self.write_gang(order["gang"])
        self.folder.write_order(order)  # type: ignore[arg-type]
        self._spawn()

    def _settle_in(self, task: dict[str, Any], own: dict[str, str]) -> None:
        """Gives a task what only this node knows: its surroundings, and where its files are here."""
        shared = f"{self.folder.path}/shared"
        here = {
            "PHALANX_NOTICE_FILE": self.folder.notice_path,
            "PHALANX_GANG_FILE": self.folder.gang_path,
            "PHALANX_REST_FILE": self.folder.rest_path,
            "PHALANX_STEPS_PIPE": self.folder.steps_path,
            "PHALANX_SHARE_FILE": self.folder.share_path,
        }
        task["env"] = {**own, **task["env"], **{name: path for name, path in here.items() if name in task["env"]}}
        os.makedirs(shared, exist_ok=True)
        os.makedirs(task["env"]["PHALANX_CHECKPOINT_DIR"], exist_ok=True)
        if task["makes_workdir"]:
            os.makedirs(task["workdir"], exist_ok=True)

    def write_gang(self, gang: dict[str, Any]) -> None:
        """Writes which members the gang has, on all its nodes."""
        write_durably(self.folder.gang_path, gang, SHARED)

    def tell(self, message: Message) -> bool:
        """Tells the shepherd something; False if there is none any more."""
        own = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        for task in message.get("add", ()):
            self._settle_in(task, own)
        return self.wire is not None and self.wire.send(message)

    def hear(self, on_change: Callable[[], None]) -> bool:
        """Takes in what the shepherd says; False once it has left. What it says is in its papers before."""
        messages = self.wire.receive() if self.wire is not None else None
        if messages:
            on_change()
        return messages is not None

    def part(self) -> None:
        """Sees to what a shepherd left that is gone: an attempt without an end was lost, and nothing of it stays."""
        if self.wire is not None:
            self.wire.close()
            self.wire = None
        lock = self.folder.lock()
        if lock is None:
            return
        try:
            state = self.folder.state()
            if state is None or state["ending"] is None:
                end_orphans(self.folder)
                self.folder.close([], Ending(outcome="lost", exit_code=0, reason=LOST))
        finally:
            os.close(lock)

    def state(self) -> tuple[list[Answer], Ending | None]:
        """What was answered so far, and how it ended."""
        state: AttemptState | None = self.folder.state()
        return (state["answers"], state["ending"]) if state is not None else ([], None)

    def printed(self, offsets: dict[str, int]) -> dict[str, bytes]:
        """What its tasks have printed beyond what is known, by the name of the log; a piece of it if it is much."""
        found: dict[str, bytes] = {}
        room = READ_BYTES_MAX
        for path, stat in self.folder.logs():
            name = os.path.basename(path)
            known = offsets.get(name, 0)
            if room and stat.st_size > known and os.path.isfile(path):
                with open(path, "rb") as log:
                    log.seek(known)
                    found[name] = log.read(room)
                room -= len(found[name])
        return found

    def remove(self) -> None:
        """Removes its folder."""
        shutil.rmtree(self.folder.path, ignore_errors=True)

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        log = os.open(f"{self.folder.path}/shepherd.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with theirs:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", "-c", _PROGRAM, self.folder.path, str(_LINE), self._root],
                {name: os.environ[name] for name in PASSED_ON if name in os.environ},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), _LINE),
                ],
                setsid=True,
            )
        os.close(log)
        os.waitpid(pid, 0)
        self.wire = Wire(ours)


def scratch_folder() -> str:
    """Where members are kept on a node: a folder of this Unix user's."""
    return f"/tmp/phalanx-ray-{os.getuid()}"
