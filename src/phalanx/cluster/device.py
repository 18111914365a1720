"""What one device gives away: portions, their holders, and the rules that keep any part from being given twice.

A device is shared in one mode at a time: the modes exclude each other in the driver or void each other's promises. MIG
and MPS divide the device differently, turns and fractions count on knowing all that run, a whole device has no rest.

Guaranteed compute never exceeds 1000 ‰. Revocable portions may lie on top of it, since they can be stopped at any time;
but memory is physical, so guaranteed and revocable portions together never exceed the device's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from phalanx.cluster import mig

FULL_PERMILLE = 1000
MPS_CLIENTS_MAX = 48
"""Clients that one MPS server takes on a device (NVIDIA's MPS documentation, Volta and later)."""


class Mode(StrEnum):
    """How a device is shared. Only an empty device changes its mode."""

    WHOLE = "whole"
    FRACTION = "fraction"
    MPS = "mps"
    MIG = "mig"
    TURNS = "turns"


class Obstacle(StrEnum):
    """Why a portion does not fit."""

    UNSUPPORTED = "unsupported"
    MODE = "mode"
    SLOT = "slot"
    MEMORY = "memory"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True)
class Portion:
    """A part of one device. Wanted, it leaves `mig_offset` and `turn` open; `fit` fills them in.

    On a device that is taken in turns `beside` names the job whose turn it shares, and which shares its own: the two
    are packed, and run at the same time. Where a turn ends `at_step`, the step that runs is done first.

    `lent_mb` is memory that a revocable portion uses while its holders do not. Nothing counts on it: it is had
    back at any time, and what was in it goes to the host.
    """

    mode: Mode
    compute_permille: int
    memory_mb: int
    mig_profile: str | None = None
    mig_offset: int | None = None
    turns: int | None = None
    turn: int | None = None
    revocable: bool = False
    beside: str = ""
    at_step: bool = False
    lent_mb: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.compute_permille <= FULL_PERMILLE:
            raise ValueError(f"portion: compute of {self.compute_permille} ‰; expected 1 to {FULL_PERMILLE}")
        if self.memory_mb < 0:
            raise ValueError(f"portion: memory of {self.memory_mb} MB; expected 0 or more")
        if (self.mode is Mode.MIG) != (self.mig_profile is not None):
            raise ValueError(
                f"portion: MIG profile {self.mig_profile} in mode {self.mode}; mode mig has one, others none"
            )
        if (self.mode is Mode.TURNS) != (self.turns is not None):
            raise ValueError(f"portion: turns {self.turns} in mode {self.mode}; mode turns has them, others none")
        if self.beside and self.mode is not Mode.TURNS:
            raise ValueError(f"portion: beside {self.beside} in mode {self.mode}; only turns are shared")
        if self.at_step and self.mode is not Mode.TURNS:
            raise ValueError(f"portion: at_step in mode {self.mode}; only turns end with a step")
        if self.lent_mb < 0 or (self.lent_mb and not self.revocable):
            raise ValueError(f"portion: {self.lent_mb} MB lent; expected 0 or more, and for a revocable portion alone")

    def at_offset(self, offset: int) -> Portion:
        """This MIG portion, starting at that memory slice."""
        return replace(self, mig_offset=offset)

    def at_turn(self, turn: int) -> Portion:
        """This portion of a device taken in turns, with that turn."""
        return replace(self, turn=turn)


def whole(memory_mb: int, revocable: bool = False) -> Portion:
    """All of a device with this much memory."""
    return Portion(Mode.WHOLE, FULL_PERMILLE, memory_mb, revocable=revocable)


@dataclass(slots=True)
class DeviceLoad:
    """What each holder has of one device, with the sums kept beside. Changed only by the functions below.

    `model` names the MIG rules (None: no MIG), `layout` the MIG instances that exist (None: MIG mode is off), which
    may differ from what holders were promised until a re-partition is done. `occupied` and `turns_taken` are bitsets.
    A holder is whatever is started and stopped as one on this device: the id of an attempt, or of its task.
    """

    model: str | None
    memory_mb: int
    layout: mig.Layout | None = None
    holders: dict[str, Portion] = field(default_factory=dict)
    guaranteed_permille: int = 0
    resident_mb: int = 0
    occupied: int = 0
    turns_taken: int = 0

    @property
    def mode(self) -> Mode | None:
        """The mode its holders keep it in, or None when it has none."""
        for portion in self.holders.values():
            return portion.mode
        return None

    @property
    def turns(self) -> int | None:
        """How many turns a round has, as its holders asked."""
        for portion in self.holders.values():
            return portion.turns
        return None

    @property
    def free_permille(self) -> int:
        """Compute that can still be guaranteed."""
        return FULL_PERMILLE - self.guaranteed_permille

    @property
    def free_mb(self) -> int:
        """Memory without a holder, guaranteed or revocable."""
        return self.memory_mb - self.resident_mb


