"""A gang on Ray: one attempt, its reservation, and its members on the nodes.

It speaks to the server as a shepherd of the local backend does: it is told what to do by numbered actions, each carried
out once, and what it answers is in the attempt's folder before it is told.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from phalanx.backends.local.attempt_files import Answer, Ending, TaskOrder
from phalanx.backends.local.folder import AttemptFolder
from phalanx.backends.local.wire import Message, Wire, listen_at, stop_listening
from phalanx.backends.ray.driver.cluster import RayCluster, Refused, Used
from phalanx.backends.ray.driver.members import Members, number
from phalanx.backends.ray.driver.papers import Papers, Pending, answer_to
from phalanx.backends.ray.driver.reservation import STOPPED

AGAIN_S = 1.0
"""How soon what Ray, or a full disk, did not do at an end is tried again."""

Work = Callable[[], Coroutine[Any, Any, None]]


class Gang:
    """Runs one attempt. `site` tells the gangs of one server from those of others on the same Ray."""

    def __init__(self, folder: AttemptFolder, lock: int, cluster: RayCluster, site: str) -> None:
        self._papers = papers = Papers(folder)
        self._lock = lock
        self._ending: Ending | None = papers.held.get("ending")
        key = f"{site}/{papers.order['job']}/{papers.order['attempt']}"
        self._members = Members(papers, cluster, key, lambda: self._ending is not None)
        self._working: list[Pending] = []
        self._work: asyncio.Task[None] | None = None
        self._stops: list[Pending] = []
        self._telling: set[asyncio.Task[None]] = set()
        self._unstarted: Refused | None = None

    def admit(self, wire: Wire) -> None:
        """Listens to a server."""
        asyncio.get_running_loop().add_reader(wire.fileno(), self._hear, wire)

    def show(self, wire: Wire) -> None:
        """Tells a server all that was answered, and from now on what will be."""
        self._papers.show(wire)

    def holds(self) -> dict[str, Used]:
        """What it has of each node."""
        return self._members.reservation.of_tasks(self._papers.tasks)

    async def run(self, first: Wire) -> None:
        """Sees the attempt through to its end."""
        loop, folder = asyncio.get_running_loop(), self._papers.folder
        door = listen_at(folder.path)
        door.setblocking(False)
        loop.add_reader(door.fileno(), lambda: self.admit(Wire(door.accept()[0])))
        self.admit(first)
        self.show(first)
        try:
            await self._begin()
            while not self._is_over():
                self._members.news.clear()
                self._settle()
                if not self._is_over():
                    await self._members.news.wait()
            await self._finish(self._ending)
        finally:
            loop.remove_reader(door.fileno())
            door.close()

    def _hear(self, wire: Wire) -> None:
        messages = wire.receive()
        for message in messages or ():
            if message["do"] == "watch":
                self.show(wire)
            elif message["do"] in ("stop", "suspend", "resume", "resize"):
                self._act(message)
        if messages is None:
            self._hang_up(wire)

    def _hang_up(self, wire: Wire) -> None:
        asyncio.get_running_loop().remove_reader(wire.fileno())
        if wire in self._papers.wires:
            self._papers.wires.remove(wire)
        wire.close()

    def _act(self, message: Message) -> None:
        """Takes an action on, unless it was already; one that a newer has overtaken is refused."""
        action, newest = (message["term"], message["seq"]), self._papers.state["newest"]
        if self._papers.tell_again(action[1]) or action in (*self._working, *self._stops):
            return
        if action[1] < newest:
            self._papers.answer(action, Refused(f"action {newest} of this attempt came first", retryable=False))
            return
        self._papers.state["newest"] = action[1]
        if message["do"] == "stop":
            self._stops.append(action)
            self._end(Ending(outcome="stopped", exit_code=0, reason=message["reason"]), message["grace_ms"])
        else:
            self._change(action, message)

    def _change(self, action: Pending, message: Message) -> None:
        wanted, phase = "suspended" if message["do"] == "resume" else "running", self._papers.state["phase"]
        if phase != wanted or self._work is not None:
            self._papers.answer(action, Refused(f"it is {phase}, not {wanted}"))
        elif message["do"] == "resize":
            self._begin_work(action, partial(self._resize, message))
        else:
            self._begin_work(action, partial(self._freeze, message["do"]))

    async def _begin(self) -> None:
        """Starts it, or goes on with one of which another driver has answered the start."""
        order = self._papers.order
        if not self._papers.known(order["seq"]):
            self._begin_work((order["term"], order["seq"]), self._start)
            return
        await self._members.join_again()
        if self._papers.state["phase"] == "resizing":
            self._papers.state["phase"] = "running"
        if self._ending is not None:
            self._end(self._ending, order["grace_ms"])

    def _begin_work(self, action: Pending, work: Work) -> None:
        self._working.append(action)
        self._work = asyncio.create_task(self._do(action, work))

    async def _do(self, action: Pending, work: Work) -> None:
        why: Refused | None = None
        try:
            await work()
        except Refused as refused:
            why = refused
        except Exception as error:
            words = " ".join(str(error).split())[:300]
            why = Refused(f"Ray: {type(error).__name__}: {words}")
        self._work = None
        if action[1] == self._papers.order["seq"] and (why is not None or self._ending is not None):
            self._give_up_start(why or Refused(STOPPED))
        else:
            self._working.remove(action)
            self._papers.answer(action, why)
        self._members.news.set()

    def _give_up_start(self, why: Refused) -> None:
        """None of it is of use without the rest; the answer comes when nothing is left."""
        self._unstarted = why
        self._end(self._ending or Ending(outcome="unstarted", exit_code=0, reason=why.reason), 0)

    async def _start(self) -> None:
        self._members.put_down()
        await self._members.add(self._papers.tasks, self._papers.order["seq"])
        self._papers.state["phase"] = "running"

    async def _freeze(self, what: str) -> None:
        """Suspends or resumes every member."""
        state, (doing, before, after) = self._papers.state, FREEZING[what]
        state["phase"] = doing
        try:
            await self._members.all_do(what)
        except Refused:
            state["phase"] = before
            raise
        state["phase"] = after

    async def _resize(self, message: Message) -> None:
        """Has members leave, and then others join; one that does not join leaves those before it as they are."""
        leaving, joining = message["remove"], message["add"]
        if not leaving and not joining:
            return
        self._papers.state["phase"] = "resizing"
        staying = [task for task in self._papers.tasks if task["rank"] not in leaving]
        await self._members.tell_gang(sorted([*staying, *joining], key=lambda task: task["rank"]))
        try:
            await self._leave(leaving, staying)
            if joining:
                await self._join(staying, joining)
        finally:
            await self._members.tell_gang()
            if self._ending is None:
                self._papers.state["phase"] = "running"

    async def _leave(self, leaving: list[int], staying: list[TaskOrder]) -> None:
        """Ends members that leave."""
        kept = {task["node"] for task in staying}
        empty = [member.node for member in self._members if member.node not in kept]
        going = [task for task in self._papers.tasks if task["rank"] in leaving and task["node"] in kept]
        await asyncio.gather(
            self._members.part(going),
            self._members.dismiss(empty, self._papers.order["grace_ms"]),
        )
        self._papers.write_order(staying)
        await self._members.reservation.give_back(leaving)
        self._members.put_down()

    async def _join(self, staying: list[TaskOrder], joining: list[TaskOrder]) -> None:
        """Starts members that join. Where one does not, those that did leave again."""
        before = [member.node for member in self._members]
        here = [task for task in joining if task["node"] in before]
        fresh = [task for task in joining if task["node"] not in before]
        grown: list[TaskOrder] = []
        self._papers.write_order([*staying, *joining])
        try:
            if here:
                await self._members.grow(here)
                grown = here
            if fresh:
                await self._members.add(fresh, number())
        except Exception:
            begun = [member.node for member in self._members if member.node not in before and member.is_begun]
            await self._members.dismiss(begun, 0)
            if grown:
                await self._members.part(grown)
            self._papers.write_order(staying)
            await self._members.reservation.give_back([task["rank"] for task in joining])
            raise
        self._members.put_down()

    def _settle(self) -> None:
        """Goes on from wherever things stand."""
        if self._ending is not None or self._work is not None:
            return
        endings = [member.ending for member in self._members if not member.leaving]
        failed = [ending for ending in endings if ending is not None and ending["outcome"] != "succeeded"]
        if failed:
            self._end(failed[0].copy(), self._papers.order["grace_ms"])
        elif endings and all(endings):
            self._end(Ending(outcome="succeeded", exit_code=0, reason=""), 0)

    def _end(self, ending: Ending, grace_ms: int) -> None:
        """Ends every member; a second time can only shorten the grace."""
        if self._ending is None:
            self._ending = self._papers.held["ending"] = ending
        self._papers.state["phase"] = "stopping"
        self._papers.put_down()
        reason = "failed" if self._ending["outcome"] == "failed" else self._ending["reason"]
        telling = asyncio.create_task(self._members.stop(grace_ms, reason))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        self._members.news.set()

    def _is_over(self) -> bool:
        return self._ending is not None and self._work is None and self._members.all_ended()

    async def _finish(self, ending: Ending | None) -> None:
        """Gives everything back, and puts down and tells the end."""
        assert ending is not None
        ends = [member.ending.get("ended_ms", 0) for member in self._members if member.ending is not None]
        ending["ended_ms"] = max(ends, default=0) or int(time.time() * 1000)
        # A server that calls from now on finds the end in the papers.
        stop_listening(self._papers.folder.path)
        while True:
            try:
                await self._members.reservation.give_all_back()
                self._papers.close(self._last_answers(ending), ending)
                break
            except Exception:
                await asyncio.sleep(AGAIN_S)
        for member in self._members:
            await member.forget()
        for wire in list(self._papers.wires):
            self._hang_up(wire)
        os.close(self._lock)

    def _last_answers(self, ending: Ending) -> list[Answer]:
        over = self._unstarted or Refused(f"the attempt has ended: {ending['reason']}")
        under_way = [answer_to(action, over) for action in self._working]
        return [*under_way, *(answer_to(action, None) for action in self._stops)]


FREEZING = {"suspend": ("suspending", "running", "suspended"), "resume": ("resuming", "suspended", "running")}
"""The phases of a gang while it does one of these, if it could not, and afterwards."""
