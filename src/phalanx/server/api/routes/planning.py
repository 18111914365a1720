"""Routes that ask the planner: why, plan, what-if, reservations, snapshot."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from phalanx.server.accounts.roles import Account, Role
from phalanx.server.api.admission.large import LargeRoute, read_large
from phalanx.server.api.admission.queue import need_queue
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.bodies import PlanBody, WhatIfBody
from phalanx.server.api.context import SHOWN, Context
from phalanx.server.api.described import READ, WRITE, answers, content
from phalanx.server.api.jobfile import JobReader
from phalanx.server.api.models.planning import PlanModel, ReservationListModel, WhatIfModel, WhyModel
from phalanx.server.api.pages import as_json, as_list
from phalanx.server.api.past import PAST
from phalanx.server.api.planner import ask
from phalanx.server.api.routes.jobs import Ref, find, roles_in, waiting_for
from phalanx.server.clock import wall_ms
from phalanx.server.planner.questions import (
    Foresee,
    ListReservations,
    PlanJobs,
    TakeSnapshot,
    Why,
)
from phalanx.server.refusal import Refusal
from phalanx.server.store import nodes as node_table
from phalanx.server.store.past import attempts_with_findings
from phalanx.words.findings import found_words
from phalanx.words.losses import lost_words
from phalanx.workload.job import Job

router = APIRouter(tags=["planning"], route_class=LargeRoute)
_reader = JobReader()


@router.get("/jobs/{job}/why", dependencies=PAST, responses=answers(WhyModel))
async def why(job: Ref, account: SignedIn, context: WorkerContext) -> Response:
    """Say why a job is pending: one dominant reason, the counts behind it, and when it is expected to start."""
    item = await find(job, account, context)
    told = msgspec.json.decode(await ask(context, account.user, Why(item["id"], list(account.seen_queues))))
    tries = await context.read(attempts_with_findings, item["id"]) if item["attempts"] else []
    return as_json({**told, "lost": lost_words(tries), "found": found_words(tries)})


@router.post("/plan", responses=answers(PlanModel, WRITE))
async def plan(body: PlanBody, request: Request, account: SignedIn, context: WorkerContext) -> Response:
    """Decide where jobs would go if they were submitted now, on the live state, and change nothing."""
    jobs = await _jobs(body.jobs, request, account, context)
    told = await ask(context, account.user, PlanJobs(jobs, list(account.seen_queues), roles_in(account, jobs)))
    return Response(told, media_type="application/json")


@router.post("/what-if", responses=answers(WhatIfModel, WRITE))
async def what_if(body: WhatIfBody, request: Request, account: SignedIn, context: WorkerContext) -> Response:
    """Show two futures of the live state: as it is, and with something changed."""
    if not account.sees(""):
        raise Refusal("forbidden", "what-if tells of all users' jobs: it needs the role viewer of the whole cluster")
    jobs = await _jobs(body.jobs, request, account, context)
    base, changed = await asyncio.gather(
        ask(context, account.user, Foresee()),
        ask(context, account.user, Foresee(jobs, body.fail, body.policy or "", body.add_nodes, body.like)),
    )
    return as_json({"base": msgspec.json.decode(base), "changed": msgspec.json.decode(changed)})


@router.get("/reservations", dependencies=PAST, responses=answers(ReservationListModel))
async def list_reservations(account: SignedIn, context: WorkerContext) -> Response:
    """List the reservations: for which job, on which nodes, from when on."""
    moment = SHOWN.get()
    if moment is not None:
        items = moment.told.reservations
    else:
        items = msgspec.json.decode(await ask(context, account.user, ListReservations()))["items"]
    seen = await _seen(context, account, [item["job"] for item in items])
    return as_list([item for item in items if item["job"] in seen])


@router.get("/snapshot", responses=content("application/octet-stream", READ))
async def snapshot(account: SignedIn, context: WorkerContext) -> Response:
    """Download the State as it is, for `phalanx why --state` and for replays elsewhere.

    Each value of a variable of a job is `…` in it, and its digest begins anew.
    """
    if not account.may(Role.ADMIN):
        raise Refusal("forbidden", "a snapshot holds the jobs of all users: only an admin may take one")
    return Response(await ask(context, account.user, TakeSnapshot()), media_type="application/octet-stream")


async def _jobs(files: list[dict[str, Any] | str], request: Request, account: Account, context: Context) -> list[Job]:
    size = len(await request.body())
    types = await context.gpu_types()
    jobs = await read_large(size, _reader.many, files, types, wall_ms())
    for index, job in enumerate(jobs):
        if not account.sees(job.queue):
            raise Refusal("forbidden", f"you may not look at the queue {job.queue!r}")
        await need_queue(job.queue, account, context, index)
    names = {job.name for job in jobs}
    return [await waiting_for(job, account, context, names, index) for index, job in enumerate(jobs)]


async def _seen(context: Context, account: Account, ids: list[str]) -> set[str]:
    """Those of some jobs that the account may see."""
    wanted = [job for job in ids if job]
    if not wanted:
        return set()
    queues = await context.read(node_table.queues_of, wanted)
    return {job for job, queue in queues.items() if account.sees(queue)}
