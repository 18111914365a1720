"""The report: what is on the page, what cannot get into it, and that it stands alone."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import sys
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.simulate.figures.metrics import summarize
from phalanx.simulate.figures.result import NodeUse, Result, Stay, Timeline
from phalanx.simulate.report import Repeat, RunOf, write_report
from phalanx.simulate.report.gantt import NODES_MAX, bars_of, gantt
from phalanx.simulate.report.groups import QUEUES_MAX, served_by_queue, wait_by_queue, wait_by_size
from phalanx.simulate.report.page import BARS_MAX, report_page
from phalanx.simulate.report.scripts import ReportError
from phalanx.simulate.report.series import POINTS_MAX, cumulative, thin
from phalanx.simulate.report.text import chart_text, labels, page_text, script_json
from phalanx.simulate.studies.vary import curves
from results import a_job_result, a_result, a_waiting_job, an_empty_result, some_totals, too_large

pytestmark = pytest.mark.needs("plotly")

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'<a href=https://evil.example>x</a>"
VOID = {"meta", "img", "link", "br", "input"}


class Page(HTMLParser):
    """A page as a browser sees it: its elements, the text of each, and that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = json.loads(self.texts["script"][0])
        return figures

    @property
    def charts(self) -> list[str]:
        return [attributes["id"] or "" for attributes in self.of("div") if attributes.get("class") == "chart"]


@cache
def a_page(policies: tuple[str, ...] = ("fifo", "priority"), evil: bool = False) -> tuple[str, Page]:
    name = {"queues": (EVIL, "b"), "job_prefix": EVIL, "node_prefix": EVIL} if evil else {}
    results = [a_result(policy, **name) for policy in policies]  # type: ignore[arg-type]
    if evil:
        results = [msgspec.structs.replace(r, setup={EVIL: {EVIL: EVIL}, "seed": 1}) for r in results]
    runs = [
        (load, a_result(policy, 30, seed, load=load).summary)
        for policy in policies
        for load in (0.5, 1.0)
        for seed in (1, 2)
    ]
    text = report_page(results, EVIL if evil else "Two policies", curves("load", runs))
    return text, Page(text)


def test_every_chart_has_a_place_a_figure_a_caption_and_a_table() -> None:
    _, page = a_page()
    assert page.charts == list(page.figures)
    assert len(page.charts) == 14 + 2 + 4 + 4 + 2
    assert len(page.of("figure")) == len(page.of("figcaption")) == len(page.of("details")) == len(page.charts)
    described = [attributes for attributes in page.of("div") if attributes.get("class") == "chart"]
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in described)


def test_every_figure_is_one_that_plotly_knows() -> None:
    import plotly.graph_objects as go

    for figure in a_page()[1].figures.values():
        go.Figure({"data": figure["traces"], "layout": figure["layout"]})
        assert all("series" in trace["meta"] for trace in figure["traces"])


def test_headings_go_down_one_level_at_a_time_and_anchors_lead_somewhere() -> None:
    _, page = a_page()
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {(link["href"] or "")[1:] for link in page.of("a")} <= set(ids)


def test_the_page_loads_nothing_and_runs_only_the_scripts_it_names() -> None:
    _, page = a_page()
    assert not page.of("link") + page.of("img") + page.of("iframe") + page.of("object")
    assert not any({"src", "action", "onclick"} & set(attributes) for _, attributes in page.elements)
    policy = next(meta["content"] for meta in page.of("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    scripts = [
        text for text, script in zip(page.texts["script"], page.of("script"), strict=True) if "type" not in script
    ]
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "http" not in policy
    assert "unsafe-eval" not in policy


def test_plotly_is_there_once_and_the_rest_is_small() -> None:
    text, page = a_page()
    assert text.count("* plotly.js v") == 1
    assert len(text) - max(map(len, page.texts["script"])) < 250_000


def test_what_comes_from_outside_stays_text() -> None:
    text, page = a_page(evil=True)
    assert len(page.of("script")) == 3
    assert not page.of("img")
    assert not [link for link in page.of("a") if not (link["href"] or "").startswith("#")]
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert "alert(1)</script>" not in text
    assert "<script>alert" not in "".join(page.texts["script"])


def test_labels_of_charts_hold_no_tags_that_plotly_would_read() -> None:
    found = 0
    for figure in a_page(evil=True)[1].figures.values():
        for label in strings(figure):
            found += "alert" in label
            assert "<" not in label
    assert found


def strings(value: object) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for each in value.values() for text in strings(each)]
        case list():
            return [text for each in value for text in strings(each)]
        case _:
            return []


