"""The report of a suite: which policy is best over all, and every figure of every workload against the load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from phalanx.simulate.report.chart import Chart, Grid, axis, layout
from phalanx.simulate.report.page import Content, Section, html_page
from phalanx.simulate.report.scripts import ReportError
from phalanx.simulate.report.series import short
from phalanx.simulate.report.tables import grid_table
from phalanx.simulate.report.text import chart_text, page_text
from phalanx.simulate.report.varied import varied
from phalanx.simulate.studies.ranking import DRAWN_MAX, FIGURES, NEAR, Place, Ranking, ratio_to_best
from phalanx.simulate.studies.suite import Cell, Suite


def write_suite_report(suite: Suite, cells: Sequence[Cell], ranking: Ranking, path: str, command: str) -> None:
    """Writes one HTML file that opens anywhere, offline."""
    sections: list[Section] = [
        ("ranking", "Over all workloads and loads", [_standings(ranking), _ratios(ranking)]),
        *((("tuned", "How policies were tuned", [_tuned(suite)]),) if suite.tuned else ()),
        ("beside", page_text(f"{ranking.subject} beside the best"), [_beside(ranking)]),
        *(_workload(workload.name, workload.about, ranking) for workload in suite.workloads),
        ("repeat", "To repeat it", [_repeat(suite, cells, command)]),
    ]
    overview = f"{len(cells):,} runs: {len(ranking.policies)} policies on {len(suite.workloads)} workloads, "
    overview += f"{len(suite.loads)} loads and {suite.seeds} seeds each, decided by the scheduler that runs clusters."
    try:
        Path(path).write_bytes(html_page(f"The {suite.name} suite", overview, sections, len(ranking.policies)).encode())
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error


def _standings(ranking: Ranking) -> str:
    header = (
        "policy",
        "mean rank",
        *(f"{figure.title} ÷ best" for figure in FIGURES),
        f"within {NEAR - 1:.0%} of best",
        "of best without foresight",
        "foresight",
    )
    rows = tuple(
        (
            each.policy,
            f"{each.rank:.1f}",
            *(f"{each.ratios[figure.key]:.2f}" if figure.key in each.ratios else "-" for figure in FIGURES),
            f"{each.near} of {ranking.compared}",
            f"{each.near_equals} of {ranking.compared}",
            "yes" if each.foresees else "no",
        )
        for each in ranking.standings
    )
    told = "1 is the best; of several places the geometric mean. Where more is better it is the best ÷ its own."
    failed = "".join(f"<li>{page_text(str(each), 400)}</li>" for each in ranking.failures)
    lost = f"<p>Failed, and in none of this:</p><ul>{failed}</ul>" if failed else ""
    noted = "".join(f"<li>{page_text(each, 400)}</li>" for each in ranking.caveats)
    known = f"<p>To be known of this:</p><ul>{noted}</ul>" if noted else ""
    return f"<p>{told}</p>{grid_table(Grid(header, rows), 'Ranking')}{lost}{known}"


def _tuned(suite: Suite) -> str:
    rows = tuple(
        (setting, f"{times:.2f}", "yes" if setting == best else "")
        for best, tried in suite.tuned.items()
        for setting, times in tried.items()
    )
    told = "Tried on the earlier half of each trace, of which no other figure here is."
    header = ("setting", "mean JCT ÷ that of the policy's best", "measured")
    return f"<p>{told}</p>{grid_table(Grid(header, rows), 'Settings')}"


def _beside(ranking: Ranking) -> str:
    """How far the subject is from the best, in every figure of every place."""
    rows = tuple(
        (
            f"{each.place[0]}, {each.place[1]:g}",
            each.figure.title,
            f"{each.ratio:.2f}",
            each.best,
            f"{each.ratio_equals:.2f}",
            each.best_equal,
            "yes" if each.is_near_equals else "no",
        )
        for each in ranking.distances(ranking.subject)
    )
    near = f"within {NEAR - 1:.0%}"
    header = ("workload, load", "figure", "÷ best", "who", "÷ best without foresight", "who", near)
    told = "Foresight is knowledge that no real cluster has, such as how long a job will run."
    return f"<p>{told}</p>{grid_table(Grid(header, rows), f'{ranking.subject} beside the best')}"


def _ratios(ranking: Ranking) -> Chart:
    """How far each policy is from the best, a bar a figure."""
    names = [each.policy for each in ranking.standings]
    return Chart(
        "suite-ratios",
        "How many times the best",
        "The geometric mean over workloads and loads; 1 is the best. The scale is logarithmic.",
        tuple(
            {
                "type": "bar",
                "name": chart_text(figure.title),
                "x": [chart_text(name) for name in names],
                "y": [short(each.ratios.get(figure.key, 1.0)) for each in ranking.standings],
                "meta": {"series": series},
            }
            for series, figure in enumerate(FIGURES)
        ),
        layout(axis("policy"), axis("÷ best", type="log"), showlegend=True, barmode="group"),
        Grid(
            ("policy", *(figure.title for figure in FIGURES), "worst at"),
            tuple((each.policy, *_ratio_texts(each.ratios), _worst(each.worst)) for each in ranking.standings),
        ),
        wide=True,
    )


def _ratio_texts(ratios: Mapping[str, float]) -> Iterator[str]:
    for figure in FIGURES:
        value = ratios.get(figure.key)
        yield "-" if value is None else f"{value:.3f}"


def _worst(worst: Mapping[str, tuple[float, Place]]) -> str:
    if not worst:
        return "-"
    key = max(worst, key=lambda key: worst[key][0])
    ratio, (workload, load) = worst[key]
    return f"{key.replace('_', ' ')} {ratio:.2f} on {workload} at {load:g}"


def _workload(name: str, about: str, ranking: Ranking) -> Section:
    best = [each.policy for each in ranking.standings]
    content: list[Content] = [f"<p>{page_text(about)}.</p>", _table(name, ranking)]
    content += [
        replace(chart, key=f"{name}-{chart.key}") for chart in varied(list(ranking.curves(name, best[:DRAWN_MAX])))
    ]
    return (f"workload-{name}", page_text(name), content)


def _table(workload: str, ranking: Ranking) -> str:
    """Every figure with its interval, and how many times the best it is."""
    rows = []
    for place in ranking.places:
        if place[0] != workload:
            continue
        for each in ranking.standings:
            texts = []
            for figure in FIGURES:
                own = ranking.means[figure.key][place]
                ratio = ratio_to_best(figure, own, each.policy)
                if ratio is None:
                    texts.append("-")
                    continue
                found = own[each.policy]
                spread = "" if found.high is None else f" ± {figure.text(found.high - found.mean)}"
                texts.append(f"{figure.text(found.mean)}{spread} ({ratio:.2f})")
            rows.append((each.policy, f"{place[1]:g}", *texts))
    header = ("policy", "load", *(figure.title for figure in FIGURES))
    return grid_table(Grid(header, tuple(rows)), f"{workload}: means with 95 % confidence, and in brackets ÷ best")


def _repeat(suite: Suite, cells: Sequence[Cell], command: str) -> str:
    rows = tuple(
        (workload.name, f"{workload.cluster.gpus} GPUs", f"{workload.source.jobs:,} jobs", workload.about)
        for workload in suite.workloads
    )
    table = grid_table(Grid(("workload", "cluster", "jobs", "what it is"), rows), "Workloads")
    return f"<p><code>{page_text(command, 400)}</code></p>{table}"