def obstacle(load: DeviceLoad, wanted: Portion) -> Obstacle | None:
    """The first rule that keeps this portion off the device, or None when it fits as things are."""
    if wanted.mode is Mode.MIG and not _has_profile(load, wanted):
        return Obstacle.UNSUPPORTED
    if load.holders and (wanted.mode is Mode.WHOLE or wanted.mode is not load.mode):
        return Obstacle.MODE
    if not _has_slot(load, wanted):
        return Obstacle.SLOT
    if wanted.memory_mb > load.free_mb:
        return Obstacle.MEMORY
    if not wanted.revocable and wanted.compute_permille > load.free_permille:
        return Obstacle.COMPUTE
    return None


def fit(load: DeviceLoad, wanted: Portion) -> Portion | None:
    """The portion as it could be held now, with its place in the device, or None. Nothing is changed."""
    if obstacle(load, wanted) is not None:
        return None
    if wanted.mode is Mode.MIG:
        offset = _mig_offset(load, wanted)
        return None if offset is None else wanted.at_offset(offset)
    if wanted.mode is Mode.TURNS:
        turn = _turn(load, wanted)
        return None if turn is None else wanted.at_turn(turn)
    return wanted


def make_room(load: DeviceLoad, wanted: Portion, victims: Sequence[str]) -> tuple[str, ...] | None:
    """Which victims must go before the portion fits, none that need not; None when all of them do not suffice.

    Victims are taken in the order given, cheapest first. For a guaranteed portion they are usually `revocable_holders`.
    """
    trial = _recounted(load)
    removed: dict[str, Portion] = {}
    for victim in victims:
        if obstacle(trial, wanted) is None:
            break
        removed[victim] = remove(trial, victim)
    if obstacle(trial, wanted) is not None:
        return None
    dearest_first = reversed(tuple(removed.items()))
    needed = [holder for holder, portion in dearest_first if not _can_stay(trial, holder, portion, wanted)]
    return tuple(reversed(needed))


def revocable_holders(load: DeviceLoad) -> tuple[str, ...]:
    """Holders that can be stopped at any time, by name."""
    return tuple(sorted(holder for holder, portion in load.holders.items() if portion.revocable))


def add(load: DeviceLoad, holder: str, portion: Portion) -> None:
    """Gives the portion, as `fit` returned it, to the holder. A portion that breaks a rule is refused."""
    if holder in load.holders:
        raise ValueError(f"device: {holder} already holds a portion of this device; remove it before adding another")
    if portion.mode is Mode.MIG and portion.mig_offset is None:
        raise ValueError(f"device: the MIG portion for {holder} has no offset; pass what fit() returned")
    if portion.mode is Mode.TURNS and portion.turn is None:
        raise ValueError(f"device: the portion for {holder} has no turn; pass what fit() returned")
    reason = obstacle(load, portion)
    if reason is not None:
        raise ValueError(f"device: the portion for {holder} does not fit ({reason}): {portion}; ask fit() first")
    load.holders[holder] = portion
    _count(load, portion, 1)


def remove(load: DeviceLoad, holder: str) -> Portion:
    """Takes the holder's portion back and returns it: exactly undoes `add`."""
    portion = load.holders.pop(holder, None)
    if portion is None:
        raise ValueError(f"device: {holder} holds nothing on this device; expected one of {sorted(load.holders)}")
    _count(load, portion, -1)
    return portion


def set_layout(load: DeviceLoad, layout: mig.Layout | None) -> None:
    """Records which MIG instances exist now, as the backend reports them."""
    if layout and (load.model is None or not mig.legal(load.model, layout)):
        raise ValueError(f"device: {layout} is no legal MIG layout of a device of model {load.model}")
    load.layout = None if layout is None else tuple(sorted(layout))


def layout_wanted(load: DeviceLoad) -> mig.Layout | None:
    """The layout that gives the holders what they were promised and destroys no idle instance it need not.

    An empty device keeps the layout it has, so that the next job of the same profile starts at once.
    """
    if not load.holders:
        return load.layout
    if load.mode is not Mode.MIG:
        return None
    held = held_instances(load)
    return tuple(sorted((*held, *_idle_instances(load))))


def repartition(load: DeviceLoad) -> mig.LayoutChange:
    """What must be done to the device before all its holders can run; `needed` is False when nothing."""
    return mig.layout_change(load.layout, layout_wanted(load))


def held_instances(load: DeviceLoad) -> mig.Layout:
    """The MIG instances that holders hold, by offset, whether they exist already or not."""
    return tuple(
        sorted(
            mig.Instance(portion.mig_offset, portion.mig_profile)
            for portion in load.holders.values()
            if portion.mig_offset is not None and portion.mig_profile is not None
        )
    )