@given(st.text())
def test_no_text_leaves_the_place_it_is_put(text: str) -> None:
    inside = page_text(text)
    assert not set(inside) & set("<>\"'\n\r\0")
    assert "<" not in chart_text(text)
    page = Page(f'<p title="{inside}">{inside}</p><script type="application/json">{script_json([text])}</script>')
    assert [tag for tag, _ in page.elements] == ["p", "script"]
    assert json.loads(page.texts["script"][0]) == [text]


def test_text_that_does_not_print_is_spelled_out() -> None:
    assert page_text("a\x1b[31m\u202e\ud800") == "a\\x1b[31m\\u202e\\ud800"
    page_text("\ud800").encode()


def test_long_labels_are_cut_and_stay_apart() -> None:
    found = labels(["x" * 100 + "1", "x" * 100 + "2", "y"])
    assert found == ["x" * 47 + "…", "x" * 47 + "… (2)", "y"]


def test_the_best_are_marked_and_directions_said() -> None:
    text, page = a_page()
    assert any(attributes.get("class") == "best" for attributes in page.of("td"))
    assert "★ " in text
    assert "↓ lower" in text
    assert "↑ higher" in text


def test_what_would_repeat_the_runs_is_on_the_page() -> None:
    cells = " ".join(a_page()[1].texts["th"] + a_page()[1].texts["td"])
    for said in ("trace.name", "made up", "seed", "digest", "abc123", "run.wall_s"):
        assert said in cells


def test_the_page_of_many_runs_has_the_command_the_loads_and_every_digest() -> None:
    runs = tuple(RunOf("fifo", load, seed, f"digest{load}-{seed}") for load in (0.5, None) for seed in (7, 8))
    text = report_page([a_result()], "Varied", repeat=Repeat("phalanx compare --seeds 2 --trace 'my <b>.csv'", runs))
    assert "<code>phalanx compare --seeds 2 --trace &#x27;my &lt;b&gt;.csv&#x27;</code>" in text
    assert "4 runs. Loads: 0.5, the trace&#x27;s own. Seeds: 2 (7, 8)." in text
    for run in runs:
        assert run.digest in " ".join(Page(text).texts["td"])


def test_what_means_nothing_to_a_reader_is_not_on_the_page() -> None:
    result = a_result()
    told = msgspec.structs.replace(result, setup=result.setup | {"advice_kept": 0})
    names = " ".join(Page(report_page([told], "One")).texts["th"])
    for name in ("advice_kept", "stays_cut", "schema", "SLA"):
        assert name not in names


def test_one_result_makes_a_page_with_nothing_to_compare() -> None:
    text = report_page([a_result()], "One")
    page = Page(text)
    assert "nothing to compare it with" in text
    assert not any(attributes.get("class") == "best" for attributes in page.of("td"))
    assert page.figures["chart-jct-cdf"]["layout"]["showlegend"] is False


def test_a_run_to_which_nobody_came_makes_a_page_that_says_so() -> None:
    text = report_page([an_empty_result()], "Nobody")
    assert Page(text).charts == []
    assert "There is no such job." in text
    assert "No job has run." in text


