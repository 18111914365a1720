"""Routes that change jobs: cancel, hold, release, resize and update them."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Request, Response

from phalanx.server.accounts.roles import Role
from phalanx.server.api.admission.queue import need_queue
from phalanx.server.api.auth import SignedIn, WorkerContext, caller_of
from phalanx.server.api.bodies import Nothing, ResizeBody, UpdateBody
from phalanx.server.api.context import Context
from phalanx.server.api.described import WRITE, answers
from phalanx.server.api.models.jobs import ChangedModel
from phalanx.server.api.pages import as_json
from phalanx.server.api.routes.jobs import Ref, changeable, hand_over, members_of, need_change
from phalanx.server.clock import wall_ms
from phalanx.server.loop.updating import times_of
from phalanx.server.loop.wire import Caller, ChangeArray, ChangeJob, ResizeJob, UpdateJobs
from phalanx.server.refusal import Refusal
from phalanx.server.store import jobs as table

router = APIRouter(tags=["jobs"])

_ETAG = re.compile(r'(?:W/)?"([0-9]{1,18})"')
IfMatch = Annotated[str, Header(max_length=100, description="The ETag of the job as you know it.")]


def _change_route(verb: str, about: str) -> None:
    """A route that has a job changed in one word."""

    async def change(
        job: Ref,
        request: Request,
        account: SignedIn,
        context: WorkerContext,
        _: Nothing | None = None,
        if_match: IfMatch = "",
    ) -> Response:
        caller = caller_of(request, account)
        members = await members_of(job, account, context)
        if members:
            _refuse_version(if_match)
            for member in members:
                need_change(member, account)
            return await _changed_array(context, caller, members, verb)
        item = await changeable(job, account, context)
        mutation = ChangeJob(item["id"], verb, _version_of(if_match), _cancel_reason(verb, item, caller))
        return await _changed(context, caller, mutation)

    change.__name__, change.__doc__ = verb, about
    router.add_api_route(f"/jobs/{{job}}:{verb}", change, methods=["POST"], responses=answers(ChangedModel, WRITE))


_change_route("cancel", "Cancel a job, or an array: it is given notice, and is gone after its grace at the latest.")
_change_route("hold", "Hold a pending job, or the members of an array: it does not start until it is released.")
_change_route("release", "Let a held job, or the members of an array, start again.")
_change_route("requeue", "Stop the attempt of a job, with notice and its grace, and make the job pending again.")
_change_route("suspend", "Hold a job and stop its attempt, with notice and its grace, until it is resumed.")
_change_route("resume", "Let a suspended job start again.")


@router.post("/jobs/{job}:resize", responses=answers(ChangedModel, WRITE))
async def resize(
    job: Ref,
    body: ResizeBody,
    request: Request,
    account: SignedIn,
    context: WorkerContext,
    if_match: IfMatch = "",
) -> Response:
    """Change how many replicas a job has: a pending one starts with them, an elastic one that runs shrinks or grows."""
    item = await changeable(job, account, context)
    mutation = ResizeJob(item["id"], body.replicas, body.min, body.role, _version_of(if_match))
    return await _changed(context, caller_of(request, account), mutation)


@router.post("/jobs/{job}:update", responses=answers(ChangedModel, WRITE))
async def update(
    job: Ref,
    body: UpdateBody,
    request: Request,
    account: SignedIn,
    context: WorkerContext,
    if_match: IfMatch = "",
) -> Response:
    """Change the priority, the queue or the times of a pending job, or of all pending members of an array.

    It keeps its place among the submissions. A job that runs is refused.
    """
    members = await members_of(job, account, context)
    if members:
        _refuse_version(if_match)
    items = members or [await changeable(job, account, context)]
    for item in items:
        need_change(item, account)
        if body.queue is not None and not account.may_change(body.queue, item["user"]):
            raise Refusal(
                "forbidden", f"you may not move job {item['id']} to the queue {body.queue!r}: ask an operator of it"
            )
    if body.queue is not None:
        await need_queue(body.queue, account, context)
    caller = caller_of(request, account)
    ids = [item["id"] for item in items if not members or item["state"] not in table.FINAL]
    role = account.role_in(body.queue if body.queue is not None else items[0]["queue"]) or Role.VIEWER
    times = times_of(body.model_dump(include=set(UpdateBody.TIMES), exclude_none=True), wall_ms())
    array = items[0]["array_of"] if members else ""
    change = UpdateJobs(ids, array, body.priority, body.queue, times, role.value, _version_of(if_match))
    changed = msgspec.json.decode((await hand_over(context, caller, change)).body)["ids"]
    return await _shown(context, changed, is_array=bool(members))


def _refuse_version(if_match: str) -> None:
    if if_match:
        raise Refusal("precondition_failed", "If-Match is about one job; the members of an array have each its own")


async def _changed_array(context: Context, caller: Caller, members: list[dict[str, Any]], verb: str) -> Response:
    """Has an array changed; shows the first member that was, with the ids of all that were."""
    array = members[0]["array_of"]
    open_still = [item["id"] for item in members if item["state"] not in table.FINAL]
    change = ChangeArray(array, open_still, verb, _cancel_reason(verb, members[0], caller))
    answer = await hand_over(context, caller, change)
    return await _shown(context, msgspec.json.decode(answer.body)["ids"], is_array=True)


def _cancel_reason(verb: str, item: dict[str, Any], caller: Caller) -> str:
    """The reason of a cancellation by another user, told to the job's own."""
    return f"cancelled by {caller.user}" if verb == "cancel" and caller.user != item["user"] else ""


async def _changed(context: Context, caller: Caller, mutation: ChangeJob | ResizeJob) -> Response:
    """Has a job changed, and shows it as it is then."""
    await hand_over(context, caller, mutation)
    return await _shown(context, [mutation.job], is_array=False)


async def _shown(context: Context, ids: list[str], is_array: bool) -> Response:
    """A job as it is now; of an array the first member that was changed, with the ids of all that were."""
    first = await context.read(table.one, ids[0])
    assert first is not None
    if is_array:
        return as_json({**first, "members": ids})
    return as_json({**first, "members": []}, headers={"ETag": f'"{first["version"]}"'})


def _version_of(if_match: str) -> int | None:
    if not if_match or if_match.strip() == "*":
        return None
    match = _ETAG.fullmatch(if_match.strip())
    if match is None:
        raise Refusal("precondition_failed", 'expected in If-Match the ETag of the job, such as "993"')
    return int(match[1])
