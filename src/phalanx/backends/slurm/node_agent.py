"""On one node of an attempt: starts the shepherd of the tasks there, passes on what the server asks, and outlives it.

The server writes what it asks into the folder of the attempt, which all nodes have. A SIGCONT says that there is
something to read; Slurm sends it to every process of the step, and no task minds it. A SIGTERM says that Slurm itself
ends the job. Only the standard library is needed.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import Any

from phalanx.backends.local.attempt_files import Order
from phalanx.backends.local.folder import AttemptFolder, read_paper, write_durably
from phalanx.backends.local.host.kernel import adopt_orphans, die_with_parent
from phalanx.backends.local.host.processes import descendants, signal_process
from phalanx.backends.local.wire import Wire

LOOK_S = 0.1
"""How often it is looked for what the server asks."""

LAST = 1 << 29
"""The number of a stop that Slurm wants: it comes after all of the server's but the very last."""

FIRST_PORT, PORTS = 20_000, 12_000
"""Ports for rank 0 to listen on, by the number of Slurm's job: below those that the kernel gives out."""


def node_folder(attempt_folder: str, node: str) -> AttemptFolder:
    """Where what one node of an attempt does is put down."""
    return AttemptFolder(f"{attempt_folder}/nodes/{node}")


def stop_path(attempt_folder: str) -> str:
    """Where the server writes that an attempt is to stop."""
    return f"{attempt_folder}/stop.json"


def main(attempt_folder: str) -> None:
    """Looks after the tasks of this node. The exit code says whether the gang may go on without them."""
    node = os.environ["SLURMD_NODENAME"]
    folder = node_folder(attempt_folder, node)
    order = folder.order()
    if order is None:
        sys.exit(
            f"{folder.order_path}: there is no such file on node {node}. The data folder of phalanx must be on a file "
            "system that all nodes have under the same path; this user must be able to read it"
        )
    settle(order, os.environ)
    folder.write_order(order)
    sys.exit(0 if Agent(attempt_folder, folder, order["grace_ms"]).run() else 1)


class Agent:
    """Between the server's files and the shepherd of this node."""

    def __init__(self, attempt_folder: str, folder: AttemptFolder, grace_ms: int) -> None:
        self._stop_path = stop_path(attempt_folder)
        self._folder = folder
        self._grace_ms = grace_ms
        self._selector = selectors.DefaultSelector()
        self._told = -1
        self._ended = False

    def run(self) -> bool:
        """Stays until every process of the attempt on this node is gone; whether it ended well."""
        bell, ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGCONT):
            signal.signal(number, lambda *_: None)
        self._selector.register(bell, selectors.EVENT_READ)
        adopt_orphans()
        wire = self._start_shepherd()
        self._selector.register(wire, selectors.EVENT_READ)
        while not self._ended:
            rung = False
            for key, _ in self._selector.select(LOOK_S):
                if key.fd == bell:
                    rung = signal.SIGTERM in os.read(bell, 64)
                else:
                    self._ended = wire.receive() is None
            self._pass_on(wire, rung)
        kill_descendants()
        state = self._folder.state()
        return state is not None and state["ending"] is not None and state["ending"]["outcome"] in _WELL

    def _start_shepherd(self) -> Wire:
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        if os.fork() == 0:
            # Imported here: the parent needs none of it.
            from phalanx.backends.local.shepherd.__main__ import main as look_after

            signal.set_wakeup_fd(-1)
            die_with_parent(parent)
            ours.close()
            look_after(self._folder.path, theirs.detach())
            os._exit(0)
        theirs.close()
        return Wire(ours)

    def _pass_on(self, wire: Wire, rung: bool) -> None:
        asked = _asked(self._stop_path)
        if asked is not None and asked["seq"] > self._told:
            self._told = asked["seq"]
            wire.send({"do": "stop", **asked})
        elif rung and self._told < 0:
            self._told = LAST
            wire.send({"do": "stop", "grace_ms": self._grace_ms, "reason": "slurm", "term": 0, "seq": LAST})


_WELL = ("succeeded", "stopped")
"""Ends of one node that end no other."""


def settle(order: Order, env: Any) -> None:
    """Puts what only the node knows into an order: the devices that Slurm gave, and the port of rank 0."""
    number = int(env.get("SLURM_HET_JOB_ID") or env["SLURM_JOB_ID"])
    port = str(FIRST_PORT + number % PORTS)
    planned = sorted({device for task in order["tasks"] for device in task["devices"]})
    given = _numbers(env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS") or "") if planned else []
    if len(given) != len(planned):
        node = env["SLURMD_NODENAME"]
        sys.exit(f"node {node}: {len(planned)} GPUs were asked for, and Slurm tells of {len(given)} ({given})")
    visible = (env.get("CUDA_VISIBLE_DEVICES") or "").split(",")
    names = dict(zip(given, visible if len(visible) == len(given) else map(str, given), strict=True))
    became = dict(zip(planned, planned if given == planned else given, strict=True))
    for task in order["tasks"]:
        task["devices"] = [became[device] for device in task["devices"]]
        shown = ",".join(names[device] for device in task["devices"])
        variables = {"MASTER_PORT": port, "PET_MASTER_PORT": port, "PHALANX_SLURM_JOB_ID": str(number)}
        devices = {"CUDA_VISIBLE_DEVICES": shown, "PHALANX_DEVICES": ",".join(map(str, task["devices"]))}
        task["env"] = {**task["env"], **variables, **devices}


def kill_descendants() -> None:
    """Kills all that is left, until nothing is: what lost its parent has become a child of this process."""
    while remains := descendants(os.getpid()):
        for each in remains:
            signal_process(each.pid, signal.SIGKILL)
        time.sleep(0.01)


def ask_to_stop(attempt_folder: str, term: int, seq: int, grace_ms: int, reason: str) -> None:
    """Has the nodes of an attempt stop their tasks."""
    asked = {"term": term, "seq": seq, "grace_ms": grace_ms, "reason": reason}
    write_durably(stop_path(attempt_folder), asked, 0o644)


def _asked(path: str) -> dict[str, Any] | None:
    try:
        return read_paper(path)  # type: ignore[no-any-return]
    except json.JSONDecodeError:
        return None


def _numbers(text: str) -> list[int]:
    return sorted(int(each) for each in text.split(",") if each.isdecimal())