def test_what_jains_index_is_made_of_is_drawn_by_queue() -> None:
    """a has half of what it asks for, b all of it: (0.5 + 1)² ÷ (2 · 1.25) = 0.9."""
    jobs = [a_job_result("1", queue="a"), a_job_result("2", queue="b")]
    summary = summarize(jobs, some_totals())
    summary["fairness"]["jain"] = 0.9
    result = Result(summary, {}, jobs, Timeline([], [], [], [], []), [], served={"a": 0.5, "b": 1.0})
    page = Page(report_page([result], "Queues"))
    (bars,) = page.figures["chart-served-by-queue"]["traces"]
    assert (bars["x"], bars["y"]) == (["a", "b"], [0.5, 1])
    rows = served_by_queue([("fifo", result)]).grid.rows
    assert rows == (("a", "50.0%"), ("b", "100.0%"), ("Jain's index of all queues", "0.900"))


def test_a_page_of_many_runs_says_how_many_were_made() -> None:
    runs = tuple(RunOf("fifo", load / 10, 0, "d") for load in range(1, 25))
    text = report_page([a_result("fifo"), a_result("sjf")], "Many", (), Repeat("phalanx compare", runs))
    assert "24 runs of " in text
    assert "2 of them are shown in detail." in text
    assert "of them are shown in detail" not in report_page([a_result("fifo")], "One")


def test_jobs_that_all_wait_make_a_page() -> None:
    jobs = [a_waiting_job("1")]
    timeline = Timeline([0.0], [0.0], [1], [1], [0.0])
    page = Page(report_page([Result(summarize(jobs, some_totals()), {}, jobs, timeline, [])], "Waiting"))
    assert page.charts == ["chart-allocation", "chart-waiting-jobs", "chart-waiting-gpus", "chart-fragmentation"]


def test_jobs_that_never_fit_are_told_of_with_what_is_too_small_for_them() -> None:
    jobs = [a_job_result("1"), a_waiting_job("2", gpus=64)]
    result = Result(summarize(jobs, some_totals(never_fit=too_large("2"))), {}, jobs, Timeline([], [], [], [], []), [])
    page = report_page([result, result], "t")
    assert page.count("<p>1 job never fits its cluster: job 2 asks for 64 GPUs.</p>") == 1


def test_a_report_without_results_is_refused() -> None:
    with pytest.raises(ReportError, match="at least one result"):
        report_page([], "None")


def test_results_of_one_policy_keep_apart() -> None:
    page = Page(report_page([a_result("fifo", seed=1), a_result("fifo", seed=2)], "Seeds"))
    assert [trace["name"] for trace in page.figures["chart-jct-cdf"]["traces"]] == ["fifo", "fifo (2)"]


def test_different_numbers_of_completed_jobs_are_pointed_out() -> None:
    assert "compare them with care" in report_page([a_result("a", jobs=20), a_result("b", jobs=30)], "Different")
    assert "compare them with care" not in a_page()[0]


def test_equal_results_make_an_equal_file(tmp_path: Path) -> None:
    write_report([a_result()], tmp_path / "a.html", "Same")
    write_report([a_result()], str(tmp_path / "b.html"), "Same")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"nowhere/a\.html: No such file"):
        write_report([a_result()], tmp_path / "nowhere" / "a.html", "Lost")


def test_without_plotly_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ReportError, match=r"pip install plotly"):
        report_page([a_result()], "No plotly")


def test_a_long_series_is_thinned_and_keeps_its_extremes() -> None:
    chance = random.Random(5)
    xs = sorted(chance.uniform(0, 1000) for _ in range(50_000))
    ys = [chance.random() for _ in xs]
    ys[31_234], ys[17] = 9.0, -9.0
    thin_xs, thin_ys = thin(xs, ys)
    assert len(thin_xs) == len(thin_ys) <= POINTS_MAX
    assert thin_xs == sorted(thin_xs)
    assert (max(thin_ys), min(thin_ys)) == (9.0, -9.0)
    assert (thin_xs[0], thin_xs[-1]) == (pytest.approx(xs[0], rel=1e-5), pytest.approx(xs[-1], rel=1e-5))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(-5, 5)), max_size=60), st.integers(4, 40))
