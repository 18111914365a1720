"""`phalanx reliability check`: the scheduler in virtual time beside the closed form and chance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.exit import Exit
from phalanx.cli.output import Column, Output, emit, output_option

if TYPE_CHECKING:
    from phalanx.faults.reliability.course import Course

COLUMNS = (
    Column("gpus", "GPUS"),
    Column("mttf_h", "MTTF H"),
    Column("interval_s", "INTERVAL S"),
    Column("failures"),
    Column("simulator"),
    Column("exact"),
    Column("chance"),
    Column("off", "FARTHEST APART"),
    Column("unbooked_s", "UNBOOKED S", wide=True),
)
NODES = (1, 4, 16, 64)
MTTF_HOURS = (24.0, 8.0, 4.0, 2.0)
DETECT_S, RESTART_S, RELOAD_S, SAVE_S = 60, 240, 60, 15
BOUND = 0.02
SPARES = 4


@click.command()
@click.option(
    "--failures",
    type=click.IntRange(10, 100_000),
    default=1500,
    show_default=True,
    help="Failures in each run; with fewer, chance alone is more than 2 %.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the failures.")
@output_option
def check(failures: int, seed: int, output: Output) -> int:
    """Compare the scheduler in virtual time with the closed form and simulation by chance, in 16 settings.

    One job runs on a cluster with spare nodes that fail. Exits with 1 if any two are more than 2 % apart.
    """
    rows = list(checked(failures, seed))
    emit(rows, COLUMNS, output)
    return Exit.OK if all(row["off"] <= BOUND for row in rows) else Exit.ERROR


def checked(failures: int, seed: int) -> Iterator[dict[str, Any]]:
    """A row for each setting."""
    from phalanx.faults.reliability.ettr import exact_ettr
    from phalanx.faults.reliability.monte_carlo import simulated

    for nodes in NODES:
        for mttf_h in MTTF_HOURS:
            course = course_for(mttf_h)
            held, found = scheduled(course, nodes, failures, seed)
            exact, chance = exact_ettr(course), simulated(course, 20_000, seed).split.work
            ratios = (found["gpu_s"]["useful"] / held, exact, chance)
            yield {
                "gpus": nodes * 8,
                "mttf_h": mttf_h,
                "interval_s": round(course.interval_s, 1),
                "failures": found["interrupted"],
                "simulator": round(ratios[0], 4),
                "exact": round(exact, 4),
                "chance": round(chance, 4),
                "off": round(max(ratios) / min(ratios) - 1, 4),
                "unbooked_s": round(abs(held - sum(found["gpu_s"].values())), 3),
            }


def course_for(mttf_h: float) -> Course:
    """The course of a job with the best interval, in whole seconds."""
    from phalanx.faults.reliability.course import Course
    from phalanx.faults.reliability.intervals import exact_s

    interval_s = float(round(exact_s(SAVE_S, mttf_h * 3600)))
    return Course(1 / mttf_h, interval_s, SAVE_S, DETECT_S, 0, RESTART_S, RELOAD_S)


def scheduled(course: Course, nodes: int, failures: int, seed: int) -> tuple[float, dict[str, Any]]:
    """GPU-seconds that the job had with all that it waited, and what they went to, as the scheduler has it."""
    from phalanx.cluster.cluster import Cluster, Node
    from phalanx.simulate.entry import simulate
    from phalanx.simulate.trace import Trace, TraceJob

    work_s = int(course.mttf_s * failures)
    cluster = Cluster(tuple(Node(f"n{number:03}", (), 8) for number in range(nodes + SPARES)), policy="fifo")
    trace = Trace("one job", (TraceJob("job", 0, work_s * 1000, nodes * 8),))
    per_node = 24_000 / (course.mttf_s / 3600) / nodes
    plan = f"rsc-1:per_1000_node_days={per_node!r},detect={DETECT_S}s,repair=1m,days={work_s * 3 / 86_400}"
    costs = f"none,start={RESTART_S}s,restore={RELOAD_S}s,checkpoint={SAVE_S}s"
    result = simulate(cluster, trace, seed=seed, faults=plan, costs=costs, checkpoint_every=f"{course.interval_s:.0f}s")
    found = result.summary["failures"]
    took_s = result.jobs[0].jct_s
    assert took_s is not None, "failures are drawn for so long that the job ends"
    return took_s * nodes * 8, found
