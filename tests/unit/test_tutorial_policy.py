"""The policy of the tutorial works as written, in few lines, and so do its commands."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from builders import World, a_job, starts
from phalanx.cli.main import cli, run
from phalanx.cluster.cluster import flat
from phalanx.policy import registry
from phalanx.policy.guarded import PolicyError
from phalanx.simulate.plugins import resolve_policy

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial" / "write-a-policy.md").read_text("utf-8")
(CODE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^phalanx .*$", PAGE, re.MULTILINE)

HALF_AN_HOUR_MS = 1_800_000


@pytest.fixture(autouse=True)
def beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    (tmp_path / "patient.py").write_text(CODE)
    (tmp_path / "examples").symlink_to(ROOT / "examples")


def test_it_has_at_most_forty_lines() -> None:
    assert len(CODE.splitlines()) <= 40


def test_the_fewest_gpus_go_first() -> None:
    world = World(flat(1, 4), resolve_policy("./patient.py:patient"))
    world.run(a_job("running", 4))
    world.submit(a_job("large", 4), a_job("small", 1))
    assert starts(world.end("running")) == ["small"]


def test_whoever_has_waited_for_half_an_hour_goes_first_and_is_not_passed_any_more() -> None:
    world = World(flat(1, 4), resolve_policy("./patient.py:patient"))
    world.run(a_job("running", 4))
    world.submit(a_job("large", 4))
    world.submit(a_job("small", 1), after_ms=HALF_AN_HOUR_MS)
    assert starts(world.end("running")) == ["large"]
    world.done("large")
    assert starts(world.end("large")) == ["small"]
    world.submit(a_job("large again", 4))
    assert starts(world.submit(a_job("early", 1), after_ms=HALF_AN_HOUR_MS - 1)) == ["early"]
    assert starts(world.submit(a_job("late", 1), after_ms=1)) == []


def test_patience_is_a_parameter() -> None:
    world = World(flat(1, 4), resolve_policy("./patient.py:patient:patience=60"))
    world.run(a_job("running", 4))
    world.submit(a_job("large", 4), a_job("small", 1))
    assert starts(world.end("running", after_ms=60_000)) == ["large"]


def test_its_commands_work_in_order() -> None:
    assert len(COMMANDS) == 3
    for command in COMMANDS:
        assert run(cli, shlex.split(command)[1:]) == 0, command


def test_its_comparison_shows_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, [*shlex.split(COMMANDS[-1])[1:], "-o", "json"]) == 0
    fifo, impatient, patient = (each for each in json.loads(capsys.readouterr().out))
    assert impatient["wait_s"]["mean"] > 0.8 * fifo["wait_s"]["mean"]
    assert patient["wait_s"]["mean"] < fifo["wait_s"]["mean"] / 4
    assert patient["jct_s"]["p95"] > fifo["jct_s"]["p95"]


def test_the_error_it_shows_is_the_one_that_comes() -> None:
    Path("patient.py").write_text(re.sub(r"return \(PATIENT.*", "return job.gpus / 2", CODE))
    world = World(flat(1, 4), resolve_policy("./patient.py:patient"))
    with pytest.raises(PolicyError) as error:
        world.submit(a_job("1", 1))
    assert str(error.value) in PAGE
