"""What fails on a cluster in a month, and what does that do to a job? Draws failures, fits them, and runs through them.

    python failure_simulation.py --nodes 64 --days 28 --profile llama-3:scale=20 --log failures.csv --plot failures.html

1. Failures are drawn by a published profile, with lemons and bursts if you like, and counted by cause and node.
2. Rates are fitted to what was drawn, as to the log of a real cluster: do they come out as they were put in?
3. The scheduler runs a job on all but two of the nodes through them, in virtual time, and saves it at five intervals.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from phalanx.cluster.cluster import Cluster, Node
from phalanx.faults.fit.fitted import fit
from phalanx.faults.fit.log import read_log
from phalanx.faults.generate.draw import Site, draw, lemons_of
from phalanx.faults.generate.file import as_csv
from phalanx.faults.generate.occurrence import Occurrence, What
from phalanx.faults.generate.plan import DAY_MS, Plan, plan_of
from phalanx.simulate.entry import simulate as run
from phalanx.simulate.trace import Trace, TraceJob

GPUS = 8
SPARES = 2
INTERVALS = ("2m", "10m", "30m", "2h", "12h")
PARTS = ("useful", "checkpoint", "recompute", "detection", "restart", "reload")


def cluster_of(nodes: int) -> Cluster:
    """Nodes of 8 GPUs, eight to a rack."""
    names = [(f"n{number:04}", f"rack{number // 8}") for number in range(nodes)]
    return Cluster(tuple(Node(name, (rack,), GPUS) for name, rack in names), levels=("rack", "node"), policy="fifo")


def counted(found: tuple[Occurrence, ...], plan: Plan, site: Site, seed: int) -> None:
    """By cause, and the nodes that fail most: are the lemons among them?"""
    print(f"{len(found)} failures")
    for cause, count in Counter(each.cause for each in found).most_common(8):
        print(f"  {count:5}  {cause}")
    worst = Counter(node for each in found for node in each.nodes).most_common(5)
    lemons = lemons_of(plan, site, seed)
    told = ", ".join(f"{node} {count}{' (a lemon)' if node in lemons else ''}" for node, count in worst)
    print(f"nodes that fail most: {told}")


def fitted(found: tuple[Occurrence, ...], nodes: int, days: float) -> None:
    """The rate that the failures tell of, beside that of their profile."""
    alone = [each for each in found if len(each.nodes) == 1 and each.what in (What.NODE, What.PROCESS)]
    if len(alone) < 2:
        print("too few failures to fit")
        return
    log = "at_s,node\n" + "".join(f"{each.at_ms / 1000},{each.nodes[0]}\n" for each in alone)
    result = fit(read_log(log, "the log", nodes, days * 86_400))
    rate = 24_000 / result.exponential.mean_hours
    low, high = result.low_per_hour * 24_000, result.high_per_hour * 24_000
    print(f"fitted: {rate:.3g} failures in 1,000 node-days (95 %: {low:.3g} to {high:.3g})")
    print(f"Weibull shape {result.weibull.shape:.3f}; {result.better.name} explains them better")


def through(cluster: Cluster, plan: str, days: float, seed: int) -> dict[str, dict[str, float]]:
    """The parts of its time of one large job, for each interval between checkpoints."""
    gpus = (len(cluster.nodes) - SPARES) * GPUS
    trace = Trace("one job", (TraceJob("training", 0, int(days / 2 * DAY_MS), gpus),))
    parts = {}
    for every in INTERVALS:
        result = run(
            cluster,
            trace,
            seed=seed,
            faults=f"{plan},days={days}" if ":" in plan else f"{plan}:days={days}",
            costs="none,start=3m,restore=1m,checkpoint=20s",
            checkpoint_every=every,
            until=f"{days}d",
        )
        spent = result.summary["failures"]["gpu_s"]
        held = sum(spent.values())
        parts[every] = {name: value / held for name, value in spent.items()}
    return parts


def draw_plot(parts: dict[str, dict[str, float]], path: Path) -> None:
    """A stacked bar for each interval."""
    import plotly.graph_objects as go

    bars = [go.Bar(name=part, x=list(parts), y=[parts[every][part] for every in parts]) for part in PARTS]
    layout = {"barmode": "stack", "yaxis_tickformat": ".0%", "title": "Where the time goes, by interval"}
    go.Figure(bars, layout).write_html(path, include_plotlyjs=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--days", type=float, default=28.0)
    parser.add_argument("--profile", default="llama-3:scale=20,lemons=2,burst=0.02,repair=4h")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="write the failures there, for `phalanx simulate --faults`")
    parser.add_argument("--plot", type=Path, help="write a chart there (needs plotly)")
    given = parser.parse_args()
    cluster, plan = cluster_of(given.nodes), plan_of(given.profile)
    site = Site.of(cluster, plan.level)
    found = draw(plan, site, int(given.days * DAY_MS), given.seed)
    counted(found, plan, site, given.seed)
    fitted(found, given.nodes, given.days)
    if given.log:
        given.log.write_text(as_csv(found))
    parts = through(cluster, given.profile, given.days, given.seed)
    print("every  " + "  ".join(f"{part:>10}" for part in PARTS))
    for every, each in parts.items():
        print(f"{every:<6} " + "  ".join(f"{each[part]:>10.2%}" for part in PARTS))
    best = max(parts, key=lambda every: parts[every]["useful"])
    print(f"best of these: every {best}")
    if given.plot:
        draw_plot(parts, given.plot)


if __name__ == "__main__":
    main()
