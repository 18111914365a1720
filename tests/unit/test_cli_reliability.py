"""`phalanx reliability`: tables, documents, and what is said of input that makes no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run
from phalanx.cli.reliability.lemons import most_found


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(cli, ["reliability", *arguments, "-o", "json"]) == Exit.OK
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(cli, ["reliability", *arguments]) != Exit.OK
    told = capsys.readouterr().err
    assert "Traceback" not in told
    return told


def test_formula_and_simulation_stand_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    first, exact, simulated = rows(capsys, "ettr", "--gpus", "16384", "--every", "1h", "--failures", "20000")
    assert first["ettr"] < exact["ettr"]
    assert simulated["ettr"] == pytest.approx(exact["ettr"], rel=0.02)


def test_every_rule_for_the_interval_is_beside_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["rule"]: row for row in rows(capsys, "intervals", "--gpus", "16384", "--every", "20m")}
    assert found["exact"]["interval_s"] == pytest.approx(found["search"]["interval_s"], rel=0.001)
    assert found["as given"]["interval_s"] == 1200


@pytest.mark.parametrize(
    "arguments",
    [
        ("causes",),
        ("causes", "llama-3"),
        ("symptoms",),
        ("xid",),
        ("xid", "79"),
        ("mttf", "--gpus", "1024"),
        ("tornado", "--gpus", "1024"),
        ("replicas", "--nodes", "15", "--copies", "3"),
        ("spares", "--gpus", "10000"),
        ("storage", "--gpus", "512", "--parameters", "7e9", "--every", "5m", "--write", "1m", "--reload", "1m"),
        ("published", "--failures", "500"),
        ("llama-3", "--seeds", "1"),
        ("lemons", "--nodes", "16", "--lemons", "1", "--seeds", "2", "--runs", "1", "--rate", "50"),
    ],
)
def test_each_table_is_json_too(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert rows(capsys, *arguments)


@pytest.mark.parametrize("gpus", ["10000", "100000"])
def test_the_design_is_a_document_with_every_part(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, gpus: str
) -> None:
    path = tmp_path / "design.md"
    run(cli, ["reliability", "design", "--gpus", gpus, "--target-ettr", "0.9", "--report", str(path)])
    text = path.read_text(encoding="utf-8")
    for heading in (
        "Tiers and intervals",
        "Replicas in memory",
        "Spares",
        "Detection",
        "Network reroute",
        "Storage",
        "Cost",
    ):
        assert f"\n## {heading}" in text
    assert f"{int(gpus):,} GPUs" in text


def test_the_page_of_a_design_has_its_plots(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "design.html"
    arguments = ["reliability", "design", "--gpus", "10000", "--target-ettr", "0.95", "--report", str(path)]
    assert run(cli, arguments) == Exit.OK
    page = path.read_text(encoding="utf-8")
    for chart in ("chart-lost", "chart-sizes", "chart-interval", "chart-tornado"):
        assert f'id="{chart}"' in page
    assert "https://" not in page.split("<footer>")[0].split("</style>")[1]


def test_a_target_beyond_reach_is_refused_with_the_best_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, "design", "--gpus", "100000", "--target-ettr", "0.999")
    assert "no strategy reaches 0.999" in told
    assert "most is lost to" in told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("design", "--gpus", "8", "--target-ettr", "1.5"), "expected a ratio above 0 and below 1"),
        (("design", "--gpus", "8", "--target-ettr", "0.9", "--usd", "-2"), "at least 0"),
        (("design", "--gpus", "8", "--target-ettr", "0.9", "--gpu", "Z9"), "no accelerator 'Z9'"),
        (("ettr", "--gpus", "8", "--profile", "rsc1"), "did you mean rsc-1"),
        (("ettr", "--gpus", "8", "--save", "soon"), "expected 90s"),
        (("ettr", "--gpus", "8", "--save", "0"), "saves are free"),
        (("xid", "9999"), "XID 9999 is not in the table"),
        (("replicas", "--nodes", "2", "--copies", "3"), "expected from 1 to 2"),
        (
            ("storage", "--gpus", "8", "--parameters", "1e9", "--every", "1m", "--write", "2m", "--reload", "1m"),
            "would never catch up",
        ),
        (("design", "--gpus", "8", "--target-ettr", "0.5", "--report", "/nowhere/x.html"), "/nowhere/x.html"),
    ],
)
def test_what_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    assert told in refused(capsys, *arguments)


def test_a_log_of_failures_is_fitted_and_its_lemon_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    usual = [(hour * 3600 * 40, f"n{hour}") for hour in range(1, 17)]
    lemon = [(hour * 3600 * 60, "bad") for hour in range(1, 12)]
    path.write_text("at_s,node\n" + "".join(f"{at},{node}\n" for at, node in usual + lemon))
    arguments = ["reliability", "fit", str(path), "--nodes", "200", "--until", "30d", "-o", "json"]
    assert run(cli, arguments) == Exit.OK
    printed = capsys.readouterr()
    simple, _ = json.loads(printed.out)
    assert simple["per_1000_node_days"] == pytest.approx(27 / 200 / 30 * 1000, rel=1e-3)
    assert "node bad failed 11 times" in printed.err
    assert "node n1 " not in printed.err


def test_drawn_failures_are_the_same_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("nodes:\n  - {count: 4, gpus: 8}\n")
    drawn = []
    for _ in range(2):
        assert (
            run(cli, ["reliability", "draw", "rsc-1:scale=100", "--cluster", str(cluster), "--days", "30"]) == Exit.OK
        )
        drawn.append(capsys.readouterr().out)
    assert drawn[0] == drawn[1]
    assert len(drawn[0].splitlines()) > 10


def test_no_more_lemons_are_found_than_by_one_that_knows_the_rates(capsys: pytest.CaptureFixture[str]) -> None:
    told = rows(capsys, "lemons", "--seeds", "20", "--first-seed", "100", "--runs", "0", "--nodes", "128")
    assert 0.8 <= told["recall"] <= told["recall_of_one_that_knows"] + 0.05
    assert told["precision"] >= 0.85


def test_of_all_thresholds_that_keep_the_precision_the_lowest_finds_most() -> None:
    assert most_found([(3.0, True), (2.0, True), (1.0, False), (0.5, True)]) == 2
    assert most_found([(3.0, False), (2.0, True)]) == 0
    assert most_found([(float(score), score != 3) for score in range(10)]) == 9
