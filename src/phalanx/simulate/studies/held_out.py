"""The held-out suite: recorded traces cut in two. On the earlier half of each every policy is tuned, with as many tries
as any other; on the later half, which no parameter was chosen by, it is measured in the middle of each run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, fsum, log

from phalanx.simulate.figures.window import Window
from phalanx.simulate.plugins import resolve_policy
from phalanx.simulate.studies.real import halves
from phalanx.simulate.studies.suite import HELD_OUT, LOADS, NEEDS, Cell, Suite, SuiteError, Workload

STEADY = "10%:90%"
"""Of the time in which jobs are submitted: without the jobs that find the cluster empty, and those that leave it so."""

TUNING_LOADS, TUNING_SEEDS = (0.9,), 2

GITTINS = NEEDS["tiresias-gittins"]

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "phalanx": ("phalanx", "phalanx:patience=1", "phalanx:patience=4", "phalanx:first=3600"),
    "las": ("las", "las:quantum=600", "las:quantum=14400", "las:dims=1"),
    "tiresias-las": (
        "tiresias-las",
        "tiresias-las:limits=600/3600",
        "tiresias-las:limits=3600/36000",
        "tiresias-las:starvation=8",
    ),
    "tiresias-gittins": (GITTINS, f"{GITTINS},quantum=600", f"{GITTINS},inside=running", f"{GITTINS},index=code"),
    "kai": ("kai", "kai:consolidate=false", "kai:reclaim=false", "kai:over_quota=equal"),
    "volcano": ("volcano", "volcano:queues=hdrf", "volcano:reclaim=false", "volcano:preempt=false"),
    "themis": ("themis", "themis:lease=5m", "themis:lease=1h", "themis:filter=50"),
    "yarn-cs": ("yarn-cs", "yarn-cs:relax_after=0", "yarn-cs:relax_after=1800", "yarn-cs:preempt_above=100"),
    "fair": ("fair", "fair:half_life=7d", "fair:backfill=easy", "fair:backfill=conservative"),
    "multifactor": (
        "multifactor",
        "multifactor:backfill=easy",
        "multifactor:favor=small",
        "multifactor:backfill=easy,favor=small",
    ),
    "backfill": ("backfill", "backfill:mode=conservative"),
    "srtf": ("srtf", "srtf:by=gpu_time", "srtf:by=gpus"),
    "fifo": ("fifo", "fifo:skip=true"),
}
"""What is tried of each policy, its defaults first: four settings at most, and as many as change what it is about."""


def tuning(recorded: Sequence[Workload], policies: Sequence[str] = ()) -> Suite:
    """Every setting on the earlier halves."""
    if not recorded:
        raise SuiteError(
            f"the suite {HELD_OUT} runs on recorded traces alone: give --philly FILE, or --openb-pods FILE and "
            "--openb-nodes FILE, or both"
        )
    tried = [setting for settings in settings_of(policies).values() for setting in settings]
    earlier = tuple(_steady(halves(workload)[0]) for workload in recorded)
    specs = {written: resolve_policy(written) for written in dict.fromkeys(tried)}
    return Suite(f"{HELD_OUT}, tuning", earlier, specs, TUNING_LOADS, TUNING_SEEDS)


def measuring(
    recorded: Sequence[Workload], tuned: Mapping[str, Mapping[str, float]], seeds: int, loads: Sequence[float] = LOADS
) -> Suite:
    """The best setting of each policy on the later halves. `tuned` is by that setting what each came to."""
    later = tuple(_steady(halves(workload)[1]) for workload in recorded)
    return Suite(HELD_OUT, later, {best: resolve_policy(best) for best in tuned}, tuple(loads), seeds, tuned)


def settings_of(policies: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """What is tried of each policy. One that is given with parameters, or that nothing is known of, is as it is."""
    return {written: SETTINGS.get(written, (written,)) for written in policies or tuple(SETTINGS)}


def tuned_by(cells: Sequence[Cell], policies: Sequence[str] = ()) -> dict[str, dict[str, float]]:
    """By the best setting of each policy, how many times the best one's mean JCT each of its settings has.

    It is the geometric mean over workloads of means over seeds. Settings that failed anywhere are left out, and so is a
    policy of which all did.
    """
    found: dict[str, dict[str, float]] = {}
    for settings in settings_of(policies).values():
        means = {setting: mean for setting in settings if (mean := _mean_jct_s(cells, setting)) is not None}
        if means:
            best = min(means, key=lambda setting: means[setting])
            found[best] = {setting: mean / means[best] for setting, mean in means.items()}
    return found


def _mean_jct_s(cells: Sequence[Cell], policy: str) -> float | None:
    places = dict.fromkeys((cell.workload, cell.load) for cell in cells)
    logs = []
    for place in places:
        own = [cell for cell in cells if cell.policy == policy and (cell.workload, cell.load) == place]
        values = [cell.summary["jct_s"]["mean"] for cell in own]
        if len(values) < TUNING_SEEDS or None in values:
            return None
        logs.append(log(max(fsum(values) / len(values), 1e-3)))
    return exp(fsum(logs) / len(logs)) if logs else None


def _steady(workload: Workload) -> Workload:
    told = f"{workload.about}; of each run, times are of jobs submitted from {STEADY.replace(':', ' to ')} of its time"
    return replace(workload, about=told, window=Window.parse(STEADY))
