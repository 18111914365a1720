"""`up`: starts the processes of a server, watches over them, and ends them together."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from phalanx.backends.local.shepherd.tasks import sandbox
from phalanx.errors import PhalanxError
from phalanx.folders import ROOTS_DATA
from phalanx.mortal import die_with_parent
from phalanx.server.accounts.identity import find_uid_first
from phalanx.server.farewell import farewell
from phalanx.server.options import Options
from phalanx.server.store.database import database_file

STARTING_S = 60.0
"""After so long the user that started the server hears that it is still at it: a long journal without a snapshot that
this release can read is folded record by record.
"""

STOP_S = 10.0
AGAIN_S = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
"""How long to wait before a process that ended is started again: longer each time, until it has lived for a while."""

LIVED_S = 30.0
LAST_BYTES = 4096
FOLDERS = ("run", "log", "jobs", "backend", "checkpoints", "homes", "studies", "run/figures")
PASSED_THROUGH = ("", "jobs", "backend", "checkpoints", "homes")
"""Folders that tasks of other Unix users must pass through, without seeing what else is in them."""


STORE_VARIABLE = "PHALANX_STORE"
"""Where `up` finds the URL of the store. Tasks inherit the environment of the loop, so that must not have it."""


class UpError(PhalanxError):
    """The server cannot be started."""


@dataclass(slots=True)
class Part:
    """One process of the tree."""

    name: str
    command: list[str]
    handles: tuple[int, ...] = ()
    needed: bool = True
    """Whether the server takes no work without it."""
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    failures: int = 0
    due_s: float = 0.0


@dataclass(slots=True)
class Tree:
    """A server: one loop, one planner, some API workers. Whatever ends is started again.

    What the server can do without for a moment is started when the rest is ready: after a crash the loop needs the
    processor more.
    """

    options: Options
    listener: socket.socket
    tell: Callable[[str], None]
    parts: list[Part] = field(default_factory=list)
    stopping: bool = False

    def start(self) -> None:
        """Starts what the server needs to take work."""
        told, listening = self.options.in_memory(), self.listener.fileno()
        module, handle = [sys.executable, "-m"], str(told)
        loop = Part("loop", [*module, "phalanx.server.loop.process", handle], (told,))
        self.parts = [
            *([] if self.options.shown else [loop]),
            *(
                Part(
                    f"api-{number}",
                    [*module, "phalanx.server.api.process", handle, str(listening)],
                    (told, listening),
                )
                for number in range(1, self.options.workers + 1)
            ),
            Part("planner", [*module, "phalanx.server.planner.process", handle], (told,), bool(self.options.shown)),
        ]
        if not self.options.shown:
            self.parts.append(
                Part("studies", [*module, "phalanx.server.studies.process", handle], (told,), needed=False)
            )
        if self.options.alerts:
            self.parts.append(Part("alerts", [*module, "phalanx.server.alerts.process", handle], (told,), needed=False))
        if self.options.prometheus:
            self.parts.append(
                Part("scaling", [*module, "phalanx.server.scaling.process", handle], (told,), needed=False)
            )
        self._start_all(needed=True)

    def start_rest(self) -> None:
        """Starts what can wait until the server takes work."""
        self._start_all(needed=False)

    def _start_all(self, needed: bool) -> None:
        for part in self.parts:
            if part.needed is needed:
                self._start(part)

    def watch(self) -> None:
        """Starts again what has ended, if its time has come."""
        now_s = time.monotonic()
        for part in [part for part in self.parts if part.started_s]:
            process = part.process
            if process is not None and process.poll() is not None:
                part.process = None
                part.failures = 1 if now_s - part.started_s > LIVED_S else part.failures + 1
                part.due_s = now_s + AGAIN_S[min(part.failures - 1, len(AGAIN_S) - 1)]
                self.tell(
                    f"{part.name} ended ({_ending(process.returncode)}) and is started again{self._last_word(part)}"
                )
            if part.process is None and now_s >= part.due_s:
                self._start(part)

    def stop(self) -> None:
        """Ends everything: first what takes requests, the loop last. Jobs go on."""
        for part in reversed(self.parts):
            if part.process is not None:
                part.process.terminate()
        deadline_s = time.monotonic() + STOP_S
        for part in self.parts:
            if part.process is not None:
                try:
                    part.process.wait(max(deadline_s - time.monotonic(), 0.1))
                except subprocess.TimeoutExpired:
                    part.process.kill()
                    part.process.wait()

    def _start(self, part: Part) -> None:
        part.started_s = time.monotonic()
        with self._log(part) as log:
            part.process = subprocess.Popen(
                part.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=part.handles,
                env=self._environment(part),
                preexec_fn=die_with_parent,
                # Ctrl-C at a terminal is for `up`, which then ends them in their order.
                process_group=0,
            )

    def _log(self, part: Part) -> BinaryIO:
        """Where a process says what happens. A full disk must not keep it from starting."""
        try:
            return self.options.file("log", f"{part.name}.log").open("ab")
        except OSError:
            return Path(os.devnull).open("ab")

    def _last_word(self, part: Part) -> str:
        """What a process that ended wrote last, which for one that failed is what it failed of."""
        path = self.options.file("log", f"{part.name}.log")
        try:
            with path.open("rb") as log:
                log.seek(-min(path.stat().st_size, LAST_BYTES), os.SEEK_END)
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return f"; {path} ends: {_message(lines[-1])}" if lines else ""

    def _environment(self, part: Part) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if name != STORE_VARIABLE}
        if not part.name.startswith("api"):
            return environment
        return {**environment, "PROMETHEUS_MULTIPROC_DIR": str(self.options.file("run", "figures"))}


def up(options: Options, ready: Callable[[Options], None], tell: Callable[[str], None]) -> int:
    """Runs a server until SIGTERM or SIGINT. `ready` is called once, when it takes work."""
    # What these processes have in memory is in no core file: jobs of the same user could have one made.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    options = _prepared(options)
    with ExitStack() as held:
        held.enter_context(_lock(options))
        _check_alerts(options)
        _check_certificate(options)
        listener, options = _listen(options)
        held.enter_context(listener)
        tree = Tree(options, listener, tell)
        for number in (signal.SIGTERM, signal.SIGINT):
            held.callback(signal.signal, number, signal.signal(number, lambda *_: _stop(tree)))
        tree.start()
        try:
            if not _until_ready(tree):
                if not tree.stopping:
                    return 1
                tell("the server stops before it was ready; jobs of an earlier start go on")
                return 0
            tree.start_rest()
            _tell_left(tree, "restored")
            _tell_left(tree, "unheeded")
            with suppress(OSError):
                options.file("url").write_text(f"{options.url}\n")
            ready(options)
            _warn_of_jobs(options, tell)
            while not tree.stopping:
                tree.watch()
                time.sleep(0.1)
            if not options.shown:
                tell(farewell(options))
        finally:
            tree.stop()
    return 0


def _tell_left(tree: Tree, name: str) -> None:
    """Says what the loop has left to be told to the user that starts the server, if anything."""
    with suppress(OSError):
        for line in tree.options.file("run", name).read_text().splitlines():
            tree.tell(line)


def _stop(tree: Tree) -> None:
    tree.stopping = True


def _prepared(options: Options) -> Options:
    data = Path(options.data).absolute()
    try:
        data.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(data / "run" / "figures", ignore_errors=True)
        for folder in FOLDERS:
            (data / folder).mkdir(exist_ok=True)
        if not options.store:
            _check_not_emptied(data)
        file = database_file(options.store) if options.store else data / "phalanx.db"
        if file is not None:
            file.touch(0o600)
            file.chmod(0o600)
        _close_to_others(data)
    except OSError as error:
        raise UpError(f"{data}: {error.strerror}: choose another folder with --data") from error
    beside = [str(file.absolute())] if file is not None and options.store else []
    options = replace(options, data=str(data), private=(*options.private, *beside))
    return _with_unix_users(options) if os.getuid() == 0 and options.backend == "local" else options


def _with_unix_users(options: Options) -> Options:
    """Has a server that is root run tasks as other Unix users, and makes sure that they can."""
    for folder in Path(options.data).resolve().parents:
        if not folder.stat().st_mode & 0o001:
            raise UpError(
                f"{options.data}: jobs of a server that is root run as Unix users of their own, which cannot pass "
                f"{folder}: choose a --data that they can reach, such as {ROOTS_DATA}"
            )
    first = find_uid_first()
    if not first and not options.job_user:
        raise UpError(
            "this process is root and cannot become another user, so every job would be root: start the server as an "
            "ordinary user, give it CAP_SETUID and CAP_SETGID, or name a user with --job-user"
        )
    return replace(options, uid_first=first)


def _warn_of_jobs(options: Options, tell: Callable[[str], None]) -> None:
    """Says aloud what members of a server could do that is not root and cannot hide its files from their jobs."""
    if options.backend == "local" and os.getuid() != 0 and (why := sandbox.obstacle()):
        tell(
            f"WARNING: every job runs as user {os.getuid()} and can read the admin's token and all else of this server "
            f"({why}): let only users submit that you trust with it, or run the server as root"
        )


def _check_not_emptied(data: Path) -> None:
    """Tells a store that lost all it held from one that has held nothing yet."""
    store, log = data / "phalanx.db", data / "phalanx.db-wal"
    was_used = store.exists() and (data / "admin.token").exists()
    if was_used and not store.stat().st_size and not (log.exists() and log.stat().st_size):
        raise UpError(
            f"{store}: the store is damaged (it is empty, but was used before): put a backup in its place, "
            "or start with another --data"
        )


def _close_to_others(data: Path) -> None:
    """Job logs, tokens and the store are for no other user. Only root has tasks of other users to let through."""
    inner = 0o711 if os.getuid() == 0 else 0o700
    for folder in ("", *FOLDERS, "secrets"):
        path = data / folder
        if path.is_dir() and path.stat().st_uid == os.getuid():
            path.chmod(inner if folder in PASSED_THROUGH else 0o700)
    for path in data.glob("phalanx.db*"):
        path.chmod(0o600)


def _lock(options: Options) -> socket.socket:
    """Holds the data folder for this server: two that write one store would undo each other's work."""
    file = options.file("run", "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UpError(f"{options.data}: another server uses this folder: stop it, or choose another --data") from None
    return file  # type: ignore[return-value]


def _check_alerts(options: Options) -> None:
    """What is wrong with the rules is told when the server is started."""
    if options.alerts:
        from phalanx.server.alerts.rules import read_rules

        try:
            read_rules(Path(options.alerts).read_text(), options.alerts)
        except (OSError, UnicodeDecodeError) as error:
            raise UpError(f"{options.alerts}: {error}") from error


def _check_certificate(options: Options) -> None:
    """A certificate or key that cannot be used is told when the server is started, not by every worker in turn."""
    for name, path in (("--tls-cert", options.tls_cert), ("--tls-key", options.tls_key)):
        if path and not os.access(path, os.R_OK):
            raise UpError(f"{name} {path}: there is no such file, or it cannot be read")
    if options.tls_cert:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_cert, options.tls_key)
        except (ssl.SSLError, OSError) as error:
            raise UpError(
                f"--tls-cert {options.tls_cert} --tls-key {options.tls_key}: expected a certificate and the key that "
                f"belongs to it, in PEM form: {error}"
            ) from error


