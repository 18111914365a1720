"""`phalanx policies`, and the page of the reference, which must say the same of parameters."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from phalanx.cli.main import run
from phalanx.cli.policies import policies
from phalanx.policy import registry
from phalanx.policy.about import About
from phalanx.policy.registry import BUILTIN, described

ROOT = Path(__file__).parents[2]
COMPARED_TITLES = [
    "NAME",
    "PRIOR KNOWLEDGE",
    "ALGORITHM",
    "INPUT",
    "DIMENSIONS",
    "PREEMPTION",
    "STARVATION",
    "PLACEMENT",
]
PAGE = (ROOT / "docs" / "reference" / "policies.md").read_text("utf-8")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    return Call(capsys)


class Call:
    """Runs the verb and gives back exit code, standard output and standard error."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = run(policies, arguments)
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err


def test_the_table_compares_all_policies(call: Call) -> None:
    code, out, err = call()
    header, *lines = out.splitlines()
    assert (code, err) == (0, "")
    assert re.split(r"\s{2,}", header) == COMPARED_TITLES
    assert [line.split()[0] for line in lines] == list(BUILTIN)


@pytest.mark.parametrize("columns", [60, 80, 100, 140, 200, 400])
def test_a_terminal_of_any_width_shows_all_that_is_compared(
    call: Call, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    out = call("fifo", "tiresias-las")[1]
    assert max(map(len, out.splitlines())) <= columns
    assert [title for title in COMPARED_TITLES if title not in out] == []
    words = {word for name in ("fifo", "tiresias-las") for word in described(name)[0].placement.split()}
    assert [word for word in words if word not in out] == []


def test_wide_adds_summary_source_and_parameters(call: Call) -> None:
    header, *lines = call("-o", "wide")[1].splitlines()
    assert header.endswith("PARAMETERS")
    assert next(line for line in lines if line.startswith("fifo")).endswith("skip=false")
    assert next(line for line in lines if line.startswith("tiresias-gittins")).count("samples=…") == 1


def test_names_are_printed_one_a_line(call: Call) -> None:
    assert call("-o", "name")[1].split() == list(BUILTIN)


def test_programs_get_each_parameter_with_its_default_and_what_it_expects(call: Call) -> None:
    rows = {row["name"]: row for row in json.loads(call("-o", "json")[1])}
    assert rows["fifo"]["parameters"] == [{"name": "skip", "default": "false", "expects": "true|false"}]
    assert yaml.safe_load(call("-o", "yaml")[1]) == list(rows.values())


def test_some_can_be_chosen(call: Call) -> None:
    assert call("edf", "drf:weights=a:2", "-o", "name")[1].split() == ["edf", "drf"]


def test_one_of_your_own_is_shown_beside_them(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "from phalanx.policy.policy import Policy\ndef mine(parameters):\n"
    text += "    parameters.integer('speed', default=3)\n    return Policy('mine')\n"
    (tmp_path / "mine.py").write_text(text)
    (row,) = json.loads(call("./mine.py:mine", "-o", "json")[1])
    assert row["name"] == "./mine.py:mine"
    assert row["parameters"] == [{"name": "speed", "default": "3", "expects": "a whole number"}]


def test_an_unknown_policy_is_not_found(call: Call) -> None:
    code, out, err = call("lottery")
    assert (code, out) == (3, "")
    assert err.startswith("phalanx: there is no policy 'lottery' (known: antman, backfill, ")


@pytest.mark.parametrize("name", BUILTIN)
def test_every_policy_says_all_of_itself(name: str) -> None:
    about, _ = described(name)
    assert [field.name for field in fields(About) if getattr(about, field.name) == ""] == []


@pytest.mark.parametrize("name", BUILTIN)
def test_the_reference_has_a_section_for_every_policy_with_its_parameters(name: str) -> None:
    section = re.search(rf"^## {name}\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    assert section, f"docs/reference/policies.md has no section {name}"
    written = re.findall(r"^\| `([a-z_]+=[^`]+)` \|", section[1], re.MULTILINE)
    _, parameters = described(name)
    known = [f"{each.name}={'…' if each.default is None else each.default}" for each in parameters]
    assert sorted(written) == sorted(known)


@pytest.mark.parametrize("name", BUILTIN)
def test_the_reference_tells_what_of_a_policy_is_ours_and_what_is_not(name: str) -> None:
    section = re.search(rf"^## {name}\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    assert section
    theirs = re.search(r"^\*(The [a-z]+'s|Of the papers|Slurm's|KAI's|Volcano's|Others')\*", section[1], re.MULTILINE)
    assert theirs, f"docs/reference/policies.md does not say what of {name} is of its source"
    assert "*Ours*: " in section[1]


def test_the_reference_tells_of_every_part_of_a_policy() -> None:
    parts = re.findall(r"^\| `([a-z_]+)(?:\([a-z, ]+\)|=)` \|", PAGE.partition("## Your own")[2], re.MULTILINE)
    ours = [field.name for field in fields(registry.Policy) if field.name not in ("name", "parameters", "about")]
    assert sorted(parts) == sorted(ours)
