"""Routes of devices: the map, frames of one number a device, legends, and one device at a time."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Header, Path, Query, Response

from phalanx.document.field import NAME_MAX
from phalanx.server.accounts.roles import Account
from phalanx.server.api.auth import SignedIn, WorkerContext
from phalanx.server.api.context import Context
from phalanx.server.api.described import READ, answers, content
from phalanx.server.api.overview import models
from phalanx.server.api.overview.board import NOTHING, Board
from phalanx.server.api.overview.frames import UNKNOWN, Colour, Frame, Painter
from phalanx.server.api.pages import as_json, as_list
from phalanx.server.api.past import PAST
from phalanx.server.api.routes.nodes import need_eyes
from phalanx.server.figures.states import HEALTHS, STATES
from phalanx.server.refusal import Refusal
from phalanx.server.view.devices import Device, Part

router = APIRouter(tags=["cluster"])

FRAMES_KEPT = 64
AGES_MS = 1_000
"""How old a frame may be that is coloured by age."""

CACHED = {"Cache-Control": "private, no-cache"}
"""A browser may keep it, and asks each time whether it is still true."""

Colouring = Annotated[Colour, Query(description="What the numbers stand for.")]
Width = Annotated[
    int, Query(ge=1, le=2, description="Bytes a device, the lowest first: with 2 there is a number for 65,534 jobs.")
]
IfNoneMatch = Annotated[str, Header(max_length=1000, description="The ETag of the answer that you have.")]


@router.get("/devices/map", dependencies=PAST, responses=answers(models.DeviceMapModel))
async def show_map(account: SignedIn, context: WorkerContext, if_none_match: IfNoneMatch = "") -> Response:
    """Show where every GPU lies. It seldom changes: ask with `If-None-Match`, and hear 304."""
    need_eyes(account)
    board = await context.board.refresh(context)
    headers = {**CACHED, "ETag": f'"{board.version}"'}
    if f'"{board.version}"' in if_none_match:
        return Response(status_code=304, headers=headers)
    told = {
        "version": board.version,
        "levels": board.levels,
        "devices": board.devices,
        "virtual_clusters": board.virtual_clusters,
        "nodes": [place._asdict() for place in board.places],
    }
    return as_json(told, headers=headers)


@router.get("/devices/frame", dependencies=PAST, responses=content("application/octet-stream", READ))
async def show_frame(
    account: SignedIn, context: WorkerContext, colour: Colouring = "state", width: Width = 1
) -> Response:
    """Read one number for every GPU, in the order of the map, one byte each or two.

    By state: 0 idle, 1 allocated, 2 busy, 3 reserved, 4 draining, 5 failed, 6 suspended. By utilization: 0 to 100, 255
    unknown. By job, queue, user, health, age or virtual cluster: a place in the legend. `X-Map-Version` and
    `X-Legend-Version` name the map and the legend that belong to it, `X-Seq` the record up to which it is true.
    """
    need_eyes(account)
    board = await context.board.refresh(context)
    frame = _painted(context, board, account, colour, width)
    headers = {
        "X-Map-Version": str(board.version),
        "X-Legend-Version": str(frame.version),
        "X-Seq": str(board.seq),
    }
    return Response(frame.content, headers=headers, media_type="application/octet-stream")


@router.get("/devices/legend", dependencies=PAST, responses=answers(models.LegendModel))
async def show_legend(
    account: SignedIn, context: WorkerContext, colour: Colouring = "state", width: Width = 1
) -> Response:
    """Show what the numbers of a frame stand for. Jobs that you may not look at are `others`."""
    need_eyes(account)
    board = await context.board.refresh(context)
    frame = _painted(context, board, account, colour, width)
    values = Painter(board, board.outlook(context), account, context.now_ms(), width).legend(colour, frame)
    return as_json({"version": frame.version, "colour": colour, "values": values})


@router.get("/devices/shared", dependencies=PAST, responses=answers(models.SharedDeviceListModel))
async def list_shared(account: SignedIn, context: WorkerContext) -> Response:
    """List the GPUs that are shared or cut into MIG instances, with the parts that tasks have."""
    need_eyes(account)
    board = await context.board.refresh(context)
    return as_list(
        [
            {"node": node.name, "index": index, **_shared(board, device, account)}
            for node in board.nodes
            for index, device in enumerate(node.devices)
            if device.parts or device.instances
        ]
    )


@router.get("/devices/{node}/{index}", dependencies=PAST, responses=answers(models.DeviceModel))
async def show_device(
    node: Annotated[str, Path(max_length=NAME_MAX, description="The name of a node.")],
    index: Annotated[int, Path(ge=0, le=1_000_000, description="Which of its GPUs.")],
    account: SignedIn,
    context: WorkerContext,
) -> Response:
    """Show a GPU: what it is doing, for which jobs, and how it is shared."""
    need_eyes(account)
    board = await context.board.refresh(context)
    first = board.first.get(node)
    place = next((place for place in board.places if place.name == node), None)
    if first is None or place is None:
        raise Refusal("not_found", f"there is no node {node!r}")
    if index >= place.devices:
        raise Refusal("not_found", f"node {node} has {place.devices} GPUs, numbered from 0; there is no {index}")
    devices = board.nodes[board.places.index(place)].devices
    device = devices[index] if index < len(devices) else NOTHING
    number = first + index
    state, health, load = (
        _painted(context, board, account, colour, 1).content[number] for colour in ("state", "health", "utilization")
    )
    seen = [job for job in device.jobs if job in board.holders and account.sees(board.holders[job].queue)]
    return as_json(
        {
            "node": node,
            "index": index,
            "number": number,
            "model": place.model,
            "memory_gb": place.memory_gb,
            "state": STATES[state],
            "health": HEALTHS[health],
            "utilization": None if load == UNKNOWN else load,
            "jobs": [_job(board, job) for job in seen],
            "other_jobs": len(device.jobs) - len(seen),
            **_shared(board, device, account),
        }
    )


def _painted(context: Context, board: Board, account: Account, colour: Colour, width: int) -> Frame:
    """A frame; one that was painted for the same eyes of the same devices is kept."""
    outlook = board.outlook(context)
    now_ms = context.now_ms()
    stamp = (board.seq, board.version, outlook.now_ms, now_ms // AGES_MS if colour == "age" else 0)
    key = (colour, width, tuple(account.seen_queues))
    known = board.frames.get(key)
    if known is not None and known[0] == stamp:
        kept: Frame = known[1]
        return kept
    frame = Painter(board, outlook, account, now_ms, width).paint(colour)
    if len(board.frames) >= FRAMES_KEPT:
        board.frames.clear()
    board.frames[key] = (stamp, frame)
    return frame


def _job(board: Board, job: str) -> dict[str, Any]:
    holder = board.holders[job]
    return {
        "id": job,
        "name": holder.name,
        "queue": holder.queue,
        "user": holder.user,
        "running_since_ms": holder.running_since_ms,
    }


def _shared(board: Board, device: Device, account: Account) -> dict[str, Any]:
    def part(each: Part) -> dict[str, Any]:
        told = msgspec.structs.asdict(each)
        holder = board.holders.get(each.job)
        if holder is None or not account.sees(holder.queue):
            told |= {"job": None, "rank": 0}
        return told

    instances = [{"offset": offset, "profile": profile} for offset, profile in device.instances]
    return {"parts": [part(each) for each in device.parts], "instances": instances}
