"""The agent of one node: joins the other agents, starts the ranks of each epoch, and tells the leader how they are."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from phalanx.train.checkpoint.ending import grace
from phalanx.train.launch import environment, gloo
from phalanx.train.launch.addresses import LaunchError, free_port, is_local, local_address
from phalanx.train.launch.budget import Rules as Restarts
from phalanx.train.launch.cause import Cause
from phalanx.train.launch.coordinator import Coordinator, Report, Rules
from phalanx.train.launch.epoch import Agent, Epoch
from phalanx.train.launch.handover import Handed
from phalanx.train.launch.network import Address, Network
from phalanx.train.launch.options import Options
from phalanx.train.launch.plan import GangFile, Plan
from phalanx.train.launch.replica import Message, Replica, Timing
from phalanx.train.launch.standby import Standbys
from phalanx.train.launch.stragglers import Stragglers
from phalanx.train.launch.told.reporter import FindingReporter
from phalanx.train.launch.workers import Workers, program_of

TICK_S = 0.05
TAKEN_PATIENCE_S = 15.0
"""How long an agent waits for an answer where the endpoint's port is taken on its own machine."""

HOLD_EVERY_S = 1.0
"""How often a leader tries to listen at the endpoint, for agents that join after the founder has gone."""

LOOK_EVERY_S = 1.0
"""How often a leader looks for slow ranks."""

LEFT_EXIT = 143
FAILED_EXIT = 1
EXITS = {"succeeded": 0, "left": LEFT_EXIT}
"""What an agent ends with, by how the run ended; FAILED_EXIT otherwise."""

FENCE_LEASES = 2
"""After so many leases without a leader an agent stops its ranks: the other agents go on without them."""

AFTER_FAILURE_S = 5.0
"""What ranks have at most to end after a failure: those that wait for the failed one in a collective hear no signal,
and what they could save is in host memory already."""

log = logging.getLogger("phalanx.launch")