def test_thinning_keeps_points_of_the_series_in_their_order(points: list[tuple[int, int]], points_max: int) -> None:
    points.sort(key=lambda point: point[0])
    xs, ys = [float(x) for x, _ in points], [float(y) for _, y in points]
    kept = list(zip(*thin(xs, ys, points_max), strict=True))
    assert len(kept) <= max(points_max, 4)
    remaining = iter(zip(xs, ys, strict=True))
    assert all(point in remaining for point in kept)
    if points:
        assert {max(ys), min(ys)} <= {y for _, y in kept}
        assert (kept[0], kept[-1]) == ((xs[0], ys[0]), (xs[-1], ys[-1]))


def test_a_cumulative_share_rises_to_one_and_has_no_zero() -> None:
    xs, shares = cumulative([0.0, 0.2, 5.0, 5.0, 100.0], least=1.0)
    assert (xs, shares) == ([1.0, 5.0, 100.0], [0.4, 0.8, 1.0])
    xs, shares = cumulative([float(value) for value in range(10_000)], least=1.0)
    assert len(xs) <= POINTS_MAX
    assert (xs[-1], shares[-1]) == (9999.0, 1.0)


def test_a_long_timeline_is_thinned_on_the_page() -> None:
    count = 20_000
    timeline = Timeline(
        [float(at_s) for at_s in range(count)],
        [at_s % 7 / 7 for at_s in range(count)],
        [0] * 777 + [500] + [0] * (count - 778),
        [0] * count,
        [0.0] * count,
    )
    jobs = [a_job_result()]
    page = Page(report_page([Result(summarize(jobs, some_totals()), {}, jobs, timeline, [])], "Long"))
    for key in ("chart-allocation", "chart-waiting-jobs"):
        assert len(page.figures[key]["traces"][0]["x"]) <= POINTS_MAX
    assert max(page.figures["chart-waiting-jobs"]["traces"][0]["y"]) == 500


stays = st.lists(
    st.builds(
        lambda number, gpus, start, length: Stay(str(number), 1, "n0", gpus, float(start), float(start + length)),
        st.integers(1, 99),
        st.integers(1, 4),
        st.integers(0, 20),
        st.integers(1, 10),
    ),
    max_size=25,
)


@given(stays)
def test_no_two_bars_of_a_gantt_cover_each_other(given_stays: list[Stay]) -> None:
    bars = bars_of(given_stays, 0)
    assert sum(bar.lanes for bar in bars) == sum(stay.gpus for stay in given_stays)
    held = [
        (lane, at)
        for bar in bars
        for lane in range(bar.lane, bar.lane + bar.lanes)
        for at in range(int(bar.stay.start_s), int(bar.stay.end_s))
    ]
    assert len(held) == len(set(held))
    assert all(bar.lane + bar.lanes <= bar.row_lanes for bar in bars)


def test_nodes_stand_in_the_order_people_number_them() -> None:
    chart = gantt(0, "fifo", a_result(jobs=200, nodes=12), 100)
    assert chart.layout["yaxis"]["ticktext"] == [f"n{index}" for index in range(12)]


def test_a_node_whose_number_is_too_long_for_a_number_is_no_trouble() -> None:
    jobs = [a_job_result()]
    timeline = Timeline([0.0], [0.0], [1], [1], [0.0])
    long = [Stay("1", 1, "n" + "9" * 5000, 1, 0.0, 5.0), Stay("1", 1, "n1", 1, 0.0, 5.0)]
    chart = gantt(0, "fifo", Result(summarize(jobs, some_totals()), {}, jobs, timeline, long), 100)
    assert chart.layout["yaxis"]["ticktext"][0] == "n1"


