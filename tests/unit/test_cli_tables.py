"""Tables in terminals: as wide as these are, and readable."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cli import job_rows, plan, plan_live
from phalanx.cli.fitting import GAP, Fit, cells, cut, fitted
from phalanx.cli.job_rows import COLUMNS, job_row
from phalanx.cli.output import Column, as_table, emit_one, say

FITS = st.builds(
    lambda width, least, spare: Fit(width, min(least, width), spare),
    st.integers(1, 60),
    st.integers(1, 20),
    st.booleans(),
)
JOB = {
    "id": "48213.31",
    "name": "a-rather-long-name-of-a-training-job",
    "state": "running",
    "queue": "research/llm/pretraining",
    "user": "somebody",
    "gpus": 64,
    "nodes": ["rack7-node12", "rack7-node13", "rack7-node14", "rack7-node15"],
    "submitted_ms": 0,
    "started_ms": 0,
    "running_since_ms": None,
    "executed_before_ms": 86_399_000,
    "ended_ms": 86_399_000,
    "reason": "maintenance",
}


@given(st.lists(FITS, min_size=1, max_size=12), st.integers(1, 200))
def test_what_is_fitted_fits_and_no_column_has_less_than_it_can_do_with(columns: list[Fit], room: int) -> None:
    widths = fitted(columns, room)
    needed = [column for column in columns if not column.spare]
    if widths is None:
        assert sum(column.least for column in needed) + GAP * (len(needed) - 1) > room
        return
    shown = [(column, width) for column, width in zip(columns, widths, strict=True) if width]
    assert sum(width for _, width in shown) + GAP * (len(shown) - 1) <= room
    assert all(column.least <= width <= column.width for column, width in shown)
    assert all(column.spare for column, width in zip(columns, widths, strict=True) if not width)


def test_with_room_enough_nothing_is_cut_or_left_out() -> None:
    assert fitted([Fit(10, 4), Fit(5, 5, spare=True)], 17) == [10, 5]
    assert fitted([Fit(10, 4), Fit(5, 5, spare=True)], 11) == [4, 5]
    assert fitted([Fit(10, 4), Fit(5, 5, spare=True)], 10) == [10, 0]


def test_of_a_name_the_beginning_is_kept_and_of_a_path_the_end() -> None:
    assert cut("pretraining", 5) == "pret…"
    assert cut("research/llm", 5, tail=True) == "…/llm"
    assert cut("short", 5) == "short"


@pytest.mark.parametrize(
    ("running_since_ms", "told"), [(None, "10s"), (70_000, "1m40s")], ids=["preempted and waiting", "running again"]
)
def test_a_job_ran_for_as_long_as_its_attempts_did_and_not_while_it_waited(
    monkeypatch: pytest.MonkeyPatch, running_since_ms: int | None, told: str
) -> None:
    monkeypatch.setattr(job_rows, "now_ms", lambda: 160_000)
    job = {**JOB, "executed_before_ms": 10_000, "running_since_ms": running_since_ms, "ended_ms": None}
    assert job_row(job)["ran"] == told


def test_a_job_that_never_ran_has_nothing_told_of_how_long() -> None:
    assert job_row({**JOB, "started_ms": None, "executed_before_ms": 0})["ran"] is None


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_a_job_is_one_line_that_fits_with_its_id_and_state_whole(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    shown = as_table([job_row(JOB)], [column for column in COLUMNS if not column.wide]).splitlines()
    assert len(shown) == 2
    assert max(map(len, shown)) <= columns
    assert shown[1].split()[0] == "48213.31"
    assert " running " in shown[1]
    assert " maintenance " in f"{shown[1]} "


def test_a_table_of_numbers_that_does_not_fit_loses_its_last_columns_and_stays_a_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    columns = [Column("policy"), *(Column(f"measure_{letter}") for letter in "abcdef")]
    shown = as_table([{"policy": "fifo", "measure_a": 1.5}, {"policy": "srtf", "measure_a": 2.5}], columns)
    assert shown.splitlines()[0] == "POLICY  MEASURE A  MEASURE B  MEASURE C"
    assert len(shown.splitlines()) == 3


def test_a_moment_is_not_folded_where_prose_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("NO_COLOR", "1")
    row = {
        "at": "2026-11-15 17:48:53",
        "detail": "a sentence that goes on for longer than the rest of the line has room",
    }
    shown = as_table([row], [Column("at"), Column("detail")]).splitlines()
    assert shown[1].startswith("2026-11-15 17:48:53  a sentence that")
    assert len(shown) == 3


def test_a_table_that_cannot_fit_is_told_row_by_row_in_a_real_terminal() -> None:
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "phalanx", "policies", "fifo", "fair", "-o", "wide"]
    with subprocess.Popen(command, stdout=follower, env=environment) as process:
        os.close(follower)
        shown = b""
        try:
            while piece := os.read(leader, 65536):
                shown += piece
        except OSError:
            pass  # Linux ends a terminal that nobody writes to any more with an error.
    os.close(leader)
    lines = shown.decode().split("\r\n")
    assert process.returncode == 0
    assert max(map(len, lines)) <= 80
    assert [line.split()[1] for line in lines if line.startswith("NAME ")] == ["fifo", "fair"]


def test_a_row_is_one_line_however_wide_its_characters_are() -> None:
    columns = (Column("name"), Column("queue", least=4))
    lines = as_table([{"name": "日本-😀", "queue": "ünï"}, {"name": "a", "queue": "b"}], columns).splitlines()
    assert lines == ["NAME     QUEUE", "日本-😀  ünï", "a        b"]


def test_of_wide_characters_so_many_are_kept_as_have_room() -> None:
    assert cut("日本語", 6) == "日本語"
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 4) == "日…"
    assert cut("日本語", 4, tail=True) == "…語"


@pytest.mark.parametrize("room", [16, 40, 80])
def test_sentences_are_folded_between_words_on_a_terminal_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], room: int
) -> None:
    text = "  5.0 s  job 名前名前 waits: it needs 32 GPUs and 2 are free (of 8 nodes: 8 without enough free GPUs)"
    say(text)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(room))
    say(text, indent="    ")
    lines = capsys.readouterr().out.splitlines()
    assert all(cells(line) <= max(room, 20) for line in lines)
    assert " ".join(line.strip() for line in lines).split() == text.split()
    assert lines[0].startswith("  5.0 s")
    assert all(line.startswith("    ") for line in lines[1:])


def test_lines_of_one_thing_are_as_narrow_as_the_terminal_also_with_wide_letters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    emit_one({"name": "名前が長い" * 20, "id": "x" * 200}, [Column("name"), Column("id")], "table")
    lines = capsys.readouterr().out.splitlines()
    assert all(cells(line) <= 40 for line in lines)
    assert "".join(line.removeprefix("ID").strip() for line in lines if "x" in line) == "x" * 200


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("table", [plan.COLUMNS, plan_live.COLUMNS], ids=["file", "live"])
def test_why_a_job_would_not_start_is_in_a_plan_however_narrow_it_is(
    monkeypatch: pytest.MonkeyPatch, table: tuple[Column, ...], columns: int
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    row = {"job": "2", "name": "a-training-with-a-long-name", "state": "waiting", "gpus": 0, "asks": "16"}
    nodes = {"nodes": ["a-node-with-a-long-name-0"], "where": "a-node-with-a-long-name-0", "starts": "", "leaving": ""}
    row |= {**nodes, "why": "it needs 16 GPUs and 8 are free"}
    shown = as_table([row], [column for column in table if not column.wide]).splitlines()
    assert max(map(len, shown)) <= columns
    assert shown[0].endswith("WHY")
    assert "it needs 16" in shown[1]