class AgentProcess:
    """Runs until the job is over; `run` returns the exit code."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._network = Network(self._on_message, self._on_closed)
        self._book: dict[str, Address] = {}
        self._closed: set[str] = set()
        """Agents whose processes have ended."""
        self._wake = asyncio.Event()
        self._contacts: list[Address] = []
        self._asked = 0
        self._gang = None if options.seat is None else GangFile(options.seat)
        self._stragglers, self._reporter = Stragglers(), FindingReporter()
        self._holds_endpoint = False
        self._look_at = self._hold_at = 0.0
        self._leaving = False
        self._patience_s = options.join_timeout_s
        self._refused = ""
        self._is_spare = False
        self._over: Mapping[str, Any] | None = None
        self._workers: Workers | None = None
        self._started, self._restarts = -1, 0
        self._explaining: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._standbys = Standbys.none()
        self._fenced: Cause | None = None

    async def run(self) -> int:
        if self._options.slots > 1:
            # As torchrun: ranks of one node would otherwise each take all processors.
            os.environ.setdefault("OMP_NUM_THREADS", "1")
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            await self._prepare_standbys()
            await self._take_place()
            return await self._serve()
        finally:
            await self._end_workers("the launcher ends")
            await self._standbys.close()
            await self._network.close()
            await asyncio.to_thread(self._reporter.close)

    async def _take_place(self) -> None:
        """Founds the run where the endpoint is this machine's and free; else joins it there."""
        endpoint = self._options.endpoint
        host = self._options.local_addr or local_address(endpoint)
        is_founder = endpoint is None
        if self._gang is None or self._gang.is_founder():
            is_founder = await self._hold(endpoint) or is_founder
            if endpoint is not None and is_local(endpoint[0]) and not is_founder:
                # It is taken: by another agent if all is well, and that answers at once.
                self._patience_s = TAKEN_PATIENCE_S
        port = await self._network.listen(host, 0)
        self._become(host, port, is_founder)
        if is_founder:
            log.info("agent %s waits for others at %s:%d", self._me.name, *(endpoint or (host, port)))

    async def _hold(self, endpoint: Address | None) -> bool:
        """Listens at the endpoint, if it is this machine's and free."""
        if endpoint is not None and is_local(endpoint[0]):
            with contextlib.suppress(OSError):
                await self._network.listen(*endpoint)
                self._holds_endpoint = True
        return self._holds_endpoint

    async def _hold_for_the_run(self, now: float) -> None:
        """The leader is found at the endpoint, also once the agent that founded the run is gone."""
        if not self._holds_endpoint and self._replica.leads(now) and now >= self._hold_at:
            self._hold_at = now + HOLD_EVERY_S
            await self._hold(self._options.endpoint)

    def _become(self, host: str, port: int, is_founder: bool) -> None:
        """Takes a name that was never used: what an agent promised before is not its promise any more."""
        name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        task = -1 if self._options.seat is None else self._options.seat.task
        self._me = Agent(name, host, port, self._options.slots, free_port(host), task)
        timing, now = Timing(min(0.5, self._options.lease_s / 5), self._options.lease_s), time.monotonic()
        self._timing = timing
        self._replica = Replica.founding(self._me, timing, now) if is_founder else Replica(self._me, timing, now)
        self._leader: str | None = self._me.name if is_founder else None
        self._coordinator: Coordinator | None = None
        self._heard: dict[str, float] = {}
        self._reported: tuple[float, Report | None] = (0.0, None)
        self._sought_since = self._led_at = now

    async def _serve(self) -> int:
        while True:
            self._wake.clear()
            now = time.monotonic()
            self._replica.tick(now)
            self._heed_plan()
            self._lead(now)
            await self._hold_for_the_run(now)
            self._tell(now)
            self._send()
            epoch = self._replica.epoch
            if epoch is not None and epoch.is_over and (self._me.name in epoch.names or self._leaving):
                return await self._finish(epoch)
            if self._over is not None:
                log.info("run %r is over, and this agent was not needed: %s", self._options.run_id, self._over["why"])
                return EXITS.get(self._over["state"], FAILED_EXIT)
            await self._follow(epoch, now)
            self._supervise(epoch, now)
            self._check_patience(now)
            if self._is_gone(epoch):
                return LEFT_EXIT if epoch is None else 0
            try:
                await asyncio.wait_for(self._wake.wait(), TICK_S)
            except TimeoutError:
                continue

    async def _follow(self, epoch: Epoch | None, now: float) -> None:
        """Starts and stops ranks, so that they are those of the newest epoch."""
        if epoch is None:
            return
        for member in epoch.members:
            self._book[member.name] = (member.host, member.port)
        self._contacts = [(member.host, member.port) for member in epoch.members]
        is_member = self._me.name in epoch.names
        if epoch.number == self._started or self._is_ending():
            return
        if self._workers is not None and is_member and not self._leaving and self._workers.can_go_on:
            await self._change_over(epoch, self._workers)
            return
        if self._workers is not None:
            # Ranks that save take a while, in which this agent is there for the other agents.
            reason, grace_s = self._notice(epoch.why or "another epoch")
            if self._has_failed(epoch):
                grace_s = min(grace_s, AFTER_FAILURE_S)
            self._begin_ending(reason, grace_s if is_member or self._leaving else 0.0)
            return
        if self._started >= 0 and not is_member and not self._leaving:
            log.warning("the others went on without this agent in epoch %d: it joins anew", epoch.number)
            self._become(self._me.host, self._me.port, is_founder=False)
            self._started = -1
            return
        if epoch.state == "running" and is_member:
            await self._start(epoch)
        self._started = epoch.number

    def _has_failed(self, epoch: Epoch) -> bool:
        """Whether the ranks that this agent runs are to end for a failure of one of their world."""
        return epoch.state == "failed" or epoch.restarts > self._restarts

    async def _change_over(self, epoch: Epoch, workers: Workers) -> None:
        """Ranks that keep their memory go on in the new epoch; they wait where it has too few agents yet."""
        if epoch.state == "running":
            handed = [Handed(each, self._has_failed(epoch)) for each in self._variables(epoch)]
            self._restarts = epoch.restarts
            first, command = epoch.first_rank(self._me.name), self._options.command
            kept = await workers.change(first, command, handed, self._standbys)
            self._tell_of(epoch, f"; {kept} of {self._options.slots} go on in their processes")
            self._prepare_next()
        self._started = epoch.number

    async def _start(self, epoch: Epoch) -> None:
        self._restarts = epoch.restarts
        self._tell_of(epoch, "")
        self._fenced = None
        self._workers = Workers(self._me.host, epoch.first_rank(self._me.name), self._wake.set)
        await self._workers.start(self._options.command, self._variables(epoch), self._standbys)
        self._prepare_next()

    def _variables(self, epoch: Epoch) -> list[dict[str, str]]:
        options, own = self._options, gloo.variables(epoch, self._me.host)
        return [
            environment.of_rank(epoch, self._me.name, rank, options.run_id, options.max_restarts) | own
            for rank in range(options.slots)
        ]

    def _tell_of(self, epoch: Epoch, kept: str) -> None:
        why = f" ({epoch.why})" if epoch.why else ""
        first = epoch.first_rank(self._me.name)
        places = (epoch.number, first, first + self._options.slots - 1, epoch.world_size)
        log.info("epoch %d: ranks %d to %d of %d%s%s", *places, why, kept)

    def _prepare_next(self) -> None:
        # The next epoch's rank 0 may listen elsewhere: what listened here may linger.
        self._me = replace(self._me, master_port=free_port(self._me.host))
        self._refilling = asyncio.ensure_future(self._standbys.refill())

    def _lead(self, now: float) -> None:
        """What only a leader does: takes reports together and proposes the next epoch."""
        if not self._replica.leads(now):
            self._coordinator = None
            return
        if self._coordinator is None:
            options = self._options
            restarts = Restarts(options.max_restarts)
            rules = Rules(options.least, options.most, options.last_call_s, options.join_timeout_s, restarts=restarts)
            rules = replace(rules, retry_program_errors=options.retry_program_errors)
            self._coordinator = Coordinator(rules, now)
            self._heard = dict.fromkeys(self._replica.epoch.names if self._replica.epoch else (), now)
            for name in self._closed:
                self._lose(name, now)
        self._coordinator.planned(self._plan())
        if self._started > 0 or self._standbys.are_warm or not self._standbys.cover(self._options.slots):
            # Ranks that all come of a standby begin no later for waiting until it has imported.
            self._coordinator.heard(self._report(), now)
        for name, at in list(self._heard.items()):
            if name != self._me.name and now >= at + self._timing.lease_s:
                self._lose(name, now)
        epoch = self._replica.epoch
        if epoch is None or self._replica.is_pending():
            return
        self._name_the_slow(epoch, self._coordinator, now)
        following = self._coordinator.next(epoch, now)
        self._reporter.tell_failed(epoch, self._coordinator.take_causes())
        if following is not None:
            if not following.is_over:  # Of the end every agent tells.
                log.info("epoch %d: %s%s", following.number, following.state, following.why and f", {following.why}")
                for host, count in following.shared_hosts().items():
                    log.warning("%d agents of this run share the devices of %s: launched twice there?", count, host)
            self._replica.propose(following, now)

    def _name_the_slow(self, epoch: Epoch, coordinator: Coordinator, now: float) -> None:
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            for verdict in self._stragglers.look(*coordinator.busy(epoch)):
                log.warning("%s", verdict)
                self._reporter.tell_slow(epoch, verdict)

    def _plan(self) -> Plan | None:
        return None if self._gang is None else self._gang.plan()

    def _heed_plan(self) -> None:
        """An agent that the scheduler plans without leaves, whether or not the signal has come."""
        plan = self._plan()
        if plan is not None and self._me.task not in plan.tasks and not self._leaving:
            self._leave("the scheduler plans without it")

    def _lose(self, name: str, now: float) -> None:
        self._heard.pop(name, None)
        if self._coordinator is not None:
            self._coordinator.lost(name, now)

    def _report(self) -> Report:
        workers = self._workers
        if workers is None:
            causes = () if self._fenced is None else (self._fenced,)
            return Report(self._me, self._started, "failed" if causes else "idle", causes, self._leaving)
        condition: Any = "failed" if workers.causes else "succeeded" if workers.has_succeeded else "running"
        told = tuple(workers.causes)
        return Report(self._me, self._started, condition, told, self._leaving, workers.step(), workers.busy())

    def _tell(self, now: float) -> None:
        """Reports to the leader: at once what changed, and with every beat that this agent is there.

        An agent that joins first warms its standbys: the others go on meanwhile.
        """
        if self._started < 0 and not self._standbys.are_warm:
            self._sought_since = now
            return
        report = self._report()
        at, before = self._reported
        is_news = before is None or before.news != report.news
        if not is_news and now < at + self._timing.beat_s:
            return
        self._reported = (now, report)
        leader = self._replica.leader or self._leader
        if leader == self._me.name and self._replica.role == "leader":
            return
        target = self._book.get(leader) if leader else None
        self._post(target or self._next_contact(), {"kind": "report", "report": asdict(report)})

    def _next_contact(self) -> Address | None:
        """Where to ask for the leader: at the endpoint and at all agents of the last epoch, in turn."""
        contacts = [*([self._options.endpoint] if self._options.endpoint else []), *self._contacts]
        self._asked += 1
        return contacts[self._asked % len(contacts)] if contacts else None

    def _send(self) -> None:
        for message in self._replica.outbox:
            self._post(self._book.get(message.to), {"kind": "replica", "message": message.said()})
        self._replica.outbox.clear()

    def _post(self, to: Address | None, message: Mapping[str, Any]) -> None:
        if to is not None and to != (self._me.host, self._me.port):
            self._network.send(to, self._me, {**message, "agent": asdict(self._me), "run": self._options.run_id})

    def _on_message(self, message: Mapping[str, Any]) -> None:
        now = time.monotonic()
        sender = Agent.of(message["agent"])
        self._book[sender.name] = (sender.host, sender.port)
        kind = message["kind"]
        if message["run"] != self._options.run_id and kind != "refused":
            why = f"the agents there run {self._options.run_id!r}, and this is {message['run']!r} (--rdzv-id)"
            self._post(self._book[sender.name], {"kind": "refused", "why": why})
        elif kind == "refused":
            self._refused = message["why"]
        elif kind == "replica":
            self._replica.receive(Message.of(message["message"]), now)
            self._send()
        elif kind == "leader":
            self._leader = message["name"]
            self._book[message["name"]] = (message["host"], message["port"])
            self._sought_since = now
            self._wait_as_spare(message.get("spare", ""))
        elif kind == "over":
            self._over = message
        elif kind == "report":
            self._hear_report(Report.of(message["report"]), now)
        self._wake.set()

    def _wait_as_spare(self, why: str) -> None:
        if why and not self._is_spare:
            self._is_spare = True
            told = "run %r %s: this one waits, and takes the place of one that is lost"
            log.warning(told, self._options.run_id, why)

    def _hear_report(self, report: Report, now: float) -> None:
        if self._coordinator is not None and self._replica.leads(now):
            self._coordinator.heard(report, now)
            self._heard[report.agent.name] = now
            if report.epoch < 0:
                # It may wait for long before it is in an epoch; this says that it was heard.
                why = self._coordinator.why_spare(report.agent, self._replica.epoch)
                own = {"kind": "leader", "name": self._me.name, "host": self._me.host, "port": self._me.port}
                self._post((report.agent.host, report.agent.port), {**own, "spare": why})
            return
        leader = self._replica.leader
        if leader is not None and leader in self._book and leader != report.agent.name:
            host, port = self._book[leader]
            told = {"kind": "leader", "name": leader, "host": host, "port": port}
            self._post((report.agent.host, report.agent.port), told)

    def _on_closed(self, name: str) -> None:
        now = time.monotonic()
        self._closed.add(name)
        self._replica.lost(name, now)
        self._lose(name, now)
        if name == self._leader:
            self._leader = None
        self._wake.set()

    def _on_signal(self, number: int) -> None:
        self._leave(signal.Signals(number).name)

    def _leave(self, why: str) -> None:
        log.warning("%s: this agent leaves", why)
        self._leaving = True
        self._left_at = time.monotonic()
        self._wake.set()

    def _is_gone(self, epoch: Epoch | None) -> bool:
        """Whether an agent that leaves is in no epoch any more, or has no leader to let it go."""
        if not self._leaving:
            return False
        is_in = epoch is not None and self._me.name in epoch.names
        has_leader = self._replica.leader is not None
        return not is_in or (not has_leader and time.monotonic() > self._left_at + self._timing.lease_s)

    def _supervise(self, epoch: Epoch | None, now: float) -> None:
        """Looks for ranks that make no progress, and stops them where no leader is heard."""
        workers = self._workers
        if workers is None:
            return
        if self._replica.leads(now) or self._replica.leader not in (None, self._me.name):
            self._led_at = now
        elif now > self._led_at + FENCE_LEASES * self._timing.lease_s:
            text = f"no quorum for {now - self._led_at:.0f} s: its ranks were stopped"
            self._fenced = Cause("lost agent", -1, self._me.host, time.time(), text)
            log.warning("%s", self._fenced)
            self._begin_ending("no quorum", 0.0)
            return
        # Ranks that wait for agents have no step to do.
        stalled_s = workers.stalled_s() if epoch is not None and epoch.state == "running" else 0.0
        if stalled_s > self._options.hang_timeout_s and not workers.causes and self._explaining is None:
            self._explaining = asyncio.ensure_future(self._explain(workers, stalled_s))

    async def _explain(self, workers: Workers, stalled_s: float) -> None:
        await workers.explain_hang(stalled_s)
        for cause in workers.causes:
            log.warning("%s\n%s", cause, cause.trace)
        self._explaining = None

    def _check_patience(self, now: float) -> None:
        if self._refused:
            raise LaunchError(self._refused)
        if self._replica.role != "learner" or self._leader is not None:
            self._sought_since = now
        elif now > self._sought_since + min(self._options.join_timeout_s, self._patience_s):
            host, port = self._options.endpoint or (self._me.host, self._me.port)
            raise LaunchError(
                f"no agent of run {self._options.run_id!r} answers at {host}:{port}: is one started there, and is the "
                "port taken by another program?"
            )

    async def _end_workers(self, why: str) -> None:
        if not self._is_ending():
            self._begin_ending(*self._notice(why))
        assert self._ending is not None
        await self._ending

    def _notice(self, why: str) -> tuple[str, float]:
        """Why ranks are to end, and the seconds they have: what the scheduler says, where it has this agent leave."""
        said = grace.read_notice() if self._leaving else None
        if said is None:
            return why, self._options.grace_s
        return said.reason or why, max(0.0, min(self._options.grace_s, said.until_s - time.time()))

    def _begin_ending(self, reason: str, grace_s: float) -> None:
        workers, self._workers = self._workers, None
        self._ending = asyncio.ensure_future(self._stop(workers, reason, grace_s))

    async def _stop(self, workers: Workers | None, reason: str, grace_s: float) -> None:
        if workers is not None:
            await workers.stop(grace_s, reason)
        self._wake.set()

    def _is_ending(self) -> bool:
        return self._ending is not None and not self._ending.done()

    async def _prepare_standbys(self) -> None:
        program = program_of(self._options.command)
        if program is not None and self._options.standby:
            interpreter, flags, rest = program
            count = min(self._options.standby, self._options.slots)
            self._standbys = Standbys([interpreter, *flags], rest, self._options.preload, count)
            await self._standbys.refill()

    async def _finish(self, epoch: Epoch) -> int:
        """All agents see the end before the leader goes: it says it again for a moment."""
        self._send()
        for name in self._heard.keys() - set(epoch.names) if self._replica.role == "leader" else ():
            self._post(self._book[name], {"kind": "over", "state": epoch.state, "why": epoch.why})
        await self._end_workers(epoch.why)
        until = time.monotonic() + 2 * self._timing.beat_s
        while self._replica.role == "leader" and len(epoch.members) > 1 and time.monotonic() < until:
            self._replica.tick(time.monotonic())
            self._send()
            await asyncio.sleep(TICK_S)
        log.log(logging.INFO if epoch.state == "succeeded" else logging.ERROR, "%s: %s", epoch.state, epoch.why)
        return EXITS.get(epoch.state, FAILED_EXIT)


def run(options: Options) -> int:
    """Runs the agent of this node until the job is over; the exit code."""
    return asyncio.run(AgentProcess(options).run())