def test_a_gantt_of_many_bars_and_nodes_says_what_it_leaves_out() -> None:
    result = a_result(jobs=2000, nodes=60)
    chart = gantt(0, "fifo", result, 500)
    drawn = sum(len(trace["x"]) for trace in chart.traces)
    assert drawn == 500
    assert len(chart.layout["yaxis"]["ticktext"]) == NODES_MAX
    assert f"{NODES_MAX} of 60 nodes" in chart.note
    assert "500 largest are drawn" in chart.note


def test_a_gantt_counts_stays_that_nobody_kept_and_says_that_they_are_missing() -> None:
    few = a_result(jobs=20, nodes=1)
    used = {"n0": NodeUse(50_000, 7200.0), "n1": NodeUse(1, 3600.0)}
    chart = gantt(0, "fifo", msgspec.structs.replace(few, nodes=used, stays_left_out=49_981), 500)
    assert chart.grid.rows == (("n0", "50,000", "2h 0m"), ("n1", "1", "1h 0m"))
    assert "49,981 stays" in chart.note


def test_the_gantts_of_a_page_share_the_bars_there_may_be() -> None:
    page = Page(report_page([a_result(policy, jobs=3000, nodes=8) for policy in "abc"], "Many"))
    drawn = [trace for key, figure in page.figures.items() if "gantt" in key for trace in figure["traces"]]
    assert sum(len(trace["x"]) for trace in drawn) == BARS_MAX


def test_with_one_queue_jobs_take_turns_with_the_colours() -> None:
    (trace,) = gantt(0, "fifo", a_result(jobs=20, queues=("only",)), 100).traces
    assert len(set(trace["meta"]["series"])) == 20
    assert trace["showlegend"] is False


def test_many_queues_are_shown_by_their_jobs_and_the_rest_is_mentioned() -> None:
    result = a_result(jobs=400, queues=tuple(f"q{index}" for index in range(40)))
    chart = wait_by_queue([("fifo", result)])
    assert len(chart.traces[0]["x"]) == QUEUES_MAX
    assert f"{QUEUES_MAX} of 40 queues" in chart.note
    assert "other queues" in [trace["name"] for trace in gantt(0, "fifo", result, 1000).traces]


def test_sizes_are_grouped_by_powers_of_two() -> None:
    jobs = [a_job_result(str(gpus), gpus=gpus) for gpus in (0, 1, 2, 3, 4, 5, 8, 9, 512)]
    result = Result(summarize(jobs, some_totals()), {}, jobs, Timeline([], [], [], [], []), [])
    chart = wait_by_size([("fifo", result)])
    assert chart.traces[0]["x"] == ["0", "1", "2", "3–4", "5–8", "9–16", "257–512"]


def test_a_band_runs_along_its_upper_edge_and_back_along_the_lower() -> None:
    traces = a_page()[1].figures["chart-varied-mean-jct"]["traces"]
    bands = [trace for trace in traces if trace["meta"].get("band")]
    assert len(bands) == 2
    assert bands[0]["x"] == [0.5, 1.0, 1.0, 0.5]
    low, high = bands[0]["y"][3], bands[0]["y"][0]
    assert low < traces[1]["y"][0] < high


def test_no_band_is_drawn_below_zero() -> None:
    wide = curves("load", [(0.5, a_result(seed=seed, load=load).summary) for seed, load in ((1, 0.1), (2, 3.0))])
    (wait,) = [curve for curve in wide if curve.measure.key == "mean_wait"]
    assert (wait.points[0][1].low or 0.0) < 0
    band = Page(report_page([a_result()], "Wide", wide)).figures["chart-varied-mean-wait"]["traces"][0]
    assert min(band["y"]) == 0


def test_curves_of_one_seed_have_no_band() -> None:
    one = curves("load", [(0.5, a_result().summary), (1.0, a_result(load=2.0).summary)])
    figures = Page(report_page([a_result()], "One seed", one)).figures
    assert not any(trace["meta"].get("band") for trace in figures["chart-varied-mean-jct"]["traces"])
