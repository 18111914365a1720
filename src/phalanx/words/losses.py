"""What a job has lost by being preempted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.engine.state.records import StopReason
from phalanx.simulate.studies.table import duration_text
from phalanx.words.phrases import counted, gpu_time


def lost_words(tries: Sequence[Mapping[str, Any]]) -> str:
    """How often attempts at a job, as the server lists them, were preempted and what was lost; empty if none was."""
    stopped = [each for each in tries if each["reason"] == StopReason.PREEMPTED and each["started_ms"] is not None]
    if not stopped:
        return ""
    times = "preempted once" if len(stopped) == 1 else f"preempted {len(stopped)} times"
    known = [each for each in stopped if each["lost_ms"] is not None]
    if not known:
        return f"{times}, how much work was lost is not known: it says that it saves and reports no durable step"
    at_least = "at least " if len(known) < len(stopped) else ""
    lost = duration_text(sum(each["lost_ms"] for each in known) / 1000)
    amounts, unit = gpu_time(sum(each["lost_gpu_ms"] for each in known))
    return f"{times}, {at_least}{lost} of work{_on(known)} lost ({amounts[0]} {unit})"


def _on(tries: Sequence[Mapping[str, Any]]) -> str:
    """On how many GPUs, where these were as many each time."""
    sizes = {sum(len(slot["devices"]) for slot in each["slots"]) for each in tries}
    return f" on {counted(sizes.pop(), 'GPU')}" if len(sizes) == 1 else ""
