"""Routes of nodes, queues and the cluster."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response
from sqlalchemy import Connection

from phalanx.cluster.cluster import Health
from phalanx.document.field import NAME_MAX
from phalanx.engine.state.records import JobState
from phalanx.server.accounts.roles import Account, Role
from phalanx.server.api.auth import SignedIn, WorkerContext, caller_of
from phalanx.server.api.bodies import DrainBody, UndrainBody
from phalanx.server.api.context import SHOWN, Context
from phalanx.server.api.described import LIST, WRITE, answers
from phalanx.server.api.models.cluster import (
    ClusterModel,
    NodeDetailModel,
    NodeListModel,
    NodeModel,
    PolicyModel,
    QueueListModel,
)
from phalanx.server.api.pages import Cursor, Limit, as_json, as_list, place_of
from phalanx.server.api.past import PAST
from phalanx.server.api.planner import ask
from phalanx.server.api.routes.jobs import hand_over
from phalanx.server.cluster.simulated import real_nodes_of
from phalanx.server.loop.wire import ChangeNode
from phalanx.server.planner.questions import ListUse
from phalanx.server.refusal import Refusal
from phalanx.server.store import jobs as job_table
from phalanx.server.store import nodes as table
from phalanx.server.store.past import findings_on
from phalanx.server.store.queues import queue_names
from phalanx.server.store.virtual_clusters import virtual_clusters_of
from phalanx.server.view.lists import queue_rows

router = APIRouter(tags=["cluster"])

Name = Annotated[str, Path(max_length=NAME_MAX, description="The name of a node.")]


HIDDEN = ("queues", "queue_file", "maintenance")
"""What is kept of the cluster for other routes."""


@router.get("/nodes", dependencies=PAST, responses=answers(NodeListModel, LIST))
async def list_nodes(
    account: SignedIn,
    context: WorkerContext,
    health: Annotated[Literal["healthy", "spare", "suspect", "draining", "failed"] | None, Query()] = None,
    limit: Limit = 1_000,
    cursor: Cursor = "",
) -> Response:
    """List the nodes in the order of the cluster file. Every user with a role may see them."""
    need_eyes(account)
    found = await context.read(table.page, place_of(cursor), limit, health or "")
    place = found[-1]["position"] if len(found) == limit else None
    return as_list(await _shown(found, account, context), place)


@router.get("/nodes/{name}", dependencies=PAST, responses=answers(NodeDetailModel))
async def show_node(name: Name, account: SignedIn, context: WorkerContext) -> Response:
    """Show a node, and what launchers found about tasks there."""
    need_eyes(account)
    node = await _node(name, account, context)
    found = await context.read(findings_on, name)
    queues = await context.read(table.queues_of, list(dict.fromkeys(each["job"] for each in found)))
    seen = [each for each in found if account.sees(queues[each["job"]])]
    return as_json({**node, "findings": seen})


@router.post("/nodes/{name}:drain", responses=answers(NodeModel, WRITE))
async def drain(
    name: Name, request: Request, account: SignedIn, context: WorkerContext, body: DrainBody | None = None
) -> Response:
    """Have a node, or some of its GPUs, take no new work. What runs there goes on."""
    said = body or DrainBody()
    change = ChangeNode(name, Health.DRAINING.value, said.reason, tuple(said.gpus), said.share_max)
    return await _change(request, change, account, context)


@router.post("/nodes/{name}:undrain", responses=answers(NodeModel, WRITE))
async def undrain(
    name: Name, request: Request, account: SignedIn, context: WorkerContext, body: UndrainBody | None = None
) -> Response:
    """Let a node, or some of its GPUs, take work again."""
    change = ChangeNode(name, Health.HEALTHY.value, "", tuple((body or UndrainBody()).gpus))
    return await _change(request, change, account, context)


@router.get("/queues", dependencies=PAST, responses=answers(QueueListModel))
async def list_queues(account: SignedIn, context: WorkerContext) -> Response:
    """List the queues you may look at, with what waits and runs in them, and what they own of the cluster's cells."""
    counted = list(await context.read(job_table.counted))
    quotas = (await context.cluster()).get("queues", {})
    owners = await context.read(virtual_clusters_of)
    if not quotas and not owners:
        counted += [(name, JobState.RUNNING.value, 0, 0) for name in await context.read(queue_names)]
    use = await _use(account.user, context) if quotas else {}
    rows = queue_rows(counted, quotas, use.get("spent", {}), owners, use.get("used", {}))
    return as_list([row for row in rows if account.sees(row["name"])])


async def _use(user: str, context: Context) -> dict[str, Any]:
    """What queues have of what they are allotted, and have had of their budgets; nothing while the planner cannot
    say.
    """
    moment = SHOWN.get()
    if moment is not None:
        return {"used": moment.told.used, "spent": moment.told.spent}
    try:
        use: dict[str, Any] = msgspec.json.decode(await ask(context, user, ListUse()))
    except Refusal:
        return {}
    return use


@router.get("/cluster", dependencies=PAST, responses=answers(ClusterModel))
async def show_cluster(account: SignedIn, context: WorkerContext) -> Response:
    """Show the cluster as a whole."""
    need_eyes(account)
    used = await context.read(table.gpus_used)
    cluster = {key: value for key, value in (await context.cluster()).items() if key not in HIDDEN}
    simulated = await context.read(_count_simulated)
    return as_json({**cluster, "gpus_used": used, "simulated_nodes": simulated})


@router.get("/policy", dependencies=PAST, responses=answers(PolicyModel))
async def show_policy(account: SignedIn, context: WorkerContext) -> Response:
    """Show the policy and the placement in force."""
    need_eyes(account)
    cluster = await context.cluster()
    return as_json({"policy": cluster["policy"], "placement": cluster["placement"]})


async def _change(request: Request, change: ChangeNode, account: Account, context: Context) -> Response:
    if not account.may(Role.OPERATOR):
        raise Refusal("forbidden", "only an operator of the whole cluster may drain nodes")
    await hand_over(context, caller_of(request, account), change)
    return as_json(await _node(change.node, account, context))


async def _node(name: str, account: Account, context: Context) -> dict[str, Any]:
    node = await context.read(table.one, name)
    if node is None:
        raise Refusal("not_found", f"there is no node {name!r}")
    return (await _shown([node], account, context))[0]


async def _shown(nodes: list[dict[str, Any]], account: Account, context: Context) -> list[dict[str, Any]]:
    """Nodes with the jobs that the account may see."""
    if not account.sees(""):
        ids = [job for node in nodes for job in node["jobs"]]
        queues = await context.read(table.queues_of, ids)
        for node in nodes:
            node["jobs"] = [job for job in node["jobs"] if account.sees(queues[job])]
    real = await context.read(real_nodes_of)
    for node in nodes:
        del node["position"]
        node["simulated"] = real is not None and node["name"] not in real
    return nodes


def _count_simulated(connection: Connection) -> int:
    real = real_nodes_of(connection)
    return 0 if real is None else table.count_without(connection, real)


def need_eyes(account: Account) -> None:
    """Refuses an account that may look at nothing."""
    if not account.seen_queues:
        raise Refusal("forbidden", "you have no role anywhere: ask an admin for one")
