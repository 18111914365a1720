"""The process beside a trainer that replicates and persists, so that the trainer's interpreter does not.

It reads snapshots where the trainer put them, in shared memory, and never holds up the trainer: orders and reports are
small messages. When the trainer ends, in whatever way, it writes what it was ordered to before it ends too: within the
grace, since the scheduler kills it then. It ignores the signals that end a trainer. It shares the trainer's hold on the
memory until it ends, so that no new trainer overwrites what it still reads.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint import points
from phalanx.train.checkpoint.copies.pace import Pace
from phalanx.train.checkpoint.copies.peers import Address, Parcel, PeerServer, TransferError, fetch, gap_deadline, push
from phalanx.train.checkpoint.ending import grace
from phalanx.train.checkpoint.ending.patience import PartsPatience
from phalanx.train.checkpoint.host.holdings import Holdings
from phalanx.train.checkpoint.host.keeper import is_awaited
from phalanx.train.checkpoint.host.segment import Segment
from phalanx.train.checkpoint.host.slot import Slot
from phalanx.train.checkpoint.persist import Persister, Target

MESSAGE_BYTES_MAX = 1 << 17
NICENESS = 5
RENEW_SHARE = 3

FINISH_POLL_S = 0.02
FINISH_MARGIN_S = 1.0

Message = dict[str, Any]


class Worker(threading.Thread):
    """Does one kind of work, order after order. A fault is reported, and the next order is tried."""

    def __init__(self, name: str, work: Callable[[Message], Message], report: Callable[[Message], None]) -> None:
        super().__init__(daemon=True, name=name)
        self._work, self._report = work, report
        self._orders: queue.Queue[Message] = queue.Queue()
        self.start()

    def order(self, message: Message) -> None:
        self._orders.put(message)

    def run(self) -> None:
        while True:
            message = self._orders.get()
            answer = {"what": message["do"], "tier": message.get("tier"), "step": message["step"]}
            began_s = time.monotonic()
            try:
                answer |= self._work(message)
            except (PhalanxError, OSError, TransferError, ValueError, KeyError, RuntimeError) as error:
                answer["fault"] = f"{type(error).__name__}: {error}"
            answer["seconds"] = time.monotonic() - began_s
            self._report(answer)
            self._orders.task_done()

    @property
    def is_busy(self) -> bool:
        """Whether an order is not done."""
        return self._orders.unfinished_tasks > 0


class BackgroundProcess:
    """Carries orders out."""

    def __init__(self, control: socket.socket, settings: Message) -> None:
        self._control = control
        self._rank: int = settings["rank"]
        self._token: str = settings["token"]
        self._trainer_pid: int = settings["trainer_pid"]
        self._hold_fd: int = settings["hold_fd"]
        # Kept as they came until they are needed: unpacking them loads torch for seconds, and a peer may be waiting.
        self._packed_targets: dict[str, bytes] = settings["targets"]
        self._persister = Persister(self._rank, settings["world_size"], self._trainer_pid)
        self._holdings = Holdings()
        self._pace: Pace | None = None
        self._addresses: list[Address] = []
        self._workers = {
            "replicate": Worker("replicate", self._replicate, self.report),
            "fetch": Worker("fetch", self._fetch, self.report),
            **{tier: Worker(tier, self._persist, self.report) for tier in self._packed_targets},
        }
        self._server = PeerServer(settings["host"], self._token, self._holdings)
        self._server.start()
        self.report({"what": "listening", "address": (settings["host"], self._server.port)})
        if self._packed_targets:
            threading.Thread(target=self._keep_claims, daemon=True).start()

    def run(self) -> None:
        """Takes orders until the trainer is gone."""
        while True:
            try:
                text, fds, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES_MAX, 1)
            except ConnectionError:
                # Killed with reports unread.
                return
            if not text:
                return
            message = pickle.loads(text)
            if message["do"] == "lend":
                self._take(Segment(message["name"], fds[0]))
            elif message["do"] == "forget":
                self._holdings.forget(message["name"])
            elif message["do"] == "addresses":
                self._addresses = message["addresses"]
            elif message["do"] == "persist":
                self._workers[message["tier"]].order(message)
            else:
                self._workers[message["do"]].order(message)

    def finish(self, until_s: float) -> None:
        """Writes what was ordered, until a moment of the wall clock.

        Where all that is left is to wait for parts of other ranks, it ends for a successor that waits for the memory: a
        rank that died may never write its part.
        """
        patience = PartsPatience()
        while busy := {tier for tier in self._packed_targets if self._workers[tier].is_busy}:
            if time.time() >= until_s:
                return
            parts_alone = busy <= self._persister.awaits_parts
            if patience.is_over(time.monotonic(), parts_alone=parts_alone, is_awaited=self._is_awaited):
                return
            time.sleep(FINISH_POLL_S)

    def _is_awaited(self) -> bool:
        return is_awaited(self._hold_fd)

    def report(self, message: Message) -> None:
        # The trainer may be gone; then nothing is left to hear it.
        with contextlib.suppress(OSError):
            self._control.send(pickle.dumps(message))

    def _take(self, segment: Segment) -> None:
        if segment.name == "pace":
            self._pace = Pace(segment)
        else:
            self._holdings.put(Slot(segment))

    def _replicate(self, order: Message) -> Message:
        slot = self._holdings.get(order["slot"])
        self._require(slot, order["step"])
        faults = []
        for rank in order["holders"]:
            parcel = Parcel(
                self._pace,
                gap_deadline(order["patience_s"]),
                lambda: points.reached("replicate", order["step"], self._rank, self._trainer_pid),
            )
            try:
                push(self._addresses[rank], self._token, slot, parcel)
            except (OSError, TransferError) as error:
                faults.append(f"the copy did not reach rank {rank}: {error}")
        if faults:
            return {"fault": "; ".join(faults)}
        return {"bytes": slot.header.total_bytes}

    def _fetch(self, order: Message) -> Message:
        slot = self._holdings.get(order["slot"])
        address = self._addresses[order["holder"]]
        try:
            count = fetch(address, self._token, order["rank"], order["step"], lambda header: slot)
        except (OSError, TransferError) as error:
            raise TransferError(f"rank {order['holder']} did not give the copy: {error}") from error
        return {"bytes": count}

    def _persist(self, order: Message) -> Message:
        slot = self._holdings.get(order["slot"])
        self._require(slot, order["step"])
        target = self._target(order["tier"])
        done = self._persister.persist(target, slot, order["metrics"])
        if done.committed:
            self._settled(target, order)
        return {"bytes": done.bytes}

    def _settled(self, target: Target, order: Message) -> None:
        """Tells at once that a step is safe, then takes old ones away; should that fail, the step is safe still."""
        told = {"tier": target.tier, "step": order["step"]}
        self.report({"what": "committed", **told})
        try:
            self._persister.retire(target, order["step"], order["common_step"])
        except (PhalanxError, OSError, ValueError) as error:
            self.report({"what": "retire", **told, "fault": f"{type(error).__name__}: {error}"})

    def _target(self, tier: str) -> Target:
        target: Target = pickle.loads(self._packed_targets[tier])
        return target

    def _require(self, slot: Slot, step: int) -> None:
        if slot.complete_step != step:
            raise ValueError(f"{slot.name} holds step {slot.complete_step}, not {step}")

    def _keep_claims(self) -> None:
        """Says now and then that this trainer lives, where it is the one that claimed."""
        targets = [self._target(tier) for tier in self._packed_targets]
        mine = [target.fence for target in targets if target.ranks[0] == self._rank]
        while mine:
            time.sleep(min(fence.ttl_s for fence in mine) / RENEW_SHARE)
            for fence in mine:
                # A store that is slow or gone is reported by the thread that writes to it.
                with contextlib.suppress(PhalanxError, OSError):
                    fence.renew()


def serve(control_fd: int) -> None:
    """Serves the trainer at the other end of a pair of sockets, until it is gone and what it ordered is written."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    os.nice(NICENESS)
    settings, _, _, _ = socket.recv_fds(control, MESSAGE_BYTES_MAX, 0)
    if settings:
        process = BackgroundProcess(control, pickle.loads(settings))
        process.run()
        process.finish(finish_until_s())
    os._exit(0)


def finish_until_s() -> float:
    """Until when on the wall clock a process goes on whose trainer ends now: as long as it is let live."""
    noticed = grace.read_notice()
    now_s = time.time()
    return noticed.until_s if noticed is not None and noticed.until_s > now_s else now_s + grace.grace_s()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
