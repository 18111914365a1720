"""The answer of the planner, in words and as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import Any

from phalanx.capacity.planner import Plan
from phalanx.capacity.point import Point
from phalanx.capacity.target import Figure, Target
from phalanx.simulate.figures.confidence import Interval
from phalanx.simulate.figures.spread import rounded
from phalanx.simulate.studies.table import duration_text

SCHEMA = 1


def sentences(plan: Plan, seeds: int) -> list[str]:
    """The answer in words."""
    point = plan.answer or plan.best
    told = [
        f"{target.figure} < {_brief(target.below_s)}: {time_text(point, index)}"
        for index, target in enumerate(plan.targets)
    ]
    now = f"now: {_size(plan.present)}, {_told(plan.present, plan.targets)}"
    if plan.answer is None:
        best = f"{'; '.join(told)} with {_size(point)} is the best"
        return [f"{plan.policy}: no number of nodes reaches {best}; more change nothing", f"  {now}"]
    less = next((each for each in plan.curve if each.nodes == point.nodes - 1), None)
    lines = [f"{plan.policy}: {_size(point)} hold {'; '.join(told)}, over {_draws(seeds)}", f"  {now}"]
    if less is not None:
        lines.append(f"  with {_size(less)} not: {_told(less, plan.targets)}")
    if plan.check is not None:
        lines.append(f"  over {_draws(seeds)} more: {_told(plan.check, plan.targets)}")
    return lines


def _brief(seconds: float) -> str:
    """A limit as people write it: 10m, not 10m 0s."""
    return " ".join(part for part in duration_text(seconds).split() if part[:-1].strip("0"))


def _size(point: Point) -> str:
    return f"{point.nodes:,} node{'s' * (point.nodes != 1)} ({point.gpus:,} GPUs)"


def _draws(seeds: int) -> str:
    return "1 draw" if seeds == 1 else f"{seeds} draws"


def _told(point: Point, targets: Sequence[Target]) -> str:
    return "; ".join(f"{target.figure} {time_text(point, index)}" for index, target in enumerate(targets))


def never_notes(policy: str, never: Mapping[str, int]) -> list[str]:
    """What to say of jobs that no number of nodes starts."""
    if not never:
        return []
    largest = max(never, key=lambda job: never[job])
    jobs = "1 job starts" if len(never) == 1 else f"{len(never):,} jobs start"
    counts = "counts" if len(never) == 1 else "count"
    told = f"policy {policy}: {jobs} with no number of nodes and {counts} in no figure"
    return [f"{told}; the largest: {largest}, of {never[largest]} GPUs"]


def time_text(point: Point, index: int) -> str:
    """A figure of a point, with how sure the draws make it."""
    found = point.figure(index)
    if found is None:
        return "never starts" if any(sample.values[index] == inf for sample in point.samples) else "-"
    margin = "" if found.high is None else f" ± {duration_text(found.high - found.mean)}"
    return duration_text(found.mean) + margin


def plan_data(plan: Plan, figures: Sequence[Figure]) -> dict[str, Any]:
    """A plan as plain data, for programs."""
    return {
        "schema": SCHEMA,
        "policy": plan.policy,
        "targets": [{"figure": str(each.figure), "below_s": each.below_s} for each in plan.targets],
        "reached": plan.is_reached,
        "answer": None if plan.answer is None else point_data(plan.answer, figures),
        "best": point_data(plan.best, figures),
        "present": point_data(plan.present, figures),
        "check": None if plan.check is None else point_data(plan.check, figures),
        "curve": [point_data(point, figures) for point in plan.curve],
        "never_start": len(plan.never),
        "runs": plan.runs,
    }


def point_data(point: Point, figures: Sequence[Figure]) -> dict[str, Any]:
    """A point as plain data, for programs."""
    return {
        "policy": point.policy,
        "nodes": point.nodes,
        "gpus": point.gpus,
        "figures": [
            {"figure": str(figure), **_interval_data(point.figure(index))} for index, figure in enumerate(figures)
        ],
        "gpu_allocated": _interval_data(point.allocated),
        "gpu_hours": _interval_data(point.gpu_hours),
        "usd_held": rounded(point.usd_held),
        "usd_month": rounded(point.usd_month),
    }


def _interval_data(found: Interval | None) -> dict[str, Any]:
    """Without a mean where jobs never start."""
    if found is None or not isfinite(found.mean):
        return {"mean": None, "low": None, "high": None, "seeds": None}
    return {
        "mean": rounded(found.mean),
        "low": rounded(found.low),
        "high": rounded(found.high),
        "seeds": found.count,
    }
