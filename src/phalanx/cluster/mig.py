"""MIG: the instances a device can be cut into, where each may start, and which fit beside which.

A device has an axis of memory slices (8, on the A30 4). An instance takes a run of them and may start only at the
offsets of its profile; instances fit beside each other when their runs do not overlap. There are fewer compute than
memory slices (7 to 8), so slice 7 belongs only to profiles that need its memory. At most one instance carries the
media engines (`+me`).

The tables are what `nvidia-smi mig -lgip` (profiles, multiprocessors) and `-lgipp` (offsets:slices) print, and agree
with "Supported MIG Profiles" in NVIDIA's MIG User Guide; that of the H200 was read from a device with driver 580.
Models are named as in the hardware catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

MEDIA = 1 << 8
"""The bit of an occupancy mask that stands for the media engines; bits 0 to 7 are memory slices."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One size of instance. `offsets` are the memory slices it may start at."""

    name: str
    compute_slices: int
    memory_slices: int
    sm_count: int
    offsets: tuple[int, ...]
    count_max: int
    media: bool = False

    def mask(self, offset: int) -> int:
        """What an instance that starts at this slice occupies."""
        slices = ((1 << self.memory_slices) - 1) << offset
        return slices | MEDIA if self.media else slices


@dataclass(frozen=True, slots=True)
class Geometry:
    """How one model of device is cut. `sm_count` is that of the device with MIG off."""

    memory_slices: int
    sm_count: int
    profiles: tuple[Profile, ...]
    resets_to_switch: bool

    @property
    def largest_first(self) -> tuple[Profile, ...]:
        """Profiles by compute, then memory; of two alike, the one without media engines first."""
        return tuple(sorted(self.profiles, key=lambda each: (-each.compute_slices, -each.memory_slices, each.media)))


@dataclass(frozen=True, slots=True, order=True)
class Instance:
    """An instance on a device: where it starts and its profile."""

    offset: int
    profile: str


Layout: TypeAlias = tuple[Instance, ...]
"""The instances of a device in MIG mode, by offset. Where a layout may be None, None means that MIG mode is off."""


Rule: TypeAlias = tuple[int, int, tuple[int, ...], int, bool]
"""A profile but for its name and multiprocessors: compute slices, memory slices, offsets, most at once, media."""

_ANYWHERE = (0, 1, 2, 3, 4, 5, 6)
_SEVEN: tuple[Rule, ...] = (
    (1, 1, _ANYWHERE, 7, False),
    (1, 1, _ANYWHERE, 1, True),
    (1, 2, (0, 2, 4, 6), 4, False),
    (2, 2, (0, 2, 4), 3, False),
    (3, 4, (0, 4), 2, False),
    (4, 4, (0,), 1, False),
    (7, 8, (0,), 1, True),
)
_FOUR: tuple[Rule, ...] = (
    (1, 1, (0, 1, 2, 3), 4, False),
    (1, 1, (0, 1, 2, 3), 1, True),
    (2, 2, (0, 2), 2, False),
    (2, 2, (0, 2), 1, True),
    (4, 4, (0,), 1, True),
)


def _cut(rules: tuple[Rule, ...], sm_count: int, listing: str, resets_to_switch: bool) -> Geometry:
    """A geometry from rules and a listing of name:multiprocessors in the same order."""
    rows = []
    for entry, (compute, memory, offsets, count_max, media) in zip(listing.split(), rules, strict=True):
        name, profile_sm_count = entry.split(":")
        rows.append(Profile(name, compute, memory, int(profile_sm_count), offsets, count_max, media))
    return Geometry(rows[-1].memory_slices, sm_count, tuple(rows), resets_to_switch)


def _ampere(rules: tuple[Rule, ...], sm_count: int, listing: str) -> Geometry:
    return _cut(rules, sm_count, listing, resets_to_switch=True)


def _later(sm_count: int, listing: str) -> Geometry:
    """Hopper and Blackwell switch MIG mode on and off without a reset."""
    return _cut(_SEVEN, sm_count, listing, resets_to_switch=False)


# Multiprocessors are not compute slices times a constant: since Hopper, 3g and 1g with double memory get more than
# their slices' worth. Those of the GB200 are assumed to be the B200's.
GEOMETRIES: dict[str, Geometry] = {
    "A30": _ampere(_FOUR, 56, "1g.6gb:14 1g.6gb+me:14 2g.12gb:28 2g.12gb+me:28 4g.24gb:56"),
    "A100-40": _ampere(_SEVEN, 108, "1g.5gb:14 1g.5gb+me:14 1g.10gb:14 2g.10gb:28 3g.20gb:42 4g.20gb:56 7g.40gb:98"),
    "A100-80": _ampere(_SEVEN, 108, "1g.10gb:14 1g.10gb+me:14 1g.20gb:14 2g.20gb:28 3g.40gb:42 4g.40gb:56 7g.80gb:98"),
    "H100": _later(132, "1g.10gb:16 1g.10gb+me:16 1g.20gb:26 2g.20gb:32 3g.40gb:60 4g.40gb:64 7g.80gb:132"),
    "H200": _later(132, "1g.18gb:16 1g.18gb+me:16 1g.35gb:26 2g.35gb:32 3g.71gb:60 4g.71gb:64 7g.141gb:132"),
    "B200": _later(148, "1g.23gb:18 1g.23gb+me:18 1g.45gb:30 2g.45gb:36 3g.90gb:70 4g.90gb:72 7g.180gb:148"),
    "GB200": _later(148, "1g.23gb:18 1g.23gb+me:18 1g.47gb:30 2g.47gb:36 3g.93gb:70 4g.93gb:72 7g.186gb:148"),
}


