"""Shares: what a job asks of each device when it does not ask for the whole of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

PERMILLE_MAX = 1000
PERCENT_MAX = 100
TURNS_MIN, TURNS_MAX = 2, 64
"""One turn is the whole device; past 64 a turn would come round too seldom to be worth its resident memory."""

_MIG_PROFILE = re.compile(r"[1-9]\d*g\.[1-9]\d*gb(\+me)?")


class ShareKind(StrEnum):
    """In which way a device is shared."""

    FRACTION = "fraction"
    MIG = "mig"
    MPS = "mps"
    TURNS = "turns"


@dataclass(frozen=True, slots=True)
class ShareAsk:
    """A part of one device. `amount` counts thousandths (fraction), percent (mps) or jobs in a round (turns).

    One type for all kinds, since it travels in the journal. No memory given: the same part of the device's memory. A
    `revocable` one has no claim to compute or memory: what it has of the device is what other jobs leave it. Turns
    `at_step` end with a step of the job, where it has least in the device's memory. Only policies ask for these two.
    """

    kind: ShareKind
    amount: int = 0
    profile: str = ""
    memory_mb: int | None = None
    revocable: bool = False
    at_step: bool = False

    def __post_init__(self) -> None:
        match self.kind:
            case ShareKind.FRACTION:
                _check_range("share.fraction (in thousandths)", self.amount, 1, PERMILLE_MAX)
            case ShareKind.MPS:
                _check_range("share.mps (in percent)", self.amount, 1, PERCENT_MAX)
            case ShareKind.TURNS:
                _check_range("share.turns", self.amount, TURNS_MIN, TURNS_MAX)
            case ShareKind.MIG:
                _check_profile(self.profile)
        if self.memory_mb is not None and self.memory_mb < 1:
            raise ValueError(
                f"share.memory: {self.memory_mb} MB is not a size; expected at least 1 MB, or leave it out"
            )


def fraction_ask(permille: int, memory_mb: int | None = None) -> ShareAsk:
    """`{fraction: 0.5}`: so many thousandths of a device's time."""
    return ShareAsk(ShareKind.FRACTION, permille, memory_mb=memory_mb)


def mig_ask(profile: str) -> ShareAsk:
    """`{mig: 1g.10gb}`: one MIG instance of that profile, cut out of the device by the hardware."""
    return ShareAsk(ShareKind.MIG, profile=profile)


def mps_ask(percent: int, memory_mb: int | None = None) -> ShareAsk:
    """`{mps: 30}`: so many percent of a device's threads under MPS."""
    return ShareAsk(ShareKind.MPS, percent, memory_mb=memory_mb)


def turn_ask(turns: int, at_step: bool = False) -> ShareAsk:
    """`{turns: 2}`: the device is taken in turns by up to so many jobs that ask for the same number."""
    return ShareAsk(ShareKind.TURNS, turns, at_step=at_step)


def _check_range(key: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{key}: {value} is out of range; expected a whole number from {low} to {high}")


def _check_profile(profile: str) -> None:
    if not _MIG_PROFILE.fullmatch(profile):
        raise ValueError(
            f"share.mig: '{profile}' is not the name of a MIG profile; expected one like 1g.10gb, 3g.40gb or 1g.10gb+me"
        )
