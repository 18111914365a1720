"""Reasons: why a job is pending."""

from __future__ import annotations

from enum import StrEnum

from phalanx.placement.placement import Lack


class Reason(StrEnum):
    """The one dominant reason why a job waits, from the most lasting to the most passing."""

    NEVER_FITS = "never_fits"
    HELD = "held"
    SCALED_TO_ZERO = "scaled_to_zero"
    DEPENDENCY_FAILED = "dependency_failed"
    DEPENDENCY = "dependency"
    BEGIN_TIME = "begin_time"
    BACKOFF = "backoff"
    ARRAY_LIMIT = "array_limit"
    BUDGET = "budget"
    QUOTA = "quota"
    BEHIND = "behind"
    UNHEALTHY = "unhealthy"
    GPUS = "gpus"
    AMOUNT = "amount"
    TOPOLOGY = "topology"
    FRAGMENTED = "fragmented"
    RESERVED = "reserved"
    MAINTENANCE = "maintenance"
    MAKING_ROOM = "making_room"
    PREPARING = "preparing"
    UNDECIDED = "undecided"


LACK_REASON = {
    Lack.NEVER: Reason.NEVER_FITS,
    Lack.UNHEALTHY: Reason.UNHEALTHY,
    Lack.AMOUNT: Reason.AMOUNT,
    Lack.GPUS: Reason.GPUS,
    Lack.TOPOLOGY: Reason.TOPOLOGY,
    Lack.FRAGMENTED: Reason.FRAGMENTED,
}
