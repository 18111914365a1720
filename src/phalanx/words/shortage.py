"""What there is too little of for a part of a GPU."""

from __future__ import annotations

from phalanx.cluster.capacity import MB_PER_GB
from phalanx.cluster.device import FULL_PERMILLE, Mode, Portion
from phalanx.placement.refusals.shortage import Barrier, Shortage
from phalanx.words.phrases import counted

BARRIER_WORDS = {
    Barrier.TAKEN: "taken whole",
    Barrier.PROMISED: "promised to others",
    Barrier.UNSUPPORTED: "that cannot be cut so",
    Barrier.MODE: "shared in another way",
    Barrier.SLOT: "without a place left",
    Barrier.MEMORY: "with too little memory left",
    Barrier.COMPUTE: "with too little compute left",
}
"""What is wrong with the devices that give a job no part of them."""

MODE_WORDS = {
    Mode.WHOLE: "whole",
    Mode.FRACTION: "by fractions",
    Mode.MPS: "by MPS",
    Mode.MIG: "by MIG",
    Mode.TURNS: "by turns",
}
"""How a device is shared."""

SLOT_WORDS = {Mode.MPS: "a client", Mode.MIG: "room for such an instance", Mode.TURNS: "such a turn"}
"""What a device that is shared so has a number of."""


def shortage_words(shortage: Shortage) -> str:
    """What the parts of devices lack that a job asks for, with the devices that give none, by what keeps it off."""
    asked = f"{counted(shortage.tasks, 'part')} of GPUs" if shortage.tasks > 1 else "a part of a GPU"
    line = f"it needs {asked} ({_part_words(shortage.wanted)})"
    counts = ", ".join(f"{count} {BARRIER_WORDS[barrier]}" for barrier, count in shortage.barriers)
    counts = f" (of {counted(shortage.devices, 'GPU')}: {counts})" if counts else ""
    if shortage.tasks_most >= shortage.tasks:
        return f"{line}: there is room, but not close enough together{counts}"
    if shortage.tasks_most:
        line += f", and there is room for {shortage.tasks_most}"
    return line + _barrier_words(shortage) + counts


def _part_words(wanted: Portion) -> str:
    memory = f"{_gb(wanted.memory_mb)} of its memory"
    match wanted.mode:
        case Mode.MIG:
            return f"MIG {wanted.mig_profile}"
        case Mode.TURNS:
            return f"one of {wanted.turns} turns, {memory}"
        case mode:
            return f"{MODE_WORDS[mode]}, {wanted.compute_permille / FULL_PERMILLE:g} of its compute, {memory}"


def _barrier_words(shortage: Shortage) -> str:
    """What to tell first of what keeps a part off."""
    match shortage.barrier:
        case Barrier.MEMORY:
            return f"; the GPU that is shared so and has most memory left has {_gb(shortage.memory_mb_most)}"
        case Barrier.COMPUTE:
            most = shortage.compute_permille_most / FULL_PERMILLE
            return f"; the GPU that is shared so and has most compute left has {most:g}"
        case Barrier.SLOT:
            return f"; no GPU that is shared so has {SLOT_WORDS[shortage.wanted.mode]} left"
        case Barrier.MODE:
            modes = " or ".join(MODE_WORDS[mode] for mode in shortage.modes)
            return f"; GPUs that are shared are shared {modes}, and a GPU is shared in one way at a time"
        case _:
            return "; no GPU is free, and none is shared"


def _gb(memory_mb: int) -> str:
    return f"{memory_mb / MB_PER_GB:.3g} GB"
