"""A real Slurm cluster for tests: munged, slurmctld and a slurmd for each node, all on this machine.

It lives in a folder of its own and listens on the loopback alone. Its GPUs are device files that no driver is behind:
null devices where they can be made, else terminals.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

PATIENCE_S = 60.0
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])
PARTITION = "gpu"


def free_ports(count: int) -> list[int]:
    """Ports that no process listens on, all different."""
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


class SlurmCluster:
    """Nodes n0, n1, …, each with GPUs of one type. Its daemons are children of nobody: they are ended by number."""

    def __init__(self, nodes: int = 2, gpus: int = 4, options: Mapping[str, str] | None = None) -> None:
        # Sockets have short paths by law.
        self.root = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.root.chmod(0o755)
        self.nodes = [f"n{number}" for number in range(nodes)]
        self.gpus = gpus
        self.conf = self.root / "slurm.conf"
        self.env = {"PATH": PATH, "SLURM_CONF": str(self.conf), "HOME": str(self.root)}
        self._ports = free_ports(nodes + 1)
        self._socket = self.root / "munge" / "socket"
        self._write(options or {})

    def start(self) -> SlurmCluster:
        """Returns when every node is idle."""
        self.start_munge()
        self.start_controller("-i")
        for node in self.nodes:
            self.start_node(node)
        self.settle()
        return self

    def settle(self) -> None:
        """Waits until every node is idle."""
        self.until(lambda: self.run("sinfo", "-h", "-o", "%t").split() == ["idle"], "all nodes are idle")

    def start_munge(self) -> None:
        """Starts what signs messages."""
        folder = self._socket.parent
        options = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        self._daemon("munged", "--force", *(f"--{name}={folder / file}" for name, file in options.items()))

    def stop_munge(self) -> None:
        """Ends what signs messages: every command fails."""
        self._end(self._socket.parent / "pid")

    def start_controller(self, *options: str) -> None:
        """Starts slurmctld, with the state it had."""
        self._daemon("slurmctld", *options)

    def stop_controller(self) -> None:
        """Ends slurmctld; jobs run on."""
        self._end(self.root / "slurmctld.pid")

    def start_node(self, node: str) -> None:
        """Starts the slurmd of a node."""
        self._daemon("slurmd", "-N", node)

    def stop_node(self, node: str) -> None:
        """Ends the slurmd of a node; the tasks there run on."""
        self._end(self.root / f"{node}.pid")

    def run(self, *argv: str, text: str | None = None) -> str:
        """What a command prints; it must succeed."""
        done = subprocess.run(argv, env=self.env, input=text, capture_output=True, text=True, cwd=self.root)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def submit(self, script: str, *options: str) -> str:
        """Submits a job that phalanx knows nothing of; its number."""
        return self.run("sbatch", "--parsable", "--output=/dev/null", *options, text=f"#!/bin/sh\n{script}\n").strip()

    def state(self, job: str) -> str:
        """The state of a job, in Slurm's word."""
        return self.run("squeue", "-h", "--states=all", "-j", job, "-o", "%T").strip()

    def jobs(self) -> list[str]:
        """The numbers of all jobs that are pending or run."""
        return self.run("squeue", "-h", "-o", "%A").split()

    def until(self, what: Callable[[], object], name: str) -> None:
        """Waits until something is so."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < deadline_s, f"it never came to be that {name}:\n{self._scene()}{self.logs()}"
            time.sleep(0.05)

    def _scene(self) -> str:
        return self.run("squeue") + self.run("scontrol", "show", "node", "-d", "-o")

    def logs(self) -> str:
        """The ends of what its daemons wrote."""
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(self.root.glob("*.log")))

    def clear(self) -> None:
        """Ends every job."""
        if jobs := self.jobs():
            self.run("scancel", *jobs)
        self.until(lambda: not self.jobs(), "no job is left")

    def stop(self) -> None:
        """Ends everything and deletes the folder."""
        with contextlib.suppress(AssertionError):
            self.clear()
        for path in self.root.glob("*.pid"):
            self._end(path)
        self.stop_munge()
        shutil.rmtree(self.root)

    def _daemon(self, *argv: str) -> None:
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, cwd=self.root)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}\n{self.logs()}"

    def _end(self, pid_file: Path) -> None:
        try:
            pid = int(pid_file.read_text())
            os.kill(pid, signal.SIGTERM)
        except (FileNotFoundError, ValueError, ProcessLookupError):
            return
        deadline_s = time.monotonic() + PATIENCE_S
        while _lives(pid):
            if time.monotonic() > deadline_s:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        pid_file.unlink(missing_ok=True)

    def _write(self, options: Mapping[str, str]) -> None:
        root, host = self.root, socket.gethostname()
        munge = self._socket.parent
        munge.mkdir()
        (root / "state").mkdir()
        for node in self.nodes:
            (root / f"spool-{node}").mkdir()
        (munge / "key").write_bytes(os.urandom(1024))
        (munge / "key").chmod(0o400)
        user = pwd.getpwuid(os.getuid()).pw_name
        settings = {
            "ClusterName": "tests",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": str(self._ports[0]),
            "SlurmUser": user,
            "SlurmdUser": user,
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self._socket}",
            "StateSaveLocation": f"{root}/state",
            "SlurmdSpoolDir": f"{root}/spool-%n",
            "SlurmctldPidFile": f"{root}/slurmctld.pid",
            "SlurmdPidFile": f"{root}/%n.pid",
            "SlurmctldLogFile": f"{root}/slurmctld.log",
            "SlurmdLogFile": f"{root}/slurmd-%n.log",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "MpiDefault": "none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory",
            "GresTypes": "gpu",
            "SchedulerType": "sched/backfill",
            "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0,bf_interval=1,bf_continue",
            "SlurmdParameters": "config_overrides",
            "ReturnToService": "2",
            "KillWait": "2",
            "JobAcctGatherType": "jobacct_gather/none",
            "JobCompType": "jobcomp/filetxt",
            "JobCompLoc": f"{root}/completed",
            "AccountingStorageType": "accounting_storage/none",
            **options,
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        for node, port in zip(self.nodes, self._ports[1:], strict=True):
            gres = f" Gres=gpu:h100:{self.gpus}" if self.gpus else ""
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=64 RealMemory=65536{gres}"
            )
        lines.append(f"PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        self.conf.write_text("\n".join(lines) + "\n")
        (root / "cgroup.conf").write_text("CgroupAutomount=no\n")
        gpus = [
            f"NodeName={node} Name=gpu Type=h100 File={self._device(node, gpu)}"
            for node in self.nodes
            for gpu in range(self.gpus)
        ]
        (root / "gres.conf").write_text("\n".join(gpus) + "\n")

    def _device(self, node: str, number: int) -> str:
        """A device file for a GPU: Slurm takes nothing else."""
        path = self.root / f"{node}-gpu{number}"
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            return f"/dev/tty{number}"
        return str(path)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def slurm_cluster(nodes: int = 2, gpus: int = 4, options: Mapping[str, str] | None = None) -> Iterator[SlurmCluster]:
    """A cluster that runs, ended with the block."""
    cluster = SlurmCluster(nodes, gpus, options)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@cache
def shared_cluster() -> SlurmCluster:
    """Two nodes of four GPUs, up to the last of the tests that want them. This process speaks to it."""
    started = SlurmCluster(nodes=2, gpus=4)
    atexit.register(end_shared)
    os.environ["SLURM_CONF"] = str(started.conf)
    return started.start()


def end_shared() -> None:
    """Ends the shared one, where there is one; the next test that wants it has another."""
    if shared_cluster.cache_info().currsize:
        shared_cluster().stop()
        shared_cluster.cache_clear()
        os.environ.pop("SLURM_CONF", None)