def _listen(options: Options) -> tuple[socket.socket, Options]:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise UpError(f"{options.host}:{options.port}: {error}: choose another address with --listen") from error
    listener.listen(2048)
    listener.setblocking(False)
    return listener, replace(options, port=listener.getsockname()[1])


def _until_ready(tree: Tree) -> bool:
    told_s = time.monotonic()
    while not tree.stopping:
        if _is_ready(tree.options) and _has_planner(tree.options):
            return True
        if time.monotonic() - told_s > STARTING_S:
            told_s = time.monotonic()
            tree.tell(f"still starting, perhaps from a long journal; see {tree.options.file('log')}")
        loop = tree.parts[0].process
        if loop is not None and loop.poll() == 1:
            raise UpError(f"the server did not start: {_last_error(tree.options)}")
        tree.watch()
        time.sleep(0.05)
    return False


def _has_planner(options: Options) -> bool:
    """Whether the planner can be asked; where jobs are scheduled, that can wait."""
    return not options.shown or options.file("run", "planner.sock").exists()


def _is_ready(options: Options) -> bool:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)
    connection = (
        HTTPSConnection(host, options.port, timeout=2, context=ssl._create_unverified_context())
        if options.tls_cert
        else HTTPConnection(host, options.port, timeout=2)
    )
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _last_error(options: Options) -> str:
    lines = options.file("log", "loop.log").read_text(errors="replace").strip().splitlines()
    return _message(lines[-1]) if lines else "it said nothing"


def _message(line: str) -> str:
    """What a line of a log says; the line itself where something else than our log wrote it."""
    try:
        return str(json.loads(line)["message"])
    except (ValueError, KeyError, TypeError):
        return line.strip()


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