def violations(load: DeviceLoad) -> tuple[str, ...]:
    """Every broken rule, counted anew from the holders. Empty unless the code around a device is wrong."""
    portions = load.holders.values()
    counted = _recounted(load)
    guaranteed, resident = counted.guaranteed_permille, counted.resident_mb
    turns = [portion.turn for portion in portions if portion.mode is Mode.TURNS]
    held = held_instances(load)
    rules = {
        f"guaranteed compute is {guaranteed} of {FULL_PERMILLE} ‰": guaranteed <= FULL_PERMILLE,
        f"resident memory is {resident} of {load.memory_mb} MB": resident <= load.memory_mb,
        "holders differ in mode": all(portion.mode is load.mode for portion in portions),
        "a whole device has several holders": load.mode is not Mode.WHOLE or len(portions) == 1,
        f"{len(portions)} MPS clients": load.mode is not Mode.MPS or len(portions) <= MPS_CLIENTS_MAX,
        f"illegal MIG instances {held}": not held or (load.model is not None and mig.legal(load.model, held)),
        "turns are taken twice or not of one round": len(turns) == len(dict.fromkeys(turns))
        and all(portion.turns == load.turns for portion in portions),
        "the kept sums differ from the holders": (load.guaranteed_permille, load.resident_mb) == (guaranteed, resident),
    }
    return tuple(rule for rule, holds in rules.items() if not holds)


def _count(load: DeviceLoad, portion: Portion, sign: int) -> None:
    load.resident_mb += sign * portion.memory_mb
    if not portion.revocable:
        load.guaranteed_permille += sign * portion.compute_permille
    if portion.turn is not None:
        load.turns_taken ^= 1 << portion.turn
    if load.model is not None and portion.mig_profile is not None and portion.mig_offset is not None:
        load.occupied ^= mig.profile(load.model, portion.mig_profile).mask(portion.mig_offset)


def _recounted(load: DeviceLoad) -> DeviceLoad:
    """The same holders, their sums counted from nothing and no rule checked."""
    counted = DeviceLoad(load.model, load.memory_mb, load.layout, dict(load.holders))
    for portion in load.holders.values():
        _count(counted, portion, 1)
    return counted


def _has_profile(load: DeviceLoad, wanted: Portion) -> bool:
    if load.model is None or wanted.mig_profile is None:
        return False
    return mig.find(load.model, wanted.mig_profile) is not None


def _has_slot(load: DeviceLoad, wanted: Portion) -> bool:
    if wanted.mode is Mode.MIG:
        return _mig_offset(load, wanted) is not None
    if wanted.mode is Mode.TURNS:
        return _turn(load, wanted) is not None
    return wanted.mode is not Mode.MPS or len(load.holders) < MPS_CLIENTS_MAX


def _mig_offset(load: DeviceLoad, wanted: Portion) -> int | None:
    """Where the instance goes: an idle one that exists, else a free place, else over instances that are idle.

    This order saves time, not slices: the first needs no re-partition, the second destroys nothing.
    """
    if load.model is None or wanted.mig_profile is None:
        return None
    if wanted.mig_offset is not None:
        asked = mig.Instance(wanted.mig_offset, wanted.mig_profile)
        return wanted.mig_offset if mig.legal(load.model, (*held_instances(load), asked)) else None
    idle = _idle_instances(load)
    for instance in idle:
        if instance.profile == wanted.mig_profile:
            return instance.offset
    beside_idle = mig.fits(load.model, load.occupied | mig.occupied(load.model, idle), wanted.mig_profile)
    return beside_idle if beside_idle is not None else mig.fits(load.model, load.occupied, wanted.mig_profile)


def _idle_instances(load: DeviceLoad) -> mig.Layout:
    """Instances that exist and overlap with nothing that is held."""
    if load.model is None or not load.layout:
        return ()
    model = load.model
    return tuple(each for each in load.layout if not load.occupied & mig.profile(model, each.profile).mask(each.offset))


def _turn(load: DeviceLoad, wanted: Portion) -> int | None:
    """The turn asked for, or the lowest that is free, in a round of as many turns as the other holders asked for."""
    if wanted.turns is None or (load.holders and load.turns != wanted.turns):
        return None
    candidates = range(wanted.turns) if wanted.turn is None else (wanted.turn,)
    for turn in candidates:
        if 0 <= turn < wanted.turns and not load.turns_taken >> turn & 1:
            return turn
    return None


def _can_stay(trial: DeviceLoad, holder: str, portion: Portion, wanted: Portion) -> bool:
    """Puts a removed victim back where the wanted portion fits beside it; else leaves it out."""
    if obstacle(trial, portion) is not None:
        return False
    add(trial, holder, portion)
    if obstacle(trial, wanted) is None:
        return True
    remove(trial, holder)
    return False
