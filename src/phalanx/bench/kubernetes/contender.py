"""Schedulers that are measured, each as a process of its own beside the same API server."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from phalanx.bench.kubernetes import share
from phalanx.bench.kubernetes.control_plane import ControlPlane, wait_until
from phalanx.bench.kubernetes.share import Times

QPS = "5000"
READY_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Contender:
    """A scheduler by the name that pods give it. `has_gangs` says whether it is given groups."""

    title: str
    scheduler: str
    has_gangs: bool


OURS = Contender("phalanx", "phalanx", has_gangs=True)
PLAIN = Contender("kube-scheduler", "default-scheduler", has_gangs=False)
NATIVE = Contender("kube-scheduler with native gangs", "default-scheduler", has_gangs=True)


def contenders(plane: ControlPlane) -> tuple[Contender, ...]:
    """Those that can be run here: kube-scheduler where it was built."""
    return (OURS, PLAIN, NATIVE) if (plane.folder / "kube-scheduler").exists() else (OURS,)


@contextmanager
def scheduling_by_the_clock(plane: ControlPlane) -> Iterator[Callable[[], Times]]:
    """Ours, which runs meanwhile with clocks around its parts. What is given ends it, and says what they took."""
    file = plane.root / "share.json"
    (plane.root / "scheduler.log").unlink(missing_ok=True)
    command = (sys.executable, "-m", share.__name__, "kube", "--kubeconfig", plane.kubeconfig)
    process = plane.spawn("scheduler", "env", f"{share.FILE}={file}", *command)

    def ended() -> Times:
        process.terminate()
        process.wait(READY_WITHIN_S)
        return msgspec.json.decode(file.read_bytes(), type=Times)

    try:
        yield ended
    finally:
        plane.end("scheduler")


@contextmanager
def scheduling(plane: ControlPlane, contender: Contender) -> Iterator[tuple[int, float]]:
    """A scheduler that runs meanwhile: its process id, and how long ours took until it was ready."""
    if contender is OURS:
        command: tuple[object, ...] = (sys.executable, "-m", "phalanx", "kube", "--kubeconfig", plane.kubeconfig)
    else:
        command = (
            *(plane.folder / "kube-scheduler", "--kubeconfig", plane.kubeconfig, "--leader-elect=false"),
            *("--kube-api-qps", QPS, "--kube-api-burst", QPS, "--secure-port", "0"),
            f"--feature-gates=GenericWorkload={str(contender.has_gangs).lower()}",
        )
    log = plane.root / "scheduler.log"
    log.unlink(missing_ok=True)
    began = time.monotonic()
    process = plane.spawn("scheduler", *command)

    def is_ready() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"{contender.title} ended:\n{plane.log('scheduler')}")
        return contender is not OURS or "scheduling https://" in plane.log("scheduler")

    try:
        wait_until(f"{contender.title} is ready", is_ready, READY_WITHIN_S)
        yield process.pid, time.monotonic() - began
    finally:
        plane.end("scheduler")
