"""Job files that are sent as they are written: what is added to them, and which must be read as YAML."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cli.job_draft import JobDraft, NoTree
from phalanx.cli.plain_file import plain_file
from phalanx.templates.gallery import templates

ROOT = Path(__file__).parents[2]
FILES = {
    **{path.name: path.read_text() for path in sorted(ROOT.glob("examples/job*.yaml"))},
    **{each.name: each.text for each in templates()},
}
VARIABLES = {"PATH": "/usr/bin:/bin", "LANG": 'a "b" \\ ü: # c'}


def settled(text: str) -> tuple[object, object] | None:
    """A file with a folder and variables added, as it is read: plain, and by way of YAML; None if it is not plain."""
    plain = plain_file(text, "job.yaml")
    if plain is None:
        return None
    draft = JobDraft(text, "job.yaml")
    for each in (plain, draft):
        if not each.has("workdir"):
            each.put(["workdir"], "/home/ada: #1")
        each.add_pairs("env", VARIABLES)
        assert each.value("workdir") is not None
    return yaml.load(plain.sent, yaml.BaseLoader), yaml.load(draft.sent, yaml.BaseLoader)


@pytest.mark.parametrize("name", FILES)
def test_what_is_added_to_a_plain_file_is_what_yaml_would_add(name: str) -> None:
    both = settled(FILES[name])
    assert both is None or both[0] == both[1]


def test_a_usual_file_is_plain() -> None:
    both = settled("# mine\nname: a\ngpus: 1\ncommand:\n- python\n- 'train.py'\ngang:\n  - {gpus: 8}\nworkdir: /x  # y")
    assert both is not None
    assert both[0] == both[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a\n",
        '{"gpus": 1}\n',
        '"workdir": /x\n',
        "'gpus': 1\n",
        "env: {A: b}\n",
        "--- \ngpus: 1\n",
        "gpus: 1\n...\n",
        "gpus: 1\ngpus: 2\n",
        "<<: {workdir: /x}\n",
        "? workdir\n: /x\n",
        'name: "a\nworkdir: /x"\n',
        "command: [a,\nworkdir: x]\n",
        "workdir: *here\n",
        "workdir: '/x'\n",
        "workdir:\n  /x\n",
        "gpus: 1\n\tworkdir: /x\n",
    ],
)
def test_a_file_whose_lines_leave_a_doubt_is_not_plain(text: str) -> None:
    assert plain_file(text, "job.yaml") is None


PIECES = (
    "gpus: 1",
    "name: a",
    "workdir: /x",
    " a",
    "- b",
    "command: |",
    "  workdir: /y",
    "#c",
    "'",
    '"',
    "[",
    "]",
    "\n",
)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("\n".join))
def test_whatever_is_taken_for_plain_means_the_same_to_yaml(text: str) -> None:
    try:
        JobDraft(text, "job.yaml")
    except NoTree:
        return
    both = settled(text)
    assert both is None or both[0] == both[1]
