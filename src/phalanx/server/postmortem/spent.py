"""What each second of a job went to."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from phalanx.server.postmortem.history import History

KINDS = ("queued", "starting", "restarting", "computing", "saving", "lost", "suspended", "stopping")

OF_SEGMENT = {"running": "computing", "lost_work": "lost"}


class Spent(NamedTuple):
    """Time that went to something, and the GPU time that was held meanwhile."""

    kind: str
    ms: int
    gpu_ms: int


def spent(history: History) -> list[Spent]:
    """All of a job's time since its submission, by what it went to; what took none is left out."""
    times: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for segment in history.segments:
        kind = _kind(segment["state"], segment["attempt"])
        end_ms = history.now_ms if segment["end_ms"] is None else segment["end_ms"]
        times[kind] += max(end_ms - segment["start_ms"], 0)
        if kind not in ("queued", "suspended"):
            held[kind] += history.gpu_ms(segment["attempt"], segment["start_ms"], end_ms)
    _take_saving(history, times, held)
    return [Spent(kind, times[kind], held[kind]) for kind in KINDS if times[kind]]


def _kind(state: str, attempt: int) -> str:
    if state == "starting" and attempt > 1:
        return "restarting"
    return OF_SEGMENT.get(state, state)


def _take_saving(history: History, times: Counter[str], held: Counter[str]) -> None:
    """Saves take their time from that of computing, by what the job says that one costs."""
    whole_ms = times["computing"]
    saving_ms = min(history.saves * history.saving.cost_ms, whole_ms)
    if saving_ms:
        saving_gpu_ms = held["computing"] * saving_ms // whole_ms
        times.update(saving=saving_ms, computing=-saving_ms)
        held.update(saving=saving_gpu_ms, computing=-saving_gpu_ms)
