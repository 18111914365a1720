"""All members of a gang: begun on their nodes, told things together, and ended."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from phalanx.backends.local.attempt_files import TaskOrder
from phalanx.backends.local.wire import Message
from phalanx.backends.ray.driver.cluster import RayCluster, RayNode, Refused, answer_of
from phalanx.backends.ray.driver.member import RemoteMember
from phalanx.backends.ray.driver.papers import Papers
from phalanx.backends.ray.driver.reservation import STOPPED, Around, Reservation


class Members:
    """The members by node, and what they hold. `news` is set whenever one of them has said something."""

    def __init__(self, papers: Papers, cluster: RayCluster, key: str, is_off: Callable[[], bool]) -> None:
        self.by_node: dict[str, RemoteMember] = {}
        self.news = asyncio.Event()
        self.reservation = Reservation(cluster, f"phalanx/{key}", papers.held["groups"])
        self._papers = papers
        self._cluster = cluster
        self._key = key
        self._is_off = is_off
        self._around = Around(is_off, self.put_down)

    def __iter__(self) -> Any:
        return iter(list(self.by_node.values()))

    def put_down(self) -> None:
        """Writes what another driver would need to go on."""
        self._papers.held["members"] = {node: member.agent_name for node, member in self.by_node.items()}
        self._papers.held["groups"] = self.reservation.ranks
        self._papers.put_down()

    async def join_again(self) -> None:
        """Speaks to members that another driver began."""
        for node, name in self._papers.held["members"].items():
            member = self.by_node[node] = RemoteMember(node, name, self._key, self._papers.folder)
            member.bases = self._papers.held.get("bases", {}).get(node, {})
            try:
                member.agent = await self._cluster.agent_named(name)
            except ValueError:
                member.lose("its agent is gone: the node was lost, or Ray's head was restarted and had kept nothing")
            else:
                member.listen(self.news.set)

    async def add(self, tasks: Sequence[TaskOrder], seq: int) -> None:
        """Reserves what tasks need on nodes where the gang has none, and starts them."""
        nodes = await self._nodes_of(tasks)
        if not self.reservation.holds([task["rank"] for task in tasks]):
            await self.reservation.add(tasks, nodes, self._papers.order["elastic"], self._around)
        for name, node in nodes.items():
            agent_name, agent = await self._cluster.agent(node)
            member = self.by_node[name] = RemoteMember(name, agent_name, self._key, self._papers.folder)
            member.agent = agent
        await self._prepare(tasks)
        if self._is_off():
            raise Refused(STOPPED)
        gang = self._papers.write_gang()
        for member in self:
            await member.write_gang(gang)
        by_node = {name: [task for task in tasks if task["node"] == name] for name in nodes}
        launches = [self._launch(name, there, seq, gang) for name, there in by_node.items()]
        for failure in await asyncio.gather(*launches, return_exceptions=True):
            if failure is not None:
                raise failure
        await self.answered([self.by_node[name] for name in nodes], seq)

    async def grow(self, tasks: Sequence[TaskOrder]) -> None:
        """Starts tasks on nodes where others of the gang run; where one does not start, none stays."""
        nodes = await self._nodes_of(tasks)
        await self.reservation.add(tasks, nodes, True, self._around)
        await self._prepare(tasks)
        await self.tell_gang()
        seq, members = number(), [self.by_node[node] for node in nodes]
        for member in members:
            add = [task for task in tasks if task["node"] == member.node]
            await self._tell(member, {"do": "resize", "add": add, "remove": []}, seq)
        try:
            await self.answered(members, seq)
        except Refused:
            began = [each.node for each in members if seq in each.answers and each.answers[seq]["ok"]]
            await self.part([task for task in tasks if task["node"] in began])
            raise

    async def part(self, tasks: Sequence[TaskOrder]) -> None:
        """Ends tasks on nodes where others of the gang go on."""
        seq = number()
        asked = [self.by_node[node] for node in dict.fromkeys(task["node"] for task in tasks)]
        for member in asked:
            go = [task["rank"] for task in tasks if task["node"] == member.node]
            await self._tell(member, {"do": "resize", "add": [], "remove": go}, seq)
        await self.answered(asked, seq)

    async def tell_gang(self, planned: Sequence[TaskOrder] | None = None) -> None:
        """Has all tasks find who is in the gang and, while it changes, who will be."""
        gang = self._papers.write_gang(planned)
        await asyncio.gather(*(member.write_gang(gang) for member in self if member.is_begun))

    async def dismiss(self, nodes: Sequence[str], grace_ms: int) -> None:
        """Ends the members on some nodes wholly, and forgets them."""
        leaving = [self.by_node[node] for node in nodes]
        for member in leaving:
            member.leaving = True
            await self._tell(member, {"do": "stop", "grace_ms": grace_ms, "reason": "resized"}, number())
        await self.until(lambda: all(member.ending is not None for member in leaving))
        for member in leaving:
            await member.forget()
            del self.by_node[member.node]

    async def all_do(self, what: str) -> None:
        """Has every member suspend or resume."""
        seq = number()
        for member in self:
            await self._tell(member, {"do": what}, seq)
        await self.answered(list(self), seq)

    async def stop(self, grace_ms: int, reason: str) -> None:
        """Gives notice to all that have not ended."""
        living = [member for member in self if member.is_begun and member.ending is None]
        notice = {"do": "stop", "grace_ms": grace_ms, "reason": reason}
        await asyncio.gather(*(self._tell(member, notice, number()) for member in living))

    def all_ended(self) -> bool:
        """Whether every member that began has ended."""
        return all(member.ending is not None for member in self if member.is_begun)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until something is so that members bring about."""
        while not is_so():
            self.news.clear()
            await self.news.wait()

    async def answered(self, members: Sequence[RemoteMember], seq: int) -> None:
        """Waits until members have answered; raises what the first of them says that did not do it."""
        await self.until(lambda: all(seq in member.answers or member.ending is not None for member in members))
        for member in members:
            if seq not in member.answers:
                assert member.ending is not None
                raise Refused(member.ending["reason"], member.node)
            answer = member.answers[seq]
            if not answer["ok"]:
                raise Refused(answer["reason"], answer["node"] or member.node, answer["retryable"])

    async def _nodes_of(self, tasks: Sequence[TaskOrder]) -> dict[str, RayNode]:
        return {name: await self._cluster.node(name) for name in dict.fromkeys(task["node"] for task in tasks)}

    async def _prepare(self, tasks: Sequence[TaskOrder]) -> None:
        """Has tasks use the GPUs that Ray gave them, whichever the plan had, and meet where rank 0 listens."""
        agents = {member.node: member.agent for member in self}
        given = await self.reservation.devices(tasks, agents, self._is_off)
        for task in tasks:
            if task["rank"] in given and given[task["rank"]] != task["devices"]:
                task["devices"] = given[task["rank"]]
                self._papers.held["moved"] = True
        address, port = await self._meeting()
        for task in tasks:
            seen = ",".join(map(str, task["devices"]))
            task["env"] |= {"CUDA_VISIBLE_DEVICES": seen, "PHALANX_DEVICES": seen, "MASTER_ADDR": address}
            task["env"] |= {"MASTER_PORT": port, "PET_MASTER_ADDR": address, "PET_MASTER_PORT": port}
            task["env"].setdefault("RAY_ADDRESS", self._cluster.address)
        self._papers.write_order(self._papers.tasks)
        self._papers.begin_logs([task["rank"] for task in tasks])

    async def _meeting(self) -> tuple[str, str]:
        if "meeting" not in self._papers.held:
            first = self._papers.tasks[0]["node"]
            port = await answer_of(self.by_node[first].agent.do.remote("free_port"))
            self._papers.held["meeting"] = [(await self._cluster.node(first)).address, str(port)]
        address, port = self._papers.held["meeting"]
        return address, port

    async def _launch(self, node: str, tasks: list[TaskOrder], seq: int, gang: dict[str, Any]) -> None:
        member, there = self.by_node[node], [task["rank"] for task in tasks]
        logs = {os.path.basename(path): stat.st_size for path, stat in self._papers.folder.logs()}
        member.bases = {name: size for name, size in logs.items() if int(name.split(".")[0]) in there}
        self._papers.held.setdefault("bases", {})[node] = member.bases
        self.put_down()
        order = {**self._papers.order, "tasks": tasks, "seq": seq, "gang": gang, "bound": True}
        await member.begin(order, self.news.set)

    async def _tell(self, member: RemoteMember, message: Message, seq: int) -> None:
        await member.tell({**message, "term": self._papers.order["term"], "seq": seq})


def number() -> int:
    """The number of something that shepherds are told: later ones are higher, also after a restart of this."""
    return time.time_ns()
