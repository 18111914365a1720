"""The report of `phalanx compare`, opened offline in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx.cli.main import cli

pytestmark = pytest.mark.needs("chromium", "plotly")

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster-simulate.yaml"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def opened(page: Path) -> tuple[str, str]:
    """The page as the browser has it once its scripts have run, and what the browser said; nothing can be fetched."""
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={page.parent / 'profile'}",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            "--virtual-time-budget=60000",
            "--run-all-compositor-stages-before-draw",
            "--window-size=1300,20000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    runs = ["--cluster", str(EXAMPLE), "--trace", "synthetic:jobs=60,load=0.9", "--policy", "fifo", "--policy", "srtf"]
    done = CliRunner().invoke(cli, ["compare", *runs, "--report", str(path)])
    assert done.exit_code == 0, done.output
    return path


def test_every_chart_is_drawn_and_nothing_goes_wrong(report: Path) -> None:
    page, said = opened(report)
    # One of the charts that are chosen from is shown; the others are drawn when they are chosen.
    figures = re.findall(r"<figure([^>]*)>(.*?)</figure>", page, re.DOTALL)
    chosen_from = [content for attributes, content in figures if "hidden" in attributes]
    assert len(chosen_from) == 1
    shown = "".join(content for attributes, content in figures if "hidden" not in attributes)
    charts = re.findall(r'class="chart(?: [^"]*)?"', shown)
    assert len(charts) >= 6
    assert all("js-plotly-plot" in chart for chart in charts), f"not all were drawn: {charts}"
    assert page.count('class="main-svg"') >= len(charts)
    assert "CONSOLE" not in said, said
