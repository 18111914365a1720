"""Ray as the driver sees it: which nodes there are, an agent on each, and calls that never wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import ray

from phalanx.backends.ray.driver.code import archive, digest
from phalanx.backends.ray.node.member import scratch_folder

T = TypeVar("T")

NAMESPACE = "phalanx"
NODE_LABEL = "phalanx.dev/node"
"""Names a node where its host name is not what it is to be called, or several are on one machine."""

CALL_S = 30.0
"""How long anything may take that Ray answers in milliseconds when it is well."""

THREADS = 32


class Refused(Exception):  # noqa: N818
    """Ray does not do what was asked for. `node` is where, if it is known."""

    def __init__(self, reason: str, node: str = "", retryable: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.node, self.retryable = reason, node, retryable


class Used(NamedTuple):
    """What of a node is taken."""

    gpus: int = 0
    cpus_milli: int = 0


class RayNode(NamedTuple):
    """A node of Ray that lives."""

    name: str
    id: str
    address: str


class RayCluster:
    """A connection to Ray. Whatever may block runs in a thread."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.code = archive()
        self.version = digest(self.code)
        self._threads = ThreadPoolExecutor(THREADS, "ray")
        self._agents: dict[str, Any] = {}

    async def connect(self) -> None:
        """Joins Ray as a driver. Raises what Ray says where that cannot be."""
        joined = partial(ray.init, self.address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        await self.call(partial(joined, logging_level="ERROR"))

    async def call(self, work: Callable[[], T], timeout_s: float = CALL_S) -> T:
        """What Ray answers to a call that blocks."""
        answer = asyncio.get_running_loop().run_in_executor(self._threads, work)
        return await asyncio.wait_for(answer, timeout_s)

    async def nodes(self) -> dict[str, RayNode]:
        """The nodes that live, by name."""
        return {node.name: node for node in map(_node_of, await self.call(ray.nodes)) if node is not None}

    async def used(self) -> dict[str, Used]:
        """What of each node that lives is taken, by all that runs on this Ray."""
        from ray.autoscaler.v2.sdk import get_cluster_status

        status = await self.call(partial(get_cluster_status, ray.get_runtime_context().gcs_address))
        names = {node.id: name for name, node in (await self.nodes()).items()}
        found = {}
        for told in (*status.active_nodes, *status.idle_nodes):
            if told.node_id in names and told.resource_usage is not None:
                taken = {each.resource_name: each.used for each in told.resource_usage.usage}
                found[names[told.node_id]] = Used(round(taken.get("GPU", 0)), round(taken.get("CPU", 0) * 1000))
        return found

    async def node(self, name: str) -> RayNode:
        """A node that lives."""
        nodes = await self.nodes()
        if name not in nodes:
            raise Refused(f"node {name} is not in the Ray cluster, or is dead there", name)
        return nodes[name]

    async def agent(self, node: RayNode) -> tuple[str, Any]:
        """The name and the handle of the agent on a node, which is begun where there is none."""
        name = f"agent.{self.version}.{node.id}"
        if name not in self._agents:
            self._agents[name] = await self.call(partial(self._agent, name, node.id))
        return name, self._agents[name]

    async def agent_named(self, name: str) -> Any:
        """An agent that was begun before. Raises ValueError where it is gone."""
        return await self.call(partial(ray.get_actor, name, namespace=NAMESPACE))

    def forget_agent(self, name: str) -> None:
        """Has the agent be looked for again: it was lost."""
        self._agents.pop(name, None)

    def _agent(self, name: str, node_id: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = ray.remote(_agent_class())
        there = actor.options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            max_concurrency=1000,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
        )
        return there.remote(scratch_folder(), self.code, self.version)


def _node_of(told: dict[str, Any]) -> RayNode | None:
    if not told["Alive"]:
        return None
    return RayNode(name_of(told), told["NodeID"], told["NodeManagerAddress"])


def name_of(told: dict[str, Any]) -> str:
    """What phalanx calls a node that Ray tells of."""
    return str(told.get("Labels", {}).get(NODE_LABEL) or told["NodeManagerHostname"])


async def answer_of(ref: Any, timeout_s: float = CALL_S) -> Any:
    """What an actor answers; what it could not do as Refused."""
    try:
        return await asyncio.wait_for(asyncio.wrap_future(ref.future()), timeout_s)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        told = f"{cause.filename}: {cause.strerror}" if isinstance(cause, OSError) and cause.filename else str(cause)
        raise Refused(told) from error


def _agent_class() -> type:
    """A class that is sent to nodes as a whole: it unpacks the code there, and becomes the agent that is in it."""

    class NodeAgent:
        def __init__(self, scratch: str, code: bytes, version: str) -> None:
            import os
            import sys

            root = f"{scratch}/{version}.zip"
            os.makedirs(scratch, mode=0o700, exist_ok=True)
            found = os.lstat(scratch)
            if found.st_uid != os.getuid() or found.st_mode & 0o022:
                # Anything that is run from there would be another user's.
                raise PermissionError(f"{scratch} can be written to by other users: remove it")
            if not os.path.exists(root):
                draft = f"{root}.{os.getpid()}"
                with open(draft, "wb") as file:
                    file.write(code)
                os.replace(draft, root)
            sys.path.insert(0, root)
            from phalanx.backends.ray.node.agent import Agent

            self._agent = Agent(scratch, root)

        async def do(self, what: str, *arguments: object) -> object:
            return await getattr(self._agent, what)(*arguments)

    return NodeAgent
