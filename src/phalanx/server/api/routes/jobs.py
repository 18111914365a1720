"""Routes of jobs."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request, Response

from phalanx.document.field import NAME_MAX
from phalanx.engine.state.records import JobState
from phalanx.server.accounts.roles import Account, Role
from phalanx.server.api.admission.large import read_large
from phalanx.server.api.admission.owner import owned
from phalanx.server.api.admission.queue import need_queue
from phalanx.server.api.auth import Reporting, SignedIn, WorkerContext, caller_of
from phalanx.server.api.bodies import AS_TEXT, CheckpointBody, ProgressBody
from phalanx.server.api.context import Context
from phalanx.server.api.described import LIST, WRITE, answers
from phalanx.server.api.jobfile import JOB_FILE_EXAMPLE, JOB_FILE_SCHEMA, JobReader, text_of
from phalanx.server.api.models.jobs import (
    AttemptListModel,
    IdsModel,
    JobDetailModel,
    JobListModel,
    NoticeModel,
    SaveModel,
    SubmittedModel,
    UntilModel,
)
from phalanx.server.api.pages import Cursor, Limit, as_json, as_list, place_of
from phalanx.server.api.past import PAST
from phalanx.server.api.planner import expected_start_ms
from phalanx.server.clock import wall_ms
from phalanx.server.hidden_env import without_values
from phalanx.server.loop.notices import asked_of, notice_of
from phalanx.server.loop.wire import (
    Answer,
    AskCheckpoint,
    Caller,
    Found,
    KeepToldStart,
    Mutation,
    ReportProgress,
    SubmitJobs,
)
from phalanx.server.refusal import Refusal
from phalanx.server.scaling.shown import scale_of
from phalanx.server.store import jobs as table
from phalanx.server.store.jobs import Filters, Page
from phalanx.server.store.past import attempts_with_findings
from phalanx.words.findings import found_words
from phalanx.words.losses import lost_words
from phalanx.workload.after import Circle
from phalanx.workload.job import Dependency, Job

router = APIRouter(tags=["jobs"])
_reader = JobReader()

_ID = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")
_ARRAY = re.compile(r"[0-9]{1,18}")
AT_ONCE_MS = 1_000
"""A start within this time after the submission is no forecast worth looking back on."""

STATES = [state.value for state in JobState]
PENDING = {"pending": JobState.WAITING.value}
"""Another word for a state, which filters take too."""

Ref = Annotated[str, Path(max_length=NAME_MAX, description="The id of a job, or a name that only one job has.")]
Key = Annotated[
    str, Header(max_length=200, description="Makes a repeated request harmless: it gets the answer of the first.")
]


@router.post(
    "/jobs",
    status_code=201,
    responses=answers(SubmittedModel, WRITE, 201),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": JOB_FILE_SCHEMA},
                "application/yaml": {"schema": {"type": "string"}, "example": "gpus: 8\ncommand: python train.py\n"},
            },
        }
    },
)
async def submit(
    request: Request,
    account: SignedIn,
    context: WorkerContext,
    idempotency_key: Key = "",
    forecast: Annotated[
        bool, Query(description="Say in `told_start_ms` when it will start, if that can be said soon, and keep that.")
    ] = False,
) -> Response:
    """Submit a job: the body is a job file, as JSON or YAML. Answered when it is durable."""
    if media_of(request) not in ("application/json", "application/yaml"):
        raise Refusal("unsupported_media", "expected a job file as application/json or application/yaml")
    content = await request.body()
    types = await context.gpu_types()
    read = await read_large(len(content), _reader.one, text_of(content), types, wall_ms())
    job = await owned(read, account, context)
    await need_queue(job.queue, account, context)
    job = await waiting_for(job, account, context)
    submission = _submission(account, [job], idempotency_key, content)
    answer = await hand_over(context, caller_of(request, account), submission)
    taken = msgspec.json.decode(answer.body)
    ids, item = taken["ids"], taken["first"]
    headers = {"Location": f"/api/v1/jobs/{ids[0]}", "ETag": f'"{item["version"]}"'}
    if answer.repeated:
        headers["Idempotent-Replay"] = "true"
    if forecast:
        item["told_start_ms"] = await _told_start_ms(context, caller_of(request, account), ids[0], item["submitted_ms"])
    return as_json({**item, "members": ids if len(ids) > 1 else []}, 201, headers)


async def _told_start_ms(context: Context, caller: Caller, job: str, submitted_ms: int) -> int | None:
    """The start that a submitter is told, which is kept; None if the job starts at once, or it is unknown.

    A submitter that asks again is told what was told first.
    """
    known = await context.read(table.one, job)
    if known is not None and known["told_start_ms"] is not None:
        return int(known["told_start_ms"])
    told_ms = await expected_start_ms(context, caller.user, job)
    if told_ms is None or told_ms < submitted_ms + AT_ONCE_MS:
        return None
    try:
        await hand_over(context, caller, KeepToldStart(job, told_ms))
    except Refusal:
        # The job is submitted: a receipt that could not be kept must not make that look otherwise.
        return None
    return told_ms


@router.post(
    "/jobs:batch",
    status_code=201,
    responses=answers(IdsModel, WRITE, 201),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["jobs"],
                        "additionalProperties": False,
                        "example": {"jobs": [JOB_FILE_EXAMPLE]},
                        "properties": {
                            "jobs": {
                                "type": "array",
                                "minItems": 1,
                                "maxItems": 10_000,
                                "description": AS_TEXT,
                                "items": {"anyOf": [JOB_FILE_SCHEMA, {"type": "string"}]},
                            }
                        },
                    }
                }
            },
        }
    },
)
async def submit_batch(
    request: Request, account: SignedIn, context: WorkerContext, idempotency_key: Key = ""
) -> Response:
    """Submit many jobs, all or none. They may wait for one another by name. Answered when they are durable."""
    if media_of(request) != "application/json":
        raise Refusal("unsupported_media", "expected application/json")
    content = await request.body()
    types = await context.gpu_types()
    kinds, named = await read_large(len(content), _reader.batch, content, types, wall_ms())
    names = {name for _, name in named}
    first = {kind: index for index, (kind, _) in reversed(list(enumerate(named)))}
    jobs = []
    for kind, read in enumerate(kinds):
        job = await owned(read, account, context)
        await need_queue(job.queue, account, context, first[kind])
        jobs.append(await waiting_for(job, account, context, names, first[kind]))
    submission = await read_large(len(content), _submission, account, jobs, idempotency_key, content, named)
    answer = await hand_over(context, caller_of(request, account), submission)
    headers = {"Idempotent-Replay": "true"} if answer.repeated else None
    return as_json({"ids": msgspec.json.decode(answer.body)["ids"]}, 201, headers)


@router.get("/jobs", dependencies=PAST, responses=answers(JobListModel, LIST))
async def list_jobs(
    account: SignedIn,
    context: WorkerContext,
    state: Annotated[
        str,
        Query(
            max_length=200,
            description="One state, or several with commas between; pending is another word for waiting.",
        ),
    ] = "",
    queue: Annotated[str, Query(max_length=1000, description="A queue, with all below it.")] = "",
    user: Annotated[str, Query(max_length=200)] = "",
    name: Annotated[str, Query(max_length=1000)] = "",
    kind: Annotated[Literal["training", "service", "interactive"] | None, Query()] = None,
    array_of: Annotated[str, Query(max_length=100)] = "",
    label: Annotated[str, Query(max_length=1000, description="As key=value.")] = "",
    others: Annotated[bool, Query(description="With what may be seen of the live jobs of other tenants.")] = False,
    order: Annotated[Literal["newest", "oldest"], Query()] = "newest",
    limit: Limit = 100,
    cursor: Cursor = "",
) -> Response:
    """List the jobs you may see, page by page."""
    states = [PENDING.get(word, word) for word in state.split(",") if word]
    for word in states:
        if word not in STATES:
            known = ", ".join([*PENDING, *(each for each in STATES if each not in PENDING.values())])
            raise Refusal("invalid", f"there is no state {word!r} (there is: {known})")
    if others and (user or name or kind or array_of or label):
        raise Refusal("invalid", "with others=true only state and queue may be asked for")
    filters = Filters(
        queues=[""] if others else account.seen_queues,
        states=states,
        queue=queue,
        user=user,
        name=name,
        kind=kind or "",
        array_of=array_of,
        label=_label_of(label),
    )
    if others:
        filters = filters._replace(states=[word for word in states or STATES if word not in table.FINAL])
    items, place = await context.read(table.page, filters, Page(place_of(cursor), order == "newest", limit))
    return as_list([_shown(item, account) for item in items] if others else items, place)


@router.get("/jobs/{job}", dependencies=PAST, responses=answers(JobDetailModel))
async def show_job(job: Ref, account: SignedIn, context: WorkerContext) -> Response:
    """Show a job: what was asked for, where it stands, its present attempt, and what it said of its progress last.

    To callers that may not change the job, each value of a variable in `spec.execution.env` is `…`.
    """
    item = await find(job, account, context)
    spec = await context.read(table.spec_of, item["id"])
    if not account.may_change(item["queue"], item["user"]):
        spec = without_values(spec)
    attempts = await context.read(attempts_with_findings, item["id"])
    present = attempts[-1] if attempts and attempts[-1]["phase"] != "ended" else None
    progress = await context.read(table.progress_of, item["id"])
    asked = await context.read(asked_of, f"{item['id']}/{present['number']}") if present else None
    save = {"attempt": present["number"], **msgspec.structs.asdict(asked)} if present and asked else None
    scale = await context.read(scale_of, item["id"], spec)
    told = {
        "attempt": present,
        "progress": progress,
        "save": save,
        "scale": scale,
        "lost": lost_words(attempts),
        "found": found_words(attempts),
    }
    shown = {**item, "spec": spec, **told}
    return as_json(shown, headers={"ETag": f'"{item["version"]}"'})


@router.get("/jobs/{job}/attempts", dependencies=PAST, responses=answers(AttemptListModel))
async def list_attempts(job: Ref, account: SignedIn, context: WorkerContext) -> Response:
    """List all attempts at a job, the oldest first."""
    item = await find(job, account, context)
    return as_list(await context.read(attempts_with_findings, item["id"]))


@router.post("/jobs/{job}:checkpoint", responses=answers(UntilModel, WRITE))
async def checkpoint(
    job: Ref, request: Request, account: SignedIn, context: WorkerContext, body: CheckpointBody | None = None
) -> Response:
    """Ask a running job to save its work. It hears of it when it next reports its progress."""
    item = await changeable(job, account, context)
    within_ms = 1000 * (body or CheckpointBody()).within_s
    asked = msgspec.json.decode((await _asked_to_save(item, within_ms, request, account, context)).body)
    return as_json({"until_ms": asked["until_ms"]})


@router.post("/jobs/{job}:save", responses=answers(SaveModel, WRITE))
async def save(
    job: Ref, request: Request, account: SignedIn, context: WorkerContext, body: CheckpointBody | None = None
) -> Response:
    """Ask a running job that reports its progress to save its work now.

    It hears of it within about a second, saves after one of its next steps and reports that. `save` of the job tells
    how far it is. A job that has never reported progress is refused.
    """
    item = await changeable(job, account, context)
    if item["state"] == JobState.RUNNING and await context.read(table.progress_of, item["id"]) is None:
        raise Refusal(
            "conflict",
            f"job {item['id']} does not report progress; it cannot be asked to save. "
            "Have it use phalanx.train.checkpoint, or send reports to PHALANX_PROGRESS_URL",
        )
    within_ms = 1000 * (body or CheckpointBody()).within_s
    asked = msgspec.json.decode((await _asked_to_save(item, within_ms, request, account, context)).body)
    return as_json({**asked, "from_step": None, "durable_step": None})


async def _asked_to_save(
    item: dict[str, Any], within_ms: int, request: Request, account: Account, context: Context
) -> Answer:
    return await hand_over(context, caller_of(request, account), AskCheckpoint(item["id"], within_ms))


@router.get("/jobs/{job}/progress", responses=answers(NoticeModel))
async def hear_notice(job: Ref, attempt: Reporting, context: WorkerContext) -> Response:
    """Hear whether to save the work now, by the token of an attempt that has nothing new to report."""
    if job != attempt.job:
        raise Refusal("forbidden", f"this token is for job {attempt.job} only")
    return as_json(await context.read(notice_of, f"{attempt.job}/{attempt.attempt}", wall_ms()))


@router.post("/jobs/{job}/progress", responses=answers(NoticeModel, WRITE))
async def report_progress(
    job: Ref, body: ProgressBody, request: Request, attempt: Reporting, context: WorkerContext
) -> Response:
    """Report how far a running attempt is, by the token of that attempt; hear whether to save the work now."""
    if job != attempt.job:
        raise Refusal("forbidden", f"this token is for job {attempt.job} only")
    caller = Caller(f"job {attempt.job}/{attempt.attempt}", "", request.client.host if request.client else "")
    said = body.model_dump()
    metrics = {name: value for name, value in body.metrics.items() if value is not None}
    diverged = tuple(name for name, value in body.metrics.items() if value is None)
    more = {"metrics": metrics, "diverged": diverged, "incarnation": attempt.incarnation}
    found = {
        "findings": [Found(**each) for each in said["findings"]],
        "tells_progress": body.model_fields_set != {"findings"},
    }
    report = ReportProgress(attempt.job, attempt.attempt, **{**said, **more, **found})
    answer = await hand_over(context, caller, report)
    return Response(answer.body, media_type="application/json")


async def find(ref: str, account: Account, context: Context) -> dict[str, Any]:
    """The job of an id or a unique name, if the account may see it; what it may not see is not there."""
    if _ID.fullmatch(ref):
        item = await context.read(table.one, ref)
        found = [item] if item is not None else []
    else:
        found = await context.read(table.named, ref, account.seen_queues)
    seen = [item for item in found if account.sees(item["queue"])]
    if len(seen) != 1 or (seen[0]["array_of"] and seen[0]["id"] != ref):
        members = await members_of(ref, account, context)
        if len(members) > 1 or (members and not seen):
            ids = [item["id"] for item in members]
            several = f"{ids[0]}…{ids[-1]}" if len(ids) > 1 else ids[0]
            raise Refusal("conflict", f"{ref!r} is an array: say which member, of {several}", {"ids": ids[:100]})
    if not seen:
        raise Refusal("not_found", f"there is no job {ref!r}")
    if len(seen) > 1:
        ids = [item["id"] for item in seen]
        raise Refusal("conflict", f"several jobs are named {ref!r}: say which of {', '.join(ids)}", {"ids": ids})
    return seen[0]


async def members_of(ref: str, account: Account, context: Context) -> list[dict[str, Any]]:
    """The members of the array of an id, or of a name that the members of one array have; none if it is no array."""
    array = ref if _ARRAY.fullmatch(ref) else ""
    if not _ID.fullmatch(ref):
        named = await context.read(table.named, ref, account.seen_queues)
        arrays = {item["array_of"]: None for item in named}
        array = next(iter(arrays)) if len(arrays) == 1 else ""
    members = await context.read(table.members, array) if array else []
    return [item for item in members if account.sees(item["queue"])]


async def changeable(ref: str, account: Account, context: Context) -> dict[str, Any]:
    """The job of an id or a unique name, if the account may change it."""
    item = await find(ref, account, context)
    need_change(item, account)
    return item


def need_change(item: dict[str, Any], account: Account) -> None:
    """Refuses an account that may look at a job and not change it."""
    if not account.may_change(item["queue"], item["user"]):
        raise Refusal("forbidden", f"job {item['id']} belongs to {item['user'] or 'nobody'}: ask them or an operator")


async def hand_over(context: Context, caller: Caller, body: Mutation) -> Answer:
    """Has the loop make a change. What it refuses is raised."""
    answer = await context.engine.ask(caller, body)
    if answer.status >= 400:
        refusal = msgspec.json.decode(answer.body)
        raise Refusal(refusal["code"], refusal["message"], refusal["detail"])
    return answer


def _submission(
    account: Account, jobs: list[Job], key: str, content: bytes, named: Sequence[tuple[int, str]] = ()
) -> SubmitJobs:
    digest = sha256(content).hexdigest() if key else ""
    return SubmitJobs(jobs, key, digest, list(named), roles_in(account, jobs))


def roles_in(account: Account, jobs: Sequence[Job]) -> list[str]:
    """The role of an account in the queue of each job."""
    return [(account.role_in(job.queue) or Role.VIEWER).value for job in jobs]


async def waiting_for(job: Job, account: Account, context: Context, beside: Container[str] = (), index: int = 0) -> Job:
    """A job that waits for jobs by their ids, whether it names them, or an array and so all its members.

    Jobs that are submitted beside it are left as they are named: they have no ids yet. A job that the caller may not
    see is refused as one that there is not: when it ends is not told. `index` is its place among those beside it.
    """
    if not job.after:
        return job
    after: list[Dependency] = []
    for dependency in job.after:
        named = dependency.job in beside and not _ID.fullmatch(dependency.job)
        ids = [dependency.job] if named else await _ids_of(dependency.job, job, account, context, index)
        after += (replace(dependency, job=other) for other in ids)
    return replace(job, after=tuple(after))


async def _ids_of(ref: str, job: Job, account: Account, context: Context, index: int) -> list[str]:
    if _ID.fullmatch(ref) and (item := await context.read(table.one, ref)) is not None:
        if not account.sees(item["queue"]):
            raise Refusal("invalid", f"the job waits for job {ref!r}, which does not exist", {"index": index})
        return [ref]
    members = await members_of(ref, account, context)
    if members:
        return [item["id"] for item in members]
    if _ID.fullmatch(ref):
        # An id that no job has is refused with all else that is wrong with the job.
        return [ref]
    try:
        return [(await find(ref, account, context))["id"]]
    except Refusal as refusal:
        if refusal.code == "not_found" and ref == job.name:
            raise Refusal("invalid", str(Circle(ref, [ref, ref]))) from None
        raise


def _shown(item: dict[str, Any], account: Account) -> dict[str, Any]:
    """A job, or what may be seen of one of another tenant."""
    if account.sees(item["queue"]):
        return item
    return {
        "queue": item["queue"],
        "gpus": item["gpus"],
        "expected_end_ms": item["expected_end_ms"],
        "redacted": True,
    }


def _label_of(text: str) -> tuple[str, str] | None:
    if not text:
        return None
    key, equals, value = text.partition("=")
    if not equals:
        raise Refusal("invalid", "expected label=KEY=VALUE")
    return key, value


def media_of(request: Request) -> str:
    """What a request says its body is."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
