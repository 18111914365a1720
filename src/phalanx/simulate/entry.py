"""`phalanx.simulate` and `phalanx.compare`: what the verbs of these names do, for programs in Python."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from os import PathLike, fspath
from types import NoneType
from typing import TypedDict, Unpack

from phalanx.cluster.cluster import Cluster
from phalanx.document.error import brief
from phalanx.document.units import duration_ms
from phalanx.placement.packings import PACKINGS
from phalanx.policy.policy import Policy
from phalanx.policy.registry import register
from phalanx.simulate.estimates import estimates_of
from phalanx.simulate.figures.result import Result
from phalanx.simulate.figures.window import Window
from phalanx.simulate.health_loop import health_loop_of
from phalanx.simulate.plugins import resolve_policy
from phalanx.simulate.simulation import COUNT, Watch
from phalanx.simulate.studies.batch import run_cases, run_one
from phalanx.simulate.studies.source import Recorded, Source, source_of
from phalanx.simulate.studies.study import Study, StudyError
from phalanx.simulate.studies.vary import Variation
from phalanx.simulate.trace import Trace
from phalanx.simulate.traces.load import load_of
from phalanx.simulate.traces.open import File, read_trace_cluster
from phalanx.simulate.world.costs import Costs, costs_of
from phalanx.simulate.world.faults import failures_of
from phalanx.simulate.world.throughputs import read_throughputs

PLACEMENTS = (COUNT, *PACKINGS)


class OptionError(StudyError, TypeError):
    """An option that there is not, or whose value is none."""


class Options(TypedDict, total=False):
    """What may be said of a run beside its cluster, trace and policy: the options of the verbs, as they are written.

    `placement` is one of `PLACEMENTS`, `costs` are `default`, `none` or `start=30s,…`, `faults` is a CSV file or a
    profile of failures such as `rsc-1:scale=2`, `checkpoint_every` a time such as `10m`, `until` a time such as `3d`,
    `throughputs` a JSON file of measured speeds. `estimates` say how long jobs say they take: `exact`, `factor=1.3`,
    `spread=0.3`, `f=4` or `round`. `quarantine` has nodes watched as by a server: `0.1,time=30m,canary=10m`.
    """

    placement: str
    costs: Costs | str
    seed: int
    load: float | str | None
    faults: File | None
    until: str | None
    skip_bad_rows: bool
    throughputs: File | None
    estimates: str | None
    window: str | None
    checkpoint_every: str | None
    quarantine: str | None


FILE = ((str, PathLike, NoneType), "a file")
EXPECTED: dict[str, tuple[tuple[type, ...], str]] = {
    "placement": ((str,), "a placement, such as 'count'"),
    "costs": ((Costs, str), "costs, such as 'none' or 'start=30s'"),
    "seed": ((int,), "a whole number"),
    "load": ((float, int, str, NoneType), "a number, such as 0.9, or a change, such as '+30%'"),
    "faults": FILE,
    "until": ((str, NoneType), "a time since the run began, such as '12h' or '3d'"),
    "skip_bad_rows": ((bool,), "True or False"),
    "throughputs": FILE,
    "estimates": ((str, NoneType), "estimates, such as 'f=4'"),
    "window": ((str, NoneType), "a window, such as '1d:6d' or '10%:90%'"),
    "checkpoint_every": ((str, NoneType), "a time, such as '10m'"),
    "quarantine": ((str, NoneType), "a share of the nodes, such as '0.1' or '0.1,time=30m,canary=10m'"),
}


def simulate(
    cluster: Cluster | File,
    trace: Trace | File,
    policy: str | Policy = "",
    *,
    watch: Watch | None = None,
    **options: Unpack[Options],
) -> Result:
    """One run in virtual time, under the cluster's own policy if none is given.

    The trace may be `synthetic:jobs=1000,load=0.9,…`. `watch` is shown the State after every turn; if it raises
    `Stopped`, the run ends there. See `Options` for the rest.
    """
    study = study_of(cluster, trace, options)
    (case,) = study.cases(policies_of([policy or study.cluster.policy]))
    return run_one(study.setup(case), case.policy, study.until_ms, watch, study.window)


def compare(
    cluster: Cluster | File,
    trace: Trace | File,
    policies: Iterable[str | Policy],
    *,
    seeds: int = 1,
    vary: str = "",
    workers: int = 1,
    **options: Unpack[Options],
) -> list[Result]:
    """A run for every policy, and with `vary` and `seeds` for every value and seed: by value, seed, policy.

    With more `workers` than one, runs go on in other processes, which import the main program again: guard it by
    `if __name__ == "__main__":`. A policy that is given as a value, not by name, can run only in this process.
    """
    study = study_of(cluster, trace, options)
    cases = study.cases(policies_of(policies), seeds, Variation.parse(vary) if vary else None)
    results = dict(run_cases(study, cases, workers))
    return [results[number] for number in range(len(cases))]


def study_of(cluster: Cluster | File, trace: Trace | File, options: Options) -> Study:
    """A study, out of what people write."""
    _check(options)
    if not isinstance(cluster, Cluster):
        cluster = read_trace_cluster(cluster)
    skip_bad_rows = options.get("skip_bad_rows", False)
    source = Recorded(trace) if isinstance(trace, Trace) else source_of(fspath(trace), skip_bad_rows)
    costs, faults = options.get("costs", "default"), options.get("faults")
    failures = failures_of(None if faults is None else fspath(faults), cluster)
    throughputs, estimates, window = options.get("throughputs"), options.get("estimates"), options.get("window")
    quarantine = options.get("quarantine")
    return Study(
        cluster,
        source,
        placement_of(options.get("placement", "topology")),
        costs if isinstance(costs, Costs) else costs_of(costs),
        options.get("seed", 0),
        _load_of(options.get("load"), source, cluster),
        failures.faults,
        until_of(options.get("until")),
        None if throughputs is None else read_throughputs(fspath(throughputs)),
        None if estimates is None else estimates_of(estimates),
        occurrences=failures.occurrences,
        plan=failures.plan,
        every_ms=every_of(options.get("checkpoint_every")),
        window=None if window is None else Window.parse(window),
        health=None if quarantine is None else health_loop_of(quarantine),
    )


def _load_of(load: float | str | None, source: Source, cluster: Cluster) -> float | None:
    if not isinstance(load, str):
        return load
    is_change = load.rstrip().endswith("%")
    return load_of(load, source.load(cluster.gpus) if is_change else 0.0)


def _check(options: Options) -> None:
    """A type checker finds these too; a caller without one would wait for an answer to another question."""
    for name, value in options.items():
        if name not in EXPECTED:
            near = get_close_matches(name, EXPECTED, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise OptionError(f"there is no option {brief(name)}{meant} (there are: {', '.join(EXPECTED)})")
        types, expected = EXPECTED[name]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise OptionError(f"{name} is {brief(repr(value))}: expected {expected}")


def placement_of(name: str) -> str:
    """A placement that there is."""
    if name not in PLACEMENTS:
        raise StudyError(f"there is no placement {brief(name)!r} (there is: {', '.join(PLACEMENTS)})")
    return name


def until_of(until: str | None) -> int | None:
    """A moment of virtual time, as people write it."""
    if until is None:
        return None
    at_ms = duration_ms(until)
    if at_ms is None:
        raise StudyError(f"until {brief(until)}: expected a time since the run began, such as 12h or 3d")
    return at_ms


def every_of(every: str | None) -> int:
    """The time between two checkpoints of every job, as people write it; 0 if it is not said."""
    if every is None:
        return 0
    every_ms = duration_ms(every)
    if not every_ms:
        raise StudyError(f"checkpoint_every {brief(every)}: expected a time above 0, such as 10m")
    return every_ms


def policies_of(policies: Iterable[str | Policy]) -> dict[str, str]:
    """Policies as they are written, each with what the engine takes. One that is given twice is an error."""
    found: dict[str, str] = {}
    for policy in policies:
        written = policy if isinstance(policy, str) else _registered(policy)
        if written in found:
            raise StudyError(f"policy {written!r} is given twice")
        found[written] = resolve_policy(written)
    return found


def _registered(policy: Policy) -> str:
    register(policy.name, lambda parameters: policy)
    return policy.name
