"""The guides' commands and Python run as written, in order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from phalanx.cli.main import cli, run

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs" / "guides").rglob("*.md"))
ENDLESS = {"attach", "autoscale", "extender", "forward", "shadow", "top", "up", "view", "watch"}
"""Verbs that go on until they are stopped: a guide shows them in a block of `console`."""


@pytest.mark.long
@pytest.mark.needs("plotly")
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_does_what_it_says(guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for language, code in re.findall(r"```(sh|python)\n(.*?)```", guide.read_text("utf-8"), re.DOTALL):
        if language == "python":
            exec(code, {})
            continue
        for command in code.splitlines():
            words = shlex.split(command, comments=True)[1:]
            assert not ENDLESS & set(words[:2]) or "--help" in words, f"it has no end: {command}"
            assert run(cli, words) == 0, command


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_every_page_a_guide_points_to_exists(guide: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", guide.read_text("utf-8")):
        assert (guide.parent / target).exists(), target
