"""What verbs print in a terminal of 80 columns, with names that are longer than that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import Phalanx, Server
from screen import Screen

from phalanx.cli.fitting import cells

LONG = "a-name-" + "that-goes-on-" * 10
WIDE = "名前が長い" * 10
DEMO = Path(__file__).parents[2] / "src" / "phalanx" / "cli" / "demo_files"
PLANNED = [str(path) for path in sorted(DEMO.glob("[1-5]*.yaml"))]


@pytest.fixture(scope="module")
def jobs(server: Server) -> Iterator[dict[str, str]]:
    """A job with a long name that runs, and one with wide letters that never will."""

    def call(*arguments: str) -> str:
        around = {**os.environ, "PHALANX_ADDR": server.url, "PHALANX_TOKEN_FILE": server.token_file}
        command = [sys.executable, "-m", "phalanx", *arguments]
        return subprocess.run(command, env=around, check=True, capture_output=True, text=True).stdout

    submitted = {
        "long": json.loads(call("submit", "--name", LONG, "-o", "json", "--", "sleep", "600"))["id"],
        "never": json.loads(call("submit", "--name", WIDE, "--gpus", "8", "-o", "json", "--", "true"))["id"],
    }
    yield submitted
    call("cancel", *submitted.values())


@pytest.mark.parametrize(
    "verb",
    [
        ["plan", "--cluster", str(DEMO / "cluster.yaml"), *PLANNED],
        ["plan", "{file}"],
        ["why", "{never}"],
        ["job", "{long}"],
        ["jobs", "--all"],
        ["jobs", "--all", "-o", "wide"],
        ["nodes"],
        ["usage", "--by", "job"],
        ["audit"],
        ["demo"],
        ["save", "{long}"],
    ],
    ids=lambda words: " ".join(Path(word).name for word in words[:4]),
)
def test_no_line_is_wider_than_the_terminal(
    phalanx: Phalanx, jobs: dict[str, str], tmp_path: Path, verb: list[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"name: {LONG}\ngpus: 4\ncommand: sleep 60\n")
    with Screen(*(word.format(**jobs, file=file) for word in verb)) as screen:
        screen.end()
        lines = screen.text.replace("\x1b[1m", "").replace("\x1b[0m", "").split("\r\n")
    assert [line for line in lines if cells(line) > 80] == []
    if verb[0] == "job":
        assert LONG in "".join(line.strip() for line in lines), "an identifier is folded and never cut"
