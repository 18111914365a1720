"""Routes that change cluster, queues and policy while jobs run."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.formats.native import read_cluster
from phalanx.server.accounts.roles import Account, Role
from phalanx.server.api import models
from phalanx.server.api.auth import SignedIn, WorkerContext, caller_of
from phalanx.server.api.bodies import PolicyBody
from phalanx.server.api.described import WRITE, answers
from phalanx.server.api.jobfile import text_of
from phalanx.server.api.jobs import hand_over, media_of
from phalanx.server.api.pages import as_json
from phalanx.server.api.planning import ask
from phalanx.server.loop.wire import ChangeCluster, ChangePolicy
from phalanx.server.planner.questions import Differ
from phalanx.server.refusal import Refusal

router = APIRouter(tags=["cluster"])

DryRun = Annotated[bool, Query(description="Show the difference and what it would stop, and change nothing.")]


@router.put(
    "/cluster",
    responses=answers(models.DifferenceModel, WRITE),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/yaml": {"schema": {"type": "string"}, "example": "nodes:\n- {count: 4, gpus: 8}\n"},
                "application/json": {"schema": {"type": "object"}, "example": {"nodes": [{"count": 4, "gpus": 8}]}},
            },
        }
    },
)
async def apply_cluster(
    request: Request, account: SignedIn, context: WorkerContext, dry_run: DryRun = False
) -> Response:
    """Change the cluster, its queues and its policy to those of a cluster file. Jobs that can go on do."""
    _need_admin(account)
    if media_of(request) not in ("application/json", "application/yaml"):
        raise Refusal("unsupported_media", "expected a cluster file as application/yaml or application/json")
    cluster: Cluster = read_cluster(text_of(await request.body()), "cluster")
    difference = msgspec.json.decode(await ask(context, Differ(cluster)))
    if not dry_run and difference["changes"]:
        await hand_over(context, caller_of(request, account), ChangeCluster(cluster))
    return as_json(difference)


@router.put("/policy", responses=answers(models.PolicyModel, WRITE))
async def apply_policy(body: PolicyBody, request: Request, account: SignedIn, context: WorkerContext) -> Response:
    """Have another policy decide from now on, and with `placement` another way to choose among places."""
    _need_admin(account)
    change = ChangePolicy(body.policy, body.placement)
    answer = await hand_over(context, caller_of(request, account), change)
    return Response(answer.body, media_type="application/json")


def _need_admin(account: Account) -> None:
    if not account.may(Role.ADMIN):
        raise Refusal("forbidden", "only an admin of the whole cluster may change it")