def geometry(model: str) -> Geometry:
    """How this model is cut."""
    found = GEOMETRIES.get(model)
    if found is None:
        raise ValueError(f"MIG: no device model '{model}'; expected one of {', '.join(GEOMETRIES)}")
    return found


def profiles(model: str) -> tuple[Profile, ...]:
    """The profiles of this model, smallest first."""
    return geometry(model).profiles


@cache
def find(model: str, name: str) -> Profile | None:
    """The profile of that name, or None where the model has none."""
    return next((each for each in profiles(model) if each.name == name), None)


def profile(model: str, name: str) -> Profile:
    """The profile of that name."""
    found = find(model, name)
    if found is None:
        names = ", ".join(each.name for each in profiles(model))
        raise ValueError(f"MIG: a device of model {model} has no profile '{name}'; expected one of {names}")
    return found


def compute_permille(model: str, name: str) -> int:
    """An instance's part of the device's multiprocessors, in thousandths, rounded down."""
    return profile(model, name).sm_count * 1000 // geometry(model).sm_count


def memory_mb(model: str, name: str, device_memory_mb: int) -> int:
    """An instance's part of the device's memory, rounded down: its slices, of which the driver keeps a little."""
    return device_memory_mb * profile(model, name).memory_slices // geometry(model).memory_slices


def occupied(model: str, instances: Layout) -> int:
    """The mask of everything these instances occupy."""
    mask = 0
    for instance in instances:
        mask |= profile(model, instance.profile).mask(instance.offset)
    return mask


def legal(model: str, instances: Layout) -> bool:
    """Whether these instances can exist together: known profiles, allowed offsets, nothing taken twice."""
    taken = 0
    for instance in instances:
        found = find(model, instance.profile)
        if found is None or instance.offset not in found.offsets or taken & found.mask(instance.offset):
            return False
        taken |= found.mask(instance.offset)
    return True


@cache
def fits(model: str, occupied_mask: int, name: str) -> int | None:
    """The offset at which an instance of this profile does the least harm, or None when it fits nowhere.

    Least harm means that, largest profile first, the most instances of each can still be placed. So a 1g starts at
    slice 6, where it leaves the places of a 4g and a 2g alone, and not at slice 0, the only place of a 4g. A driver
    that is not told may well start at slice 0, so backends name the offset. Ties go to the lowest offset.
    """
    wanted = profile(model, name)
    best: int | None = None
    best_room: tuple[int, ...] = ()
    for offset in wanted.offsets:
        mask = wanted.mask(offset)
        if occupied_mask & mask:
            continue
        room = _room(model, occupied_mask | mask)
        if best is None or room > best_room:
            best, best_room = offset, room
    return best


@cache
def _room(model: str, occupied_mask: int) -> tuple[int, ...]:
    """How many instances of each profile still fit, largest profile first; its own offsets never overlap."""
    return tuple(
        sum(1 for offset in each.offsets if not occupied_mask & each.mask(offset))
        for each in geometry(model).largest_first
    )


def full_layouts(model: str, names: tuple[str, ...] = ()) -> tuple[Layout, ...]:
    """All layouts of these profiles (default: all of the model's) to which no further instance of them can be added."""
    chosen = tuple(profile(model, name) for name in names) or profiles(model)
    spots = sorted((Instance(offset, each.name), each.mask(offset)) for each in chosen for offset in each.offsets)
    found: list[Layout] = []
    _extend((), 0, 0, spots, found)
    return tuple(found)


def _extend(layout: Layout, taken: int, start: int, spots: list[tuple[Instance, int]], found: list[Layout]) -> None:
    """Depth first over the spots in order, so that each layout is met once."""
    if all(taken & mask for _, mask in spots):
        found.append(layout)
        return
    for index in range(start, len(spots)):
        instance, mask = spots[index]
        if not taken & mask:
            _extend((*layout, instance), taken | mask, index + 1, spots, found)


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """What turns one layout into another. Instances that are not named keep running all the while."""

    destroy: Layout
    create: Layout
    switch_mode: bool

    @property
    def needed(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.destroy or self.create or self.switch_mode)


def layout_change(current: Layout | None, wanted: Layout | None) -> LayoutChange:
    """What must be destroyed and created. Switching the mode, to or from None, asks for an idle device."""
    have, want = current or (), wanted or ()
    return LayoutChange(
        destroy=tuple(sorted(each for each in have if each not in want)),
        create=tuple(sorted(each for each in want if each not in have)),
        switch_mode=(current is None) != (wanted is None),
    )


@dataclass(frozen=True, slots=True)
class RepartitionCost:
    """How long the steps of a re-partition take. The defaults are assumptions, not measurements.

    They stand for the driver's own work. A backend that restarts its device plugin around it (Kubernetes) takes
    minutes and says so with its own numbers.
    """

    destroy_ms: int = 500
    create_ms: int = 500
    switch_mode_ms: int = 2_000
    reset_ms: int = 10_000


REPARTITION_COST = RepartitionCost()


def repartition_ms(model: str, change: LayoutChange, cost: RepartitionCost = REPARTITION_COST) -> int:
    """How long this change takes on this model: its steps one after the other."""
    steps_ms = len(change.destroy) * cost.destroy_ms + len(change.create) * cost.create_ms
    if not change.switch_mode:
        return steps_ms
    return steps_ms + cost.switch_mode_ms + (cost.reset_ms if geometry(model).resets_to_switch else 0)
