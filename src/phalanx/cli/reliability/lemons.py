"""`phalanx reliability lemons`: how many of the nodes that fail most are found, and what that is worth."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import TYPE_CHECKING

import click

from phalanx.cli.output import Column, Output, emit_one, output_option

if TYPE_CHECKING:
    from phalanx.cluster.cluster import Cluster
    from phalanx.faults.generate.draw import Site
    from phalanx.faults.generate.occurrence import Occurrence


COLUMNS = (
    Column("nodes"),
    Column("days"),
    Column("seeds"),
    Column("per_1000_node_days", "FAILURES IN 1,000 NODE-DAYS"),
    Column("recall"),
    Column("precision"),
    Column("recall_of_one_that_knows", "RECALL OF ONE THAT KNOWS"),
    Column("found_after_days", "FOUND AFTER DAYS"),
    Column("ettr_without", "ETTR WITHOUT"),
    Column("ettr_with", "ETTR WITH QUARANTINE"),
)
PRECISION = 0.85
COSTS = "none,start=5m,restore=2m,checkpoint=20s"


@click.command()
@click.option("--nodes", type=click.IntRange(16, 4096), default=256, show_default=True, help="Nodes of the cluster.")
@click.option(
    "--lemons", "count", type=click.IntRange(1, 64), default=4, show_default=True, help="Nodes that fail more."
)
@click.option(
    "--factor", type=click.FloatRange(1, 1000), default=20.0, show_default=True, help="How many times as often."
)
@click.option("--days", type=click.FloatRange(1, 365), default=28.0, show_default=True, help="Days to look at.")
@click.option(
    "--rate", type=click.FloatRange(0.01, 1000), default=13.0, show_default=True, help="Failures in 1,000 node-days."
)
@click.option("--seeds", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Runs to find lemons in.")
@click.option("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="The first of them.")
@click.option("--runs", type=click.IntRange(0, 1000), default=5, show_default=True, help="Of these, run through a job.")
@output_option
def lemons(
    nodes: int,
    count: int,
    factor: float,
    days: float,
    rate: float,
    seeds: int,
    first_seed: int,
    runs: int,
    output: Output,
) -> None:
    """Measure how well nodes that fail most are found, with the rules of `phalanx up --quarantine`.

    RECALL is the share of them that is found, PRECISION the share of those found that are such. RECALL OF ONE THAT
    KNOWS is what a likelihood-ratio test finds at a precision of 0.85 that is told the rate, and how many times as
    often lemons fail: a rule that only counts failures can hardly find more. A job on all but eight nodes runs through
    the failures of some seeds, with and without taking found nodes out of service.
    """
    from phalanx.cluster.cluster import Cluster, Node
    from phalanx.faults.generate.draw import Site, draw, lemons_of
    from phalanx.faults.generate.plan import DAY_MS, plan_of

    cluster = Cluster(tuple(Node(f"n{number:04}", (), 8) for number in range(nodes)), policy="fifo")
    site = Site.of(cluster)
    plan = plan_of(f"rsc-1:per_1000_node_days={rate!r},lemons={count},lemon_factor={factor!r},repair=4h")
    flagged = right = 0
    after: list[float] = []
    ratios: list[tuple[float, float]] = []
    scores: list[tuple[float, bool]] = []
    for seed in range(first_seed, first_seed + seeds):
        occurrences = draw(plan, site, int(days * DAY_MS), seed)
        found, true = found_in(occurrences, site), set(lemons_of(plan, site, seed))
        flagged, right = flagged + len(found), right + len(found.keys() & true)
        after += [at_ms / DAY_MS for node, at_ms in found.items() if node in true]
        known = likelihoods(occurrences, factor, rate / 1000)
        scores += [(score, node in true) for node, score in known.items()]
        if seed < first_seed + runs:
            without = ratio(cluster, occurrences, days)
            ratios.append((without, ratio(cluster, taken_out(occurrences, found, int(days * DAY_MS)), days)))
    emit_one(
        {
            "nodes": nodes,
            "days": days,
            "seeds": seeds,
            "per_1000_node_days": rate,
            "recall": round(right / (count * seeds), 4),
            "precision": round(right / flagged, 4) if flagged else None,
            "recall_of_one_that_knows": round(most_found(scores) / (count * seeds), 4),
            "found_after_days": round(sum(after) / len(after), 2) if after else None,
            "ettr_without": _mean([each for each, _ in ratios]),
            "ettr_with": _mean([each for _, each in ratios]),
        },
        COLUMNS,
        output,
    )


def _mean(values: list[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None


def found_in(occurrences: tuple[Occurrence, ...], site: Site) -> dict[str, int]:
    """Nodes that the rules find, and when."""
    from phalanx.faults.health.blame import Blame
    from phalanx.faults.health.quarantine import Quarantine

    quarantine, found = Quarantine(Blame.of(site.nodes)), dict[str, int]()
    for each in occurrences:
        for node in each.nodes:
            if node not in found:
                quarantine.blame.broke(node, each.at_ms)
                if quarantine.is_bad(node, each.at_ms):
                    found[node] = each.at_ms
    return found


def likelihoods(occurrences: tuple[Occurrence, ...], factor: float, per_day: float) -> dict[str, float]:
    """By how much the failures of a node speak for a lemon at most, at any of them: a log of a ratio of likelihoods."""
    counts: dict[str, int] = {}
    found: dict[str, float] = {}
    for each in occurrences:
        for node in each.nodes:
            counts[node] = counts.get(node, 0) + 1
            score = counts[node] * log(factor) - (factor - 1) * per_day * each.at_ms / 86_400_000
            found[node] = max(found.get(node, score), score)
    return found


def most_found(scores: list[tuple[float, bool]]) -> int:
    """How many lemons are found by the lowest threshold of all that keeps the precision."""
    most = right = 0
    for flagged, (_, is_lemon) in enumerate(sorted(scores, reverse=True), 1):
        right += is_lemon
        if right >= PRECISION * flagged:
            most = right
    return most


def taken_out(occurrences: tuple[Occurrence, ...], found: dict[str, int], until_ms: int) -> tuple[Occurrence, ...]:
    """The same failures, if nodes that are found stay out of service from then on."""
    kept = [each for each in occurrences if each.at_ms <= found.get(each.nodes[0], until_ms)]
    return tuple(replace(each, repair_ms=until_ms) if found.get(each.nodes[0]) == each.at_ms else each for each in kept)


def ratio(cluster: Cluster, occurrences: tuple[Occurrence, ...], days: float) -> float:
    """The part of the time in which a job on all but eight nodes does work that is kept."""
    from phalanx.simulate.figures.outcome import outcome
    from phalanx.simulate.simulation import Setup, Simulation
    from phalanx.simulate.trace import Trace, TraceJob
    from phalanx.simulate.world.costs import costs_of

    gpus, until_ms = (len(cluster.nodes) - 8) * 8, int(days * 86_400_000)
    trace = Trace("one job", (TraceJob("job", 0, 2 * until_ms, gpus),))
    setup = Setup(cluster, trace, "fifo", costs=costs_of(COSTS), occurrences=occurrences, every_ms=600_000)
    simulation = Simulation(setup)
    simulation.begin()
    simulation.go(until_ms)
    useful = outcome(simulation, "fifo").summary["failures"]["gpu_s"]["useful"]
    return float(useful) / (gpus * days * 86_400)
