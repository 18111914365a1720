"""Actions: what a backend is asked to do. An id makes each idempotent and fences off older leaders and attempts."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from phalanx.cluster.mig import Instance
from phalanx.placement.placement import Placement


class ActionId(NamedTuple):
    """The leader's term, the attempt of a job that it is for, and the number of the request for it."""

    term: int
    job: str
    attempt: int
    seq: int


class Start(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Start every task of the attempt at its slot; all of them, or report failure and leave none running."""

    id: ActionId
    placement: Placement


class Stop(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Give notice to every task, wait up to the grace, end what is left, and report once all devices are free."""

    id: ActionId
    grace_ms: int
    reason: str


class Suspend(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Freeze every task where it is, and leave its devices to others for a while.

    With `host_mb` its device memory goes to the memory of its node, where so much is booked for it, and its devices are
    free once this is done; if that cannot be, report failure and leave every task running.
    """

    id: ActionId
    host_mb: int = 0


class Resume(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Let a suspended attempt go on. One whose devices others have had goes on with those of `placement`; all of it, or
    report failure and leave none running.
    """

    id: ActionId
    placement: Placement | None = None


class Resize(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Bring a running attempt to another placement that keeps the slots both have in common.

    Where only what shares are worth differs (see `in_place`), every task stays as it is.
    """

    id: ActionId
    placement: Placement


class Repartition(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Cut a device into these MIG instances, or (None) switch MIG off. Instances both have in common keep running."""

    id: ActionId
    node: str
    device: int
    layout: tuple[Instance, ...] | None


Action = Start | Stop | Suspend | Resume | Resize | Repartition
