"""The scripts of lab 3 do what its text says, on a small scale."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from phalanx.cli.exit import Exit
from phalanx.cli.main import cli
from phalanx.cli.main import run as run_verb

LAB = Path(__file__).parents[2] / "labs" / "lab03-fault-injection"


def run(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(LAB / name), run_name="__main__")


def test_a_month_of_failures_is_drawn_fitted_and_run_through(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log, plot = tmp_path / "failures.csv", tmp_path / "failures.html"
    run("failure_simulation.py", monkeypatch, "--nodes", 16, "--days", 14, "--log", log, "--plot", plot)
    printed = capsys.readouterr().out
    assert int(re.findall(r"^(\d+) failures", printed)[0]) == len(log.read_text().splitlines()) - 1
    assert "(a lemon)" in printed
    assert re.search(r"fitted: [\d.e+]+ failures in 1,000 node-days", printed)
    useful = {every: float(share) for every, share in re.findall(r"^(\d+[mh]) +([\d.]+)%", printed, re.M)}
    assert list(useful) == ["2m", "10m", "30m", "2h", "12h"]
    assert f"best of these: every {max(useful, key=lambda each: useful[each])}" in printed
    assert useful["10m"] > useful["12h"]
    assert "plotly" in plot.read_text(encoding="utf-8")


def test_the_failures_it_writes_can_be_simulated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log, cluster = tmp_path / "failures.csv", tmp_path / "cluster.yaml"
    run("failure_simulation.py", monkeypatch, "--nodes", 4, "--days", 2, "--log", log)
    nodes = "".join(f"  - {{name: n{number:04}, gpus: 8}}\n" for number in range(4))
    cluster.write_text(f"nodes:\n{nodes}")
    arguments = ["simulate", "--cluster", str(cluster), "--trace", "synthetic:jobs=5,load=0.5", "--faults", str(log)]
    assert run_verb(cli, arguments) == Exit.OK


def test_recoveries_are_taken_apart_and_formula_and_chance_agree(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("recovery_time_analysis.py", monkeypatch, "--gpus", 16384, "--failures", 8000)
    printed = capsys.readouterr().out
    assert "one failure every 1.80 h" in printed
    ratios = [(float(a), float(b)) for a, b in re.findall(r"^[a-z ]+?(0\.\d{4}) +(0\.\d{4}) ", printed, re.M)]
    assert len(ratios) == 4
    assert all(chance == pytest.approx(formula, rel=0.02) for formula, chance in ratios)
    assert ratios == sorted(ratios), "each way is better than the one before"
    assert "buys most" in printed
