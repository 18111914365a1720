"""Probes: whether a task of a service is well. Each is a child of its own, so that one that hangs holds up no other."""

from __future__ import annotations

import os
import socket

from phalanx.backends.local.attempt_files import Probe
from phalanx.backends.local.shepherd.tasks.task import Task

WELL_STATUS_MAX = 399


def fork_probe(probe: Probe, task: Task) -> int:
    """Begins one look at a task; the pid of the child, which ends with 0 if the task is well."""
    if probe["kind"] == "command":
        nowhere = os.open(os.devnull, os.O_RDWR)
        pid, pipe = task.fork_beside(probe["target"], (nowhere, nowhere, nowhere))
        os.close(nowhere)
        os.close(pipe)
        return pid
    pid = os.fork()
    if pid:
        return pid
    try:
        well = _answers(probe)
    except BaseException:
        well = False
    os._exit(0 if well else 1)


def _answers(probe: Probe) -> bool:
    host, port, path = probe["target"]
    with socket.create_connection((host, int(port)), timeout=probe["timeout_ms"] / 1000) as end:
        if probe["kind"] == "tcp":
            return True
        end.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while b"\r\n" not in answer:
            data = end.recv(4096)
            if not data:
                return False
            answer += data
    return int(answer.split(maxsplit=2)[1]) <= WELL_STATUS_MAX
