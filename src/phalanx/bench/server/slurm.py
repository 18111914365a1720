"""A Slurm of one's own for benchmarks: munged, slurmctld and slurmd on this machine, in a folder and on free ports."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from pathlib import Path

from phalanx.bench.row import Tell
from phalanx.errors import PhalanxError

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo")
PACKAGES = ("munge", "slurmctld", "slurmd", "slurm-client")
READY_S = 60.0

CONFIGURATION = """ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MailProg=/bin/true
ReturnToService=2
MaxJobCount=100000
SchedulerType=sched/backfill
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class SlurmError(PhalanxError):
    """Slurm is not here, or does not start."""


class Slurm:
    """munged, slurmctld and slurmd, until `stop`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        """Starts all three and waits until the node takes jobs."""
        folder = self._folder
        for name in ("state", "spool"):
            (folder / name).mkdir(parents=True)
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        host = socket.gethostname().partition(".")[0]
        (folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                folder=folder, host=host, controller_port=free_port(), node_port=free_port(), cpus=os.cpu_count() or 1
            )
        )
        files = {"socket": "munge.sock", "key-file": "munge.key", "log-file": "munge.log", "pid-file": "munge.pid"}
        options = [f"--{option}={folder / name}" for option, name in files.items()]
        self._spawn("munged", "--foreground", "--force", f"--seed-file={folder / 'munge.seed'}", *options)
        _until((folder / "munge.sock").exists, "munged did not start", folder)
        self._spawn("slurmctld", "-D", "-i")
        self._spawn("slurmd", "-D", "-N", host)
        _until(self._takes_jobs, "slurmctld did not come to take jobs", folder)

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
        with (self._folder / f"{program}.out").open("wb") as out:
            self._processes.append(
                subprocess.Popen([_path(program), *arguments], env=self.environment, stdout=out, stderr=out)
            )

    def _takes_jobs(self) -> bool:
        told = subprocess.run(
            ["sinfo", "--noheader", "--format=%t"], env=self.environment, capture_output=True, text=True, timeout=30
        )
        return told.stdout.strip() in ("idle", "mix", "alloc")


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
