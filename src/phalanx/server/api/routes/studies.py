"""Routes of studies: traces are uploaded, runs in virtual time begun, followed, cancelled, and their answers read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from errno import EDQUOT, ENOSPC
from pathlib import Path as FilePath
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response

from phalanx.server.accounts.roles import Account, Role, Scope
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.bodies import StudyBody
from phalanx.server.api.context import Context
from phalanx.server.api.described import READ, WRITE, answers, content
from phalanx.server.api.models.base import ErrorModel
from phalanx.server.api.models.studies import (
    StudyAnswerModel,
    StudyListModel,
    StudyModel,
    UploadListModel,
    UploadModel,
)
from phalanx.server.api.pages import as_json, as_list
from phalanx.server.clock import wall_ms
from phalanx.server.refusal import Refusal
from phalanx.server.studies.asked import UPLOAD, Asked
from phalanx.server.studies.check import need_readable
from phalanx.server.studies.limits import UNDER_WAY_OF_ONE
from phalanx.server.studies.shelf import ANSWER, CANCEL, REMOVED, REPORT, Shelf, Study, StudyState
from phalanx.server.studies.uploads import Arriving, Upload, Uploads, need_plain

router = APIRouter(tags=["studies"])

PIECE_BYTES = 1 << 20
HISTORY_NAME = "history of this cluster"

Found = TypeVar("Found")
StudyId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]
UploadId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]
Name = Annotated[str, Query(max_length=300, description="What the file is called; it is only shown.")]


@router.post(
    "/uploads",
    status_code=201,
    responses=answers(UploadModel, WRITE, 201),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload(request: Request, account: SignedIn, context: WorkerContext, name: Name = "") -> Response:
    """Upload a trace for studies: any text that `phalanx simulate --trace` reads, as it is, of at most 256 MiB.

    It is at most 1,000,000 lines, unless it is a list in JSON. Nothing that is packed is taken, which Parquet is, too.
    """
    _need_to_begin(account)
    need_plain(request.headers.get("content-type", ""), request.headers.get("content-encoding", ""))
    arriving = await _on_disk(_uploads(context).begin, account.user, name, wall_ms())
    with arriving:
        await _receive(request, arriving)
        found = await _on_disk(arriving.keep)
    return as_json(_shown_upload(found), 201)


@router.get("/uploads", responses=answers(UploadListModel))
async def list_uploads(account: SignedIn, context: WorkerContext) -> Response:
    """List your uploads; an operator of the whole cluster sees those of all users."""
    _need_eyes(account)
    found = await _on_disk(_uploads(context).all)
    return as_list([_shown_upload(each) for each in reversed(found) if _is_of(account, each.user)])


@router.delete("/uploads/{upload_id}", status_code=204, responses=answers(ErrorModel, WRITE))
async def remove_upload(upload_id: UploadId, account: SignedIn, context: WorkerContext) -> Response:
    """Remove an upload. Studies that were begun with it go on."""
    _need_to_begin(account)
    found = await _own_upload(upload_id, account, context)
    await _on_disk(_uploads(context).remove, found.id)
    return Response(status_code=204)


@router.post("/studies", status_code=201, responses=answers(StudyModel, WRITE, 201))
async def begin_study(body: StudyBody, account: SignedIn, context: WorkerContext) -> Response:
    """Begin a study: runs of a trace under several policies, or the search for how many nodes hold a target.

    It runs in a process of its own, which has 2 GiB of memory and an hour. Of one user two may be under way.
    """
    _need_to_begin(account)
    source, _, upload_id = body.source.partition(":") if body.source.startswith(UPLOAD) else (body.source, "", "")
    given = await _own_upload(upload_id, account, context) if upload_id else None
    asked = Asked(
        user=account.user,
        created_ms=wall_ms(),
        trace=given.name if given else HISTORY_NAME if source == "history" else source,
        source=source,
        **body.model_dump(exclude={"source"}),
    )
    await _on_disk(need_readable, asked)
    name = await _on_disk(_put, context, asked, given)
    return as_json(_shown(await _own(name, account, context)), 201)


@router.get("/studies", responses=answers(StudyListModel))
async def list_studies(account: SignedIn, context: WorkerContext) -> Response:
    """List your studies; an operator of the whole cluster sees those of all users."""
    _need_eyes(account)
    found = await _on_disk(_shelf(context).studies)
    return as_list([_shown(each) for each in reversed(found) if _is_of(account, each.asked.user)])


@router.get("/studies/{study}", responses=answers(StudyModel))
async def show_study(study: StudyId, account: SignedIn, context: WorkerContext) -> Response:
    """Show a study, and how far it is."""
    return as_json(_shown(await _own(study, account, context)))


@router.get("/studies/{study}/answer", responses=answers(StudyAnswerModel))
async def show_answer(study: StudyId, account: SignedIn, context: WorkerContext) -> Response:
    """Show what a study came to, once it is done."""
    found = await _done(study, account, context)
    return Response(await _file(context, found, ANSWER), media_type="application/json")


@router.get("/studies/{study}/report", responses=content("text/html", READ))
async def download_report(study: StudyId, account: SignedIn, context: WorkerContext) -> Response:
    """Download the report of a study that compares policies, a page with charts that needs no network."""
    found = await _done(study, account, context)
    if not found.has_report:
        raise Refusal(
            "not_found", "this study has no report: of capacity there is none, others need plotly on the server"
        )
    # Never shown as a page of this server: its charts are drawn by scripts, which pages of this server may not bring.
    headers = {"Content-Disposition": f'attachment; filename="study-{found.id}.html"'}
    return Response(await _file(context, found, REPORT), headers=headers, media_type="text/html")


@router.post("/studies/{study}:cancel", responses=answers(StudyModel, WRITE))
async def cancel_study(study: StudyId, account: SignedIn, context: WorkerContext) -> Response:
    """Cancel a study: its process is ended within a second. One that has ended stays as it is."""
    _need_to_begin(account)
    found = await _own(study, account, context)
    if found.is_under_way:
        await _on_disk(_shelf(context).mark, found.id, CANCEL)
    return as_json(_shown(found))


@router.delete("/studies/{study}", status_code=204, responses=answers(ErrorModel, WRITE))
async def remove_study(study: StudyId, account: SignedIn, context: WorkerContext) -> Response:
    """Remove a study with all it came to; one that is under way is cancelled."""
    _need_to_begin(account)
    found = await _own(study, account, context)
    await _on_disk(_shelf(context).mark, found.id, REMOVED)
    return Response(status_code=204)


async def _receive(request: Request, arriving: Arriving) -> None:
    """Takes the body in pieces: the disk is written to beside everything else, and no more than a piece is held.

    What is refused is read to its end all the same: a browser that still sends reads no answer.
    """
    piece = bytearray()
    refusal: Refusal | None = None
    async for part in request.stream():
        if refusal is not None:
            continue
        piece += part
        if len(piece) >= PIECE_BYTES:
            refusal = await _refusal_of(arriving, bytes(piece))
            piece.clear()
    refusal = refusal or (await _refusal_of(arriving, bytes(piece)) if piece else None)
    if refusal is not None:
        raise refusal


async def _refusal_of(arriving: Arriving, piece: bytes) -> Refusal | None:
    try:
        await _on_disk(arriving.take, piece)
    except Refusal as refusal:
        return refusal
    return None


def _put(context: Context, asked: Asked, given: Upload | None) -> str:
    shelf = _shelf(context)
    under_way = [each for each in shelf.studies() if each.asked.user == asked.user and each.is_under_way]
    if len(under_way) >= UNDER_WAY_OF_ONE:
        message = f"{UNDER_WAY_OF_ONE} of your studies are under way: wait for one of them, or cancel it"
        raise Refusal("rate_limited", message, {"retry_after_s": 10})
    try:
        return shelf.put(asked, _uploads(context).content(given) if given else None)
    except FileNotFoundError:
        raise Refusal("not_found", "the upload has been removed meanwhile: upload the trace again") from None


async def _own(name: str, account: Account, context: Context) -> Study:
    """A study that the account may look at. Of others it is not even told that they are there."""
    _need_eyes(account)
    found = await _on_disk(_shelf(context).study, name)
    if found is None or not _is_of(account, found.asked.user):
        raise Refusal("not_found", f"you have no study {name!r}: studies are kept for a week")
    return found


async def _done(name: str, account: Account, context: Context) -> Study:
    found = await _own(name, account, context)
    if found.course.state is not StudyState.DONE:
        why = f"; {found.course.error}" if found.course.error else ""
        raise Refusal("conflict", f"the study has no answer: it is {found.course.state}{why}")
    return found


async def _own_upload(name: str, account: Account, context: Context) -> Upload:
    found = await _on_disk(_uploads(context).one, name)
    if found is None or not _is_of(account, found.user):
        raise Refusal("not_found", f"you have no upload {name!r}: uploads are kept for a day")
    return found


async def _file(context: Context, study: Study, name: str) -> bytes:
    path: FilePath = _shelf(context).folder(study.id) / name
    try:
        return await _on_disk(path.read_bytes)
    except FileNotFoundError:
        raise Refusal("not_found", "the study has been removed meanwhile") from None


async def _on_disk(act: Callable[..., Found], *arguments: object) -> Found:
    """Does something with files beside everything else."""
    try:
        return await asyncio.to_thread(act, *arguments)
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):
            raise Refusal("storage_full", "the disk of the server is full: nothing was kept") from error
        raise


def _need_eyes(account: Account) -> None:
    if not account.sees(""):
        raise Refusal("forbidden", "studies tell of the whole cluster: they need the role viewer of the whole cluster")


def _need_to_begin(account: Account) -> None:
    _need_eyes(account)
    if Scope.WRITE not in account.scopes:
        raise Refusal("forbidden", "a study takes processor and disk: it needs a token with the scope write")


def _is_of(account: Account, user: str) -> bool:
    return user == account.user or account.may(Role.OPERATOR)


def _shelf(context: Context) -> Shelf:
    return Shelf(context.options.file("studies"))


def _uploads(context: Context) -> Uploads:
    return Uploads(context.options.file("studies"))


def _shown_upload(found: Upload) -> dict[str, Any]:
    return {"id": found.id, "name": found.name, "user": found.user, "bytes": found.bytes} | {
        "lines": found.lines,
        "created_ms": found.created_ms,
    }


def _shown(study: Study) -> dict[str, Any]:
    asked, course, progress = study.asked, study.course, study.progress
    return {
        "id": study.id,
        "kind": asked.kind,
        "user": asked.user,
        "created_ms": asked.created_ms,
        "state": course.state.value,
        "began_ms": course.began_ms,
        "ended_ms": course.ended_ms,
        "error": course.error,
        "done": progress.done,
        "total": progress.total,
        "text": progress.text,
        "trace": asked.trace,
        "source": asked.source,
        "own_cluster": not asked.cluster,
        "policies": asked.policies,
        "targets": asked.targets,
        "load": asked.load,
        "faults": asked.faults,
        "seeds": asked.seeds,
        "has_report": study.has_report,
    }
