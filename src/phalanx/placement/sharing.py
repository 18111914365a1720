"""Sharing: what an ask for a share means on a device, and how fast jobs run that share one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from phalanx.cluster import mig
from phalanx.cluster.device import FULL_PERMILLE, DeviceLoad, Mode, Portion, whole
from phalanx.workload.share import ShareAsk, ShareKind

_PERMILLE_PER_PERCENT = 10


def wanted(ask: ShareAsk | None, model: str | None, memory_mb: int, revocable: bool = False) -> Portion | None:
    """The portion this ask means on a device of this MIG model and memory, or None where no such device can give it.

    No ask is the whole device. Memory that is not asked for is the same part of the device's as the compute; one that
    is revocable by itself has its memory on the host.
    """
    if ask is None:
        return whole(memory_mb, revocable)
    if ask.revocable:
        portion = wanted(replace(ask, revocable=False), model, memory_mb, revocable=True)
        return replace(portion, memory_mb=0) if portion is not None else None
    match ask.kind:
        case ShareKind.FRACTION:
            return _sized(Mode.FRACTION, ask.amount, ask.memory_mb, memory_mb, revocable)
        case ShareKind.MPS:
            return _sized(Mode.MPS, ask.amount * _PERMILLE_PER_PERCENT, ask.memory_mb, memory_mb, revocable)
        case ShareKind.MIG:
            return _instance(ask.profile, model, memory_mb, revocable)
        case ShareKind.TURNS:
            # Every job of the round stays in the device's memory while another runs.
            compute, memory = FULL_PERMILLE // ask.amount, memory_mb // ask.amount
            return Portion(Mode.TURNS, compute, memory, turns=ask.amount, revocable=revocable, at_step=ask.at_step)


def share_permille(ask: ShareAsk | None) -> int:
    """Thousandths of a device that an ask counts as, at most: a MIG profile is a larger part of a smaller model."""
    if ask is None:
        return FULL_PERMILLE
    match ask.kind:
        case ShareKind.FRACTION:
            return ask.amount
        case ShareKind.MPS:
            return ask.amount * _PERMILLE_PER_PERCENT
        case ShareKind.TURNS:
            return FULL_PERMILLE // ask.amount
        case ShareKind.MIG:
            known = [
                mig.compute_permille(model, ask.profile) for model in mig.GEOMETRIES if mig.find(model, ask.profile)
            ]
            return max(known, default=FULL_PERMILLE)


def _sized(mode: Mode, permille: int, asked_mb: int | None, device_memory_mb: int, revocable: bool) -> Portion | None:
    portion_mb = device_memory_mb * permille // FULL_PERMILLE if asked_mb is None else asked_mb
    if portion_mb > device_memory_mb:
        return None
    return Portion(mode, permille, portion_mb, revocable=revocable)


def _instance(profile: str, model: str | None, device_memory_mb: int, revocable: bool) -> Portion | None:
    if model is None or mig.find(model, profile) is None:
        return None
    compute = mig.compute_permille(model, profile)
    portion_mb = mig.memory_mb(model, profile, device_memory_mb)
    return Portion(Mode.MIG, compute, portion_mb, mig_profile=profile, revocable=revocable)


@dataclass(frozen=True, slots=True)
class Interference:
    """What sharing costs beyond the share itself. The defaults were measured on one H200, driver 580, or are assumed.

    `switch_overhead`: lost by all together as soon as two jobs take turns on the device, by rounds or by fractions.
    Measured with 2 and with 4 processes alike: 7.5 % for a training step, 7 % for matrix products, 10 % for copies.

    `mps_per_neighbour`: lost by each for every other MPS client. Measured on a full device, against the nominal share:
    from 0 to 4 % for 2 clients of 50 % and 4 of 25 %.

    `mig_per_neighbour`: instances have their own multiprocessors, cache and memory; assumed 0, though they do share the
    bus to the host and the power limit.

    `scavenged_permille`: what revocable portions get, all together, of a device whose compute is all guaranteed to
    other portions: its idle moments. An assumption.

    `freeze_ms`: to freeze one job and let another go on; measured with turns of a second. `host_gb_per_s`: between the
    memory of a device and pinned memory of its host, either way. Measured: 51 GB/s; an older bus has half or less.
    """

    switch_overhead: float = 0.075
    mps_per_neighbour: float = 0.02
    mig_per_neighbour: float = 0.0
    scavenged_permille: int = 50
    freeze_ms: int = 5
    host_gb_per_s: float = 50.0

    def __post_init__(self) -> None:
        for key in ("switch_overhead", "mps_per_neighbour", "mig_per_neighbour"):
            if not 0.0 <= getattr(self, key) < 1.0:
                raise ValueError(f"interference.{key}: {getattr(self, key)} is out of range; expected 0 to below 1")
        if not 0 < self.scavenged_permille <= FULL_PERMILLE:
            raise ValueError(
                f"interference.scavenged_permille: {self.scavenged_permille} is out of range; "
                f"expected 1 to {FULL_PERMILLE}"
            )
        if self.freeze_ms < 0:
            raise ValueError(f"interference.freeze_ms: {self.freeze_ms} is no time; expected 0 or more")
        if not 0.0 < self.host_gb_per_s < inf:
            raise ValueError(f"interference.host_gb_per_s: {self.host_gb_per_s} is no rate; expected more than 0")


INTERFERENCE = Interference()


def speed(load: DeviceLoad, holder: str, interference: Interference = INTERFERENCE) -> float:
    """How fast the holder runs, where 1 is the whole device for itself.

    A share is a ceiling too: a job alone on the device with half of it runs at half speed. In life it may do better
    (measured under MPS: 0.63 to 0.87 with 50 %), but no plan can rely on neighbours staying away.
    """
    portion = load.holders[holder]
    neighbours = len(load.holders) - 1
    match portion.mode:
        case Mode.WHOLE:
            return 1.0
        case Mode.TURNS:
            return _after_switching(neighbours, interference) / (neighbours + 1)
        case Mode.FRACTION:
            if not portion.revocable:
                # Revocable fractions run in the idle moments of guaranteed ones, and are held back when those suffer.
                neighbours -= sum(each.revocable for each in load.holders.values())
            return _compute(load, portion, interference) * _after_switching(neighbours, interference)
        case Mode.MPS:
            kept = (1.0 - interference.mps_per_neighbour) ** neighbours
            return _compute(load, portion, interference) * kept
        case Mode.MIG:
            kept = (1.0 - interference.mig_per_neighbour) ** neighbours
            return portion.compute_permille / FULL_PERMILLE * kept


def slowdown(load: DeviceLoad, holder: str, interference: Interference = INTERFERENCE) -> float:
    """How many times longer the holder takes than with the same portion and no neighbours: 1 when it is alone."""
    return _speed_alone(load.holders[holder]) / speed(load, holder, interference)


def _speed_alone(portion: Portion) -> float:
    """A job whose neighbours stay away has every turn."""
    return 1.0 if portion.mode is Mode.TURNS else portion.compute_permille / FULL_PERMILLE


def _after_switching(neighbours: int, interference: Interference) -> float:
    return 1.0 - interference.switch_overhead if neighbours else 1.0


def _compute(load: DeviceLoad, portion: Portion, interference: Interference) -> float:
    """Guaranteed portions get what they hold; revocable ones divide what is left, up to what they hold."""
    if not portion.revocable:
        return portion.compute_permille / FULL_PERMILLE
    revocable = sum(each.compute_permille for each in load.holders.values() if each.revocable)
    left = max(load.free_permille, interference.scavenged_permille)
    return portion.compute_permille / FULL_PERMILLE * min(1.0, left / revocable)
