"""The document of a design: the same sections as a page with plots, or as Markdown."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from phalanx.cli.reliability.charts import curves_chart, lost_chart, tornado_chart
from phalanx.cli.reliability.pages import write_page
from phalanx.faults.reliability.course import Course
from phalanx.faults.reliability.design import Design, Option
from phalanx.faults.reliability.design import design as design_for
from phalanx.faults.reliability.ettr import exact_ettr
from phalanx.faults.reliability.tiers import tiered_split
from phalanx.faults.reliability.tornado import tornado
from phalanx.faults.taxonomy.cause import shares
from phalanx.faults.taxonomy.fleet import Fleet
from phalanx.simulate.report.chart import Chart, Grid, axis
from phalanx.simulate.report.page import Content, Section
from phalanx.simulate.report.scripts import ReportError
from phalanx.simulate.report.tables import grid_table
from phalanx.simulate.report.text import page_text

Part = tuple[str, str, str, Grid]
"""Key, heading, what to know of it, and its table."""

TEXT_MAX = 1000


def write_document(found: Design, path: str) -> None:
    """Writes it: Markdown where the name says so, else one HTML file."""
    if path.endswith(".md"):
        try:
            Path(path).write_text(markdown(found), encoding="utf-8")
        except OSError as error:
            raise ReportError(f"{path}: {error.strerror}") from error
        return
    write_page(path, title_of(found), overview_of(found), sections(found))


def title_of(found: Design) -> str:
    """What the document is of."""
    return f"Fault tolerance of a job on {found.wish.fleet.gpus:,} GPUs"


def overview_of(found: Design) -> str:
    """What it comes to, in a few sentences."""
    wish, chosen = found.wish, found.chosen
    met = "reaches" if found.reached else "is the best there is and does not reach"
    return (
        f"Strategy “{chosen.strategy.name}” {met} the target of {wish.target:.4g}: an effective training time ratio of "
        f"{chosen.ettr:.4f}, and a goodput of {chosen.goodput:.4f} with its spares. Failures are those of "
        f"{wish.profile.name}: one every {found.mttf_hours:.3g} hours. Most is lost to {found.bound}."
    )


def markdown(found: Design) -> str:
    """The document without plots."""
    lines = [f"# {title_of(found)}", "", overview_of(found), ""]
    for _, heading, note, grid in parts(found):
        lines += [f"## {heading}", "", note, "", _row(grid.header), _row(("---",) * len(grid.header))]
        lines += [*map(_row, grid.rows), ""]
    return "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def sections(found: Design) -> list[Section]:
    """The sections of the page: each table, and the plots where they belong."""
    course = _as_course(found.chosen)
    plots: dict[str, list[Chart]] = {
        "strategies": [_lost(found), *_sizes(found)],
        "tiers": [_interval(found)],
        "buys": [tornado_chart(tornado(course), exact_ettr(course))],
    }
    pages: list[Section] = []
    for key, heading, note, grid in parts(found):
        content: list[Content] = [f"<p>{page_text(note, TEXT_MAX)}</p>{grid_table(grid, heading)}"]
        pages.append((key, heading, [*content, *plots.get(key, [])]))
    pages.append(("buys", "Which figure buys most", [*plots["buys"]]))
    return pages


def parts(found: Design) -> list[Part]:
    """Every part of the document but its plots."""
    return [
        _causes(found),
        _strategies(found),
        _tiers(found),
        _copies(found),
        _spares(found),
        _detection(found),
        _network(found),
        _storage(found),
        _cost(found),
        _times(found),
    ]


def _causes(found: Design) -> Part:
    fleet, profile = found.wish.fleet, found.wish.profile
    rows = tuple(
        (cause.name, cause.domain.value, cause.recovery.value, f"{share:.1%}", f"{1 / cause.rate.of(fleet):.3g} h")
        for cause, share in shares(profile, fleet)
    )
    assumed = [f"{cause.name}: {cause.assumed}" for cause in profile.causes if cause.assumed]
    note = f"{profile.title}. From {profile.source}, {profile.date}."
    if assumed:
        note += f" Not in the source: {'; '.join(dict.fromkeys(assumed))}."
    return "causes", "What fails", note[:TEXT_MAX], Grid(("cause", "domain", "recovery", "share", "every"), rows)


def _strategies(found: Design) -> Part:
    rows = tuple(
        (
            each.strategy.name,
            f"{each.ettr:.4f}",
            f"{each.goodput:.4f}",
            str(each.spares),
            f"{each.usd_useful_gpu_h:.3f}",
            "yes" if each.ettr >= found.wish.target else "no",
        )
        for each in found.options
    )
    header = ("strategy", "ETTR", "goodput", "spares", "USD a useful GPU-hour", "reaches the target")
    about = "; ".join(f"{each.strategy.name}: {each.strategy.about}" for each in found.options)
    note = f"The ratio is of the job's own time; goodput counts spares as provisioned, too. From the simplest, {about}."
    return "strategies", "Strategies", note, Grid(header, rows)


def _tiers(found: Design) -> Part:
    strategy = found.chosen.strategy
    rows = tuple(
        (
            tier.name,
            f"{tier.interval_s:.0f} s",
            f"{tier.save_s:.2f} s" if tier.save_s else "part of the next",
            f"{tier.reload_s:.1f} s",
            ", ".join(way.name for way in strategy.ways if way.tier == number and not way.keeps and way.per_hour)
            or "-",
        )
        for number, tier in enumerate(strategy.tiers)
    )
    note = (
        "Each tier is saved as often as is best for the failures that need it: (1 − Δ/M)·e^(Δ/M) = e^(−δ/M), which "
        "Young's √(2δM) approximates. A failure goes back to the newest save that survives it."
    )
    return "tiers", "Tiers and intervals", note, Grid(("tier", "every", "stops work for", "loads in", "for"), rows)


def _copies(found: Design) -> Part:
    rows = tuple(
        (
            str(each.copies),
            f"{each.from_memory:.6f}",
            f"{each.memory_gb:.1f} GB",
            f"{each.traffic_s:.2f} s",
            f"{each.lost:.3%}",
            "no: too little memory" if not each.fits else "best" if each == found.best else "",
        )
        for each in found.copies
    )
    wish = found.wish
    note = (
        "Copies of each shard in the memory of nodes, the own one included, in groups of different racks. Of failures, "
        f"{wish.burst:.0%} are taken to hit {wish.burst_nodes} nodes at once. Chances are exact for Gemini's placement."
    )
    header = ("copies", "recovers from memory", "memory of a node", "network a save", "time lost", "choice")
    return "copies", "Replicas in memory", note, Grid(header, rows)


def _spares(found: Design) -> Part:
    warm = found.standby
    rows = (
        ("spare nodes, enough for 99 % of the time", str(found.spares)),
        ("of them kept warm", str(found.warm)),
        ("nodes that fail in a day", f"{warm.failures:.2f}"),
        ("GPU-hours a day lost by waiting for a node", f"{warm.requeue_gpu_h:,.0f}"),
        ("GPU-hours a day lost with warm standby", f"{warm.warm_gpu_h:,.0f}"),
        ("GPU-hours a day that warm nodes are idle", f"{warm.idle_gpu_h:,.0f}"),
        ("GPU-hours a day that warm standby saves", f"{warm.saved_gpu_h:,.0f}"),
    )
    note = "By the quantile of the binomial number of nodes in repair; spares fail, too."
    return "spares", "Spares and warm standby", note, Grid(("what", "value"), rows)


def _detection(found: Design) -> Part:
    most = found.detect_most_s
    allowed = "no time at all would do" if most is None else f"{most:.0f} s"
    rows = (
        ("a process that ends", "seconds", "the launcher sees its exit"),
        ("a node that is silent", "3 heartbeats", "the agent is counted as lost"),
        ("a hang", "a collective's timeout", "the launcher asks every rank for its stack"),
        ("a slow rank", "some ten steps", "its time to compute is beside that of others"),
        ("a GPU that reports an error", "seconds", "XID codes in the kernel log"),
        ("wrong results", "hours", "checks between jobs, and digests of replicas"),
        ("all of them, assumed here", f"{found.times.detect_s:.0f} s", ""),
        ("all of them, at most for the target", allowed, f"strategy {found.chosen.strategy.name}"),
    )
    note = "How fast what must be noticed, and by what. The last line is what the target leaves room for."
    return "detection", "Detection", note, Grid(("failure", "within", "by"), rows)


def _network(found: Design) -> Part:
    network, wish = found.network, found.wish
    rows = (
        ("links in repair at a time", f"{network.links_down:.3f}"),
        (f"bandwidth left where one of {wish.uplinks} uplinks is lost", f"{network.bandwidth_left:.1%}"),
        ("speed lost by that, on average", f"{network.slowdown:.3%}"),
        ("time lost until another path is found", f"{network.stall_share:.3%}"),
        ("time saved beside restarting for each", f"{network.saved_share:.3%}"),
    )
    note = (
        f"By formula: with one of u uplinks of a leaf lost, the {wish.exposed:.0%} of a step in which communication is "
        "not hidden take u/(u − 1) as long until it is repaired."
    )
    return "network", "Network reroute", note, Grid(("what", "value"), rows)


def _storage(found: Design) -> Part:
    traffic = found.traffic
    rows = (
        ("a checkpoint", f"{traffic.checkpoint_gb:,.0f} GB"),
        ("of it on a node", f"{traffic.node_gb:.2f} GB"),
        ("written in a burst", f"{traffic.burst_gb_s:,.1f} GB/s"),
        ("written on average", f"{traffic.mean_gb_s:,.1f} GB/s"),
        ("read at a restore", f"{traffic.restore_gb_s:,.1f} GB/s"),
        (f"capacity for {found.wish.kept} checkpoints and one being written", f"{traffic.capacity_tb:,.1f} TB"),
    )
    note = f"{found.wish.parameters:.3g} parameters of 14 bytes: weights in bf16 and fp32, and both moments of Adam."
    return "storage", "Storage", note, Grid(("what", "value"), rows)


def _cost(found: Design) -> Part:
    wish, chosen = found.wish, found.chosen
    gpus = wish.fleet.gpus + chosen.spares * wish.fleet.gpus_per_node
    day = gpus * 24 * wish.usd_gpu_h
    rows = (
        ("price of a GPU-hour", f"{wish.usd_gpu_h:.2f} USD"),
        ("GPUs with spares", f"{gpus:,}"),
        ("a day", f"{day:,.0f} USD"),
        ("of it for work that is kept", f"{day * chosen.goodput:,.0f} USD"),
        ("of it lost to failures, saves and spares", f"{day * (1 - chosen.goodput):,.0f} USD"),
        ("price of a useful GPU-hour", f"{chosen.usd_useful_gpu_h:.3f} USD"),
        ("the same with restarts only", f"{found.options[0].usd_useful_gpu_h:.3f} USD"),
    )
    return "cost", "Cost", "Prices are of the catalogue, unless one was given.", Grid(("what", "value"), rows)


def _times(found: Design) -> Part:
    rows = tuple((each.name, f"{getattr(found.times, each.name):.2f}") for each in fields(found.times))
    note = "What all of this rests on, in seconds. Put in what your site measures."
    return "times", "Assumed times", note, Grid(("time", "seconds"), rows)


def _lost(found: Design) -> Chart:
    lost = {each.strategy.name: each.lost for each in found.options}
    return lost_chart("lost", "What each strategy loses", lost)


def _sizes(found: Design) -> list[Chart]:
    """The ratio of every strategy against the size of the job."""
    own = found.wish.fleet
    lines: dict[str, list[tuple[float, float]]] = {each.strategy.name: [] for each in found.options}
    for step in range(25):
        gpus = max(int(own.gpus / 10 * 100 ** (step / 24)), own.gpus_per_node)
        wish = replace(found.wish, fleet=Fleet(gpus, own.gpus_per_node, own.links_per_node))
        for option in design_for(wish).options:
            lines[option.strategy.name].append((gpus, option.ettr))
    note = "The same model and times on fewer and more GPUs. Storage grows with them unless its rate was given."
    x = axis("GPUs", type="log")
    return [curves_chart("sizes", "The ratio against the size of the job", note, x, lines)]


def _interval(found: Design) -> Chart:
    """The ratio against the interval of each tier, the others left as they are."""
    strategy = found.chosen.strategy
    lines = {}
    for number, tier in enumerate(strategy.tiers):
        points = []
        for step in range(49):
            interval_s = tier.interval_s * 100 ** ((step - 24) / 24)
            tiers = [*strategy.tiers]
            tiers[number] = replace(tier, interval_s=interval_s)
            points.append((interval_s, tiered_split(tiers, strategy.ways).work * strategy.speed))
        lines[tier.name] = points
    note = "Each line has its top at the interval that was chosen, unless it cannot be saved so often."
    return curves_chart("interval", "The ratio against the interval", note, axis("seconds", type="log"), lines)


def _as_course(option: Option) -> Course:
    """One job with one tier that loses about as much: what a tornado can turn."""
    ways = [way for way in option.strategy.ways if way.per_hour]
    per_hour = sum(way.per_hour for way in ways)
    tiers = option.strategy.tiers

    def mean(values: list[float]) -> float:
        return (
            sum(way.per_hour * value for way, value in zip(ways, values, strict=True)) / per_hour if per_hour else 0.0
        )

    return Course(
        per_hour,
        max(mean([tiers[way.tier].interval_s for way in ways]), 1.0),
        max(tier.save_s for tier in tiers),
        mean([way.detect_s for way in ways]),
        mean([way.queue_s for way in ways]),
        mean([way.restart_s for way in ways]),
        mean([0.0 if way.keeps else tiers[way.tier].reload_s for way in ways]),
    )
