"""The README's Python runs as written, and its commands do what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from phalanx.cli.main import cli, run
from phalanx.policy.registry import BUILTIN

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == "('n0', 'n1')\n"


def commands() -> list[str]:
    lines = [
        line.partition("#")[0].strip()
        for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
        for line in block.splitlines()
        # What needs a server is not tried here; tests/cli/test_tutorial_live.py tries the tutorial's like on one.
        if "phalanx run" not in block
    ]
    return [line for line in lines if line.startswith("phalanx ") and "bench" not in line]


def test_the_commands_of_the_readme_work_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert len(commands()) >= 5
    for command in commands():
        assert run(cli, shlex.split(command)[1:]) == 0, command


def test_every_page_the_readme_points_to_exists() -> None:
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_page_of_policies_names_every_policy_and_no_other() -> None:
    page = (ROOT / "docs/reference/policies.md").read_text("utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == list(BUILTIN)


def test_a_plan_tells_what_is_left_and_how_much_of_it_is_of_no_use(capsys: pytest.CaptureFixture[str]) -> None:
    examples = ROOT / "examples"
    files = [str(examples / "cluster-small.yaml"), str(examples / "job-single-gpu.yaml")]
    assert run(cli, ["plan", "--cluster", *files]) == 0
    rest = capsys.readouterr().out.splitlines()[-1]
    assert rest == "31 of 32 GPUs are free, with room for 3 tasks of 8; more tasks like these could use 100% of them"
