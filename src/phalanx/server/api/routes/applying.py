"""Routes that change cluster, queues and policy while jobs run."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response

from phalanx.cluster.formats.native import read_cluster
from phalanx.cluster.formats.settings import Settings, is_settings
from phalanx.document import DocumentError
from phalanx.server.accounts.roles import Account, Role
from phalanx.server.api.admission.large import read_large
from phalanx.server.api.auth import SignedIn, WorkerContext, caller_of
from phalanx.server.api.bodies import PolicyBody
from phalanx.server.api.context import Context
from phalanx.server.api.described import WRITE, answers
from phalanx.server.api.jobfile import text_of
from phalanx.server.api.models.cluster import DifferenceModel, PolicyModel, QueueFileModel
from phalanx.server.api.pages import as_json
from phalanx.server.api.planner import ask
from phalanx.server.api.routes.jobs import hand_over, media_of
from phalanx.server.clock import Clock
from phalanx.server.cluster.live_cluster import live
from phalanx.server.cluster.queue_edition import edition_of
from phalanx.server.loop.wire import ChangeCluster, ChangePolicy, ChangeSettings
from phalanx.server.planner.questions import Differ, DifferSettings
from phalanx.server.refusal import Refusal

router = APIRouter(tags=["cluster"])

_ETAG = re.compile(r'(?:W/)?"([0-9a-f]{1,64})"')
SOURCE = "cluster"
"""What errors call the file, whose name is not known here."""

IfMatch = Annotated[str, Header(max_length=100, description="The ETag of GET /cluster/queues as you know them.")]
DryRun = Annotated[bool, Query(description="Show the difference and what it would stop, and change nothing.")]


@router.put(
    "/cluster",
    responses=answers(DifferenceModel, WRITE),
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
    request: Request, account: SignedIn, context: WorkerContext, dry_run: DryRun = False, if_match: IfMatch = ""
) -> Response:
    """Change the cluster, its queues and its policy to those of a cluster file. Jobs that can go on do.

    A file that only has `queues`, `policy`, `maintenance`, `defragment`, `patience` or `recovery` changes these and
    leaves the rest as it is.
    """
    _need_admin(account)
    if media_of(request) not in ("application/json", "application/yaml"):
        raise Refusal("unsupported_media", "expected a cluster file as application/yaml or application/json")
    text, edition = text_of(await request.body()), _edition_in(if_match)
    difference, change = await _change_of(text, account, context, edition)
    if not dry_run and difference["changes"]:
        await hand_over(context, caller_of(request, account), change)
    return as_json(difference)


async def _change_of(
    text: str, account: Account, context: Context, edition: str
) -> tuple[dict[str, Any], ChangeCluster | ChangeSettings]:
    """What a file would change, and what is to be asked for to have it so."""
    try:
        cluster = live(await read_large(len(text), read_cluster, text, SOURCE, now_ms=Clock().now_ms()))
    except DocumentError:
        if not is_settings(text, SOURCE):
            raise
        difference = msgspec.json.decode(await ask(context, account.user, DifferSettings(text, SOURCE)))
        return difference, ChangeSettings(msgspec.convert(difference.pop("settings"), Settings), edition)
    return msgspec.json.decode(await ask(context, account.user, Differ(cluster))), ChangeCluster(cluster, edition)


def _edition_in(if_match: str) -> str:
    if not if_match or if_match.strip() == "*":
        return ""
    match = _ETAG.fullmatch(if_match.strip())
    if match is None:
        raise Refusal("precondition_failed", "expected in If-Match the ETag of GET /cluster/queues")
    return match[1]


@router.get("/cluster/queues", responses=answers(QueueFileModel))
async def show_queue_file(account: SignedIn, context: WorkerContext) -> Response:
    """Show the queues as a cluster file says them, to be changed and applied again with their ETag as If-Match."""
    if not account.sees(""):
        raise Refusal("forbidden", "the quotas of all queues need the role viewer of the whole cluster")
    said = (await context.cluster()).get("queue_file", [])
    edition = edition_of(said)
    return as_json({"text": _file_of(said), "edition": edition}, headers={"ETag": f'"{edition}"'})


def _file_of(said: list[dict[str, Any]]) -> str:
    import yaml

    return (
        yaml.safe_dump({"queues": said}, sort_keys=False, allow_unicode=True, default_flow_style=None) if said else ""
    )


@router.put("/policy", responses=answers(PolicyModel, WRITE))
async def apply_policy(body: PolicyBody, request: Request, account: SignedIn, context: WorkerContext) -> Response:
    """Have another policy decide from now on, and with `placement` another way to choose among places."""
    _need_admin(account)
    change = ChangePolicy(body.policy, body.placement)
    answer = await hand_over(context, caller_of(request, account), change)
    return Response(answer.body, media_type="application/json")


def _need_admin(account: Account) -> None:
    if not account.may(Role.ADMIN):
        raise Refusal("forbidden", "only an admin of the whole cluster may change it")
