"""`phalanx cost`: tables, pages, and what is said of input that makes no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run

SPOT = ("spot", "--work", "20h", "--deadline", "40h", "--runs", "20")
OWN = ("own-or-rent", "--gpus", "1000", "--purchase-usd", "30000", "--rent-usd", "2.5")


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(cli, ["cost", *arguments, "-o", "json"]) == Exit.OK
    return json.loads(capsys.readouterr().out)


def test_uniform_progress_meets_every_deadline_for_less_than_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["policy"]: row for row in rows(capsys, *SPOT)}
    assert found["uniform"]["met"] == found["on demand only"]["met"] == "20 of 20"
    assert found["uniform"]["usd"] < found["on demand only"]["usd"]


def test_a_trace_of_each_region_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    never, always = tmp_path / "never", tmp_path / "always"
    never.write_text("0\n" * 500)
    always.write_text("1\n" * 500)
    prices = ("--spot-usd", "1", "--spot-usd", "2", "--on-demand-usd", "5")
    found = rows(capsys, *SPOT, "--trace", str(never), "--trace", str(always), *prices)
    assert found[0]["usd"] == pytest.approx(2 * 8 * 20.1, rel=0.001)


def test_pages_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for number, arguments in enumerate((SPOT, (*OWN, "--utilisation", "0.8"))):
        path = tmp_path / f"{number}.html"
        rows(capsys, *arguments, "--report", str(path))
        assert 'class="chart"' in path.read_text(encoding="utf-8")


def test_the_utilisation_of_a_run_is_taken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    summary = tmp_path / "run.json"
    summary.write_text('{"gpu_allocated": 0.8}')
    taken = rows(capsys, *OWN, "--run", str(summary))
    assert taken == rows(capsys, *OWN, "--utilisation", "0.8")
    # 30 million over 1,461,000 of rent less 123,455 of power and 125,000 of upkeep a month.
    assert taken["break_even_month"] == pytest.approx(24.7)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("spot", "--work", "20h", "--deadline", "10h"), "cannot be met"),
        ((*SPOT, "--spot-usd", "-1"), "expected a price of at least 0"),
        (
            (*SPOT, "--spot-usd", "1", "--spot-usd", "2", "--trace", "a", "--trace", "b", "--trace", "c"),
            "expected as many of both",
        ),
        ((*SPOT, "--gpu", "GB300"), "GB300"),
        (OWN, "either --utilisation or --run"),
        ((*OWN, "--utilisation", "0.5", "--usd-kwh", "-1"), "usd_kwh is -1"),
        ((*OWN, "--run", "/dev/null"), "has no gpu_allocated"),
    ],
)
def test_what_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    assert run(cli, ["cost", *arguments]) != Exit.OK
    printed = capsys.readouterr().err
    assert told in printed
    assert "Traceback" not in printed
