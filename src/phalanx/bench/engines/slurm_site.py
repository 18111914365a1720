"""A Slurm of one's own for benchmarks: munged, slurmctld and slurmd on this machine, in a folder and on free ports."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from phalanx.bench.row import Tell
from phalanx.errors import PhalanxError

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo")
PACKAGES = ("munge", "slurmctld", "slurmd", "slurm-client")
READY_S = 60.0
CPUS, MEMORY_MB = 64, 65_536

CONFIGURATION = """ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MailProg=/bin/true
MpiDefault=none
ReturnToService=2
MaxJobCount=100000
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
DefMemPerCPU=64
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters={scheduler}
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

EAGER = "batch_sched_delay=0,sched_min_interval=0,bf_interval=1,bf_continue,bf_resolution=1"
"""Slurm as quick as it can be: without these it looks for jobs to backfill every 30 s, in steps of a minute."""


class SlurmError(PhalanxError):
    """Slurm is not here, or does not start."""


class Slurm:
    """munged, slurmctld and a slurmd for each node, until `stop`. GPUs are null devices: nothing computes on them."""

    def __init__(self, folder: Path, nodes: int = 1, gpus: int = 0) -> None:
        self._folder = folder
        self._names = [f"n{number}" for number in range(nodes)]
        self._gpus = gpus
        self._processes: list[subprocess.Popen[bytes]] = []
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        """Starts all of it and waits until its nodes take jobs."""
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        # Slurm runs jobs as their users, who must be able to pass.
        folder.chmod(0o755)
        for name in ("state", *(f"spool-{node}" for node in self._names)):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        self._configure()
        files = {"socket": "munge.sock", "key-file": "munge.key", "log-file": "munge.log", "pid-file": "munge.pid"}
        options = [f"--{option}={folder / name}" for option, name in files.items()]
        self._spawn("munged", "--foreground", "--force", f"--seed-file={folder / 'munge.seed'}", *options)
        _until((folder / "munge.sock").exists, "munged did not start", folder)
        self._spawn("slurmctld", "-D", "-i")
        for node in self._names:
            self._spawn("slurmd", "-D", "-N", node)
        _until(self._takes_jobs, "slurmctld did not come to take jobs", folder)

    def _configure(self) -> None:
        folder, host = self._folder, socket.gethostname().partition(".")[0]
        (folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                folder=folder,
                host=host,
                controller_port=free_port(),
                scheduler=EAGER,
                nodes="\n".join(self._node(name, host) for name in self._names),
            )
        )
        (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        devices = [f"NodeName={node} Name=gpu File={path}" for node, path in self._devices()]
        (folder / "gres.conf").write_text("".join(f"{line}\n" for line in devices))

    def _node(self, name: str, host: str) -> str:
        gres = f" Gres=gpu:{self._gpus}" if self._gpus else ""
        size = f"CPUs={CPUS} RealMemory={MEMORY_MB}"
        return f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} {size}{gres} State=UNKNOWN"

    def _devices(self) -> Iterator[tuple[str, Path]]:
        for node in self._names:
            for number in range(self._gpus):
                path = self._folder / f"{node}-gpu{number}"
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
                yield node, path

    def submit(self) -> list[str]:
        """The command line of one submission."""
        return ["sbatch", "--quiet", "--output=/dev/null", "--wrap=true"]

    def stop(self) -> None:
        """Ends all three."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _spawn(self, program: str, *arguments: str) -> None:
        with (self._folder / f"{program}.out").open("ab") as out:
            self._processes.append(
                subprocess.Popen([_path(program), *arguments], env=self.environment, stdout=out, stderr=out)
            )

    def _takes_jobs(self) -> bool:
        told = subprocess.run(
            ["sinfo", "--noheader", "--format=%t"], env=self.environment, capture_output=True, text=True, timeout=30
        )
        return set(told.stdout.split()) == {"idle"}


def need_slurm(tell: Tell) -> None:
    """Sees to it that Slurm is here: where apt can fetch it, it does."""
    if all(_path(program) for program in PROGRAMS):
        return
    how = f"apt-get install {' '.join(PACKAGES)}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise SlurmError(f"there is no Slurm here to compare with: {how}")
    tell(f"server: {how}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES]
    if subprocess.run(command, env=environment, capture_output=True).returncode or not _path("slurmctld"):
        raise SlurmError(f"Slurm could not be installed: try `{how}` by hand")


def free_port() -> int:
    """A port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _path(program: str) -> str:
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin") or ""


def _until(reached: object, what: str, folder: Path) -> None:
    assert callable(reached)
    deadline_s = time.monotonic() + READY_S
    while not reached():
        if time.monotonic() > deadline_s:
            raise SlurmError(f"{what} within {READY_S:.0f} s; its logs are in {folder}")
        time.sleep(0.1)
