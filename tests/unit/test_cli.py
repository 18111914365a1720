"""The command line's frame: verbs loaded late, data on stdout, errors in one line, codes that scripts can read."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from phalanx.cli.exit import MEANING, Exit
from phalanx.cli.main import VERBS, Verb, cli, run
from phalanx.cli.output import Column, Output, cell, emit, emit_one, output_option
from phalanx.cli.reference import PAGES
from phalanx.errors import PhalanxError

ROOT = Path(__file__).parents[2]
COLUMNS = [Column("name"), Column("gpus", "GPUS"), Column("rack", wide=True)]
ROWS = [
    {"name": "n1", "gpus": 8, "rack": "r1", "labels": ["spot"]},
    {"name": "n2[red]", "gpus": 16, "rack": None, "labels": []},
]


def phalanx(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "phalanx", *arguments], capture_output=True, text=True)


def test_help_lists_every_verb_with_its_line() -> None:
    shown = " ".join(CliRunner().invoke(cli, ["--help"]).output.split())
    for name, verb in VERBS.items():
        assert f"{name} {verb.summary}" in shown


HEAVY = {
    *("rich", "yaml", "msgspec", "asyncio", "fastapi", "sqlalchemy", "torch", "dataclasses"),
    *(verb.target.partition(":")[0] for verb in VERBS.values()),
    *(f"phalanx.{package}" for package in ("cluster", "workload", "placement", "policy", "engine", "simulate")),
}


def test_help_imports_nothing_heavy() -> None:
    script = "import sys\nfrom phalanx.cli.main import run, cli\nrun(cli, ['--help'])\nprint(*sys.modules)"
    # What measures coverage imports much of its own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    loaded = set(result.stdout.splitlines()[-1].split())
    assert not loaded & (HEAVY | {"json"})


def test_completing_a_verb_loads_none_of_them() -> None:
    """By its summary each verb is known; to load them all takes a second."""
    script = "import atexit, sys\nfrom phalanx.cli.main import main\n"
    script += "atexit.register(lambda: print(*sys.modules))\nmain([])"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    environment |= {"_PHALANX_COMPLETE": "bash_complete", "COMP_WORDS": "phalanx ", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    *completed, loaded = done.stdout.splitlines()
    assert completed == [f"plain,{name}" for name in sorted(VERBS)]
    assert not set(loaded.split()) & HEAVY


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_of_the_table_loads_and_has_help(name: str) -> None:
    assert VERBS[name].load().name == name
    assert CliRunner().invoke(cli, [name, "--help"]).exit_code == Exit.OK


def test_a_verb_that_is_no_command_is_refused_with_its_address() -> None:
    with pytest.raises(TypeError, match=r"json:dumps is a function, expected a click command"):
        Verb("json:dumps", "").load()


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_pages_say_what_the_code_says(name: str) -> None:
    page = ROOT / "docs" / "reference" / f"{name}.md"
    assert page.read_text(encoding="utf-8") == PAGES[name](), (
        f"regenerate: uv run python -m phalanx.cli.reference {name} > docs/reference/{name}.md"
    )


def test_every_exit_code_says_what_it_means() -> None:
    assert list(MEANING) == list(Exit)


def test_the_version_is_printed() -> None:
    result = phalanx("--version")
    assert result.returncode == Exit.OK
    assert result.stdout.startswith("phalanx ")


def test_a_misspelled_verb_is_a_usage_error_that_names_the_nearest() -> None:
    result = phalanx("hardwar")
    assert result.returncode == Exit.USAGE
    assert result.stdout == ""
    assert "Did you mean 'hardware'?" in result.stderr


@pytest.mark.parametrize(("typed", "meant"), [("sacct", "history"), ("srun", "run"), ("sreport", "usage")])
def test_commands_of_slurm_name_the_verb_that_does_the_same(typed: str, meant: str) -> None:
    result = phalanx(typed)
    assert result.returncode == Exit.USAGE
    assert f"Did you mean '{meant}'?" in result.stderr


def failing(error: BaseException) -> click.Command:
    @click.command
    def verb() -> None:
        raise error

    return verb


class NotFoundError(PhalanxError):
    exit_code = Exit.NOT_FOUND


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (PhalanxError("job.yaml:3: gpus is -1, expected 0 or more"), "job.yaml:3: gpus is -1", Exit.ERROR),
        (NotFoundError("no job 4821"), "no job 4821", Exit.NOT_FOUND),
        (PermissionError(13, "Permission denied", "job.yaml"), "job.yaml: Permission denied", Exit.ERROR),
        (OSError("the disk is gone"), "the disk is gone", Exit.ERROR),
        (KeyboardInterrupt(), "interrupted", Exit.INTERRUPTED),
    ],
)
def test_an_error_is_one_line_on_stderr_and_its_code(
    error: BaseException, line: str, code: Exit, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(failing(error), []) == code
    captured = capfd.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
    assert f"phalanx: {line}" in captured.err


def test_a_mistake_of_ours_is_not_dressed_up_as_the_users() -> None:
    with pytest.raises(ZeroDivisionError):
        run(failing(ZeroDivisionError()), [])


def test_a_verb_may_return_its_own_exit_code() -> None:
    @click.command
    def wait() -> int:
        return Exit.JOB_FAILED

    assert run(wait, []) == Exit.JOB_FAILED


@pytest.mark.parametrize(
    "write",
    [
        "while True: click.echo('a line')",
        # Nothing is written before the last flush.
        "sys.stdin.read(); sys.stdout.write('a line')",
    ],
)
def test_a_reader_that_goes_away_ends_the_program_quietly(write: str) -> None:
    script = f"""
import click, sys
from phalanx.cli.main import run

@click.command
def verb():
    {write}

sys.exit(run(verb, []))
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == Exit.ERROR


def shown(output: Output, capfd: pytest.CaptureFixture[str]) -> str:
    emit(ROWS, COLUMNS, output)
    return capfd.readouterr().out


def test_a_table_has_headers_and_right_aligned_numbers_and_takes_names_literally(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert shown("table", capfd) == "NAME     GPUS\nn1          8\nn2[red]    16\n"


def test_a_wide_table_has_the_wide_columns_too(capfd: pytest.CaptureFixture[str]) -> None:
    assert shown("wide", capfd) == "NAME     GPUS  RACK\nn1          8  r1\nn2[red]    16  -\n"


def test_programs_get_every_key(capfd: pytest.CaptureFixture[str]) -> None:
    assert json.loads(shown("json", capfd)) == ROWS
    assert yaml.safe_load(shown("yaml", capfd)) == ROWS


def test_names_come_one_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert shown("name", capfd) == "n1\nn2[red]\n"


def test_an_empty_list_is_headers_for_people_and_an_empty_array_for_programs(
    capfd: pytest.CaptureFixture[str],
) -> None:
    emit([], COLUMNS, "table")
    assert capfd.readouterr().out == "NAME  GPUS\n"
    emit([], COLUMNS, "json")
    assert capfd.readouterr().out == "[]\n"


def test_one_thing_is_an_object_or_a_line_a_column(capfd: pytest.CaptureFixture[str]) -> None:
    emit_one(ROWS[0], COLUMNS, "json")
    assert json.loads(capfd.readouterr().out) == ROWS[0]
    emit_one(ROWS[0], COLUMNS, "yaml")
    assert yaml.safe_load(capfd.readouterr().out) == ROWS[0]
    emit_one(ROWS[0], COLUMNS, "wide")
    assert capfd.readouterr().out == "NAME  n1\nGPUS  8\nRACK  r1\n"
    emit_one(ROWS[0], COLUMNS, "name")
    assert capfd.readouterr().out == "n1\n"


def test_a_long_line_is_not_cut_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    emit([{"name": "x" * 300}], [Column("name")], "table")
    assert "x" * 300 in capfd.readouterr().out


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (False, "no"),
        (0.30000000000000004, "0.3"),
        (["a", "b"], "a,b"),
        ("naïve", "naïve"),
        ("\x1b[31mred", "\\x1b[31mred"),
    ],
)
def test_a_value_is_shown_as_people_read_it(value: object, text: str) -> None:
    assert cell(value) == text


@pytest.mark.parametrize(("no_color", "is_styled"), [("", True), ("1", False)])
def test_a_terminal_gets_colour_unless_no_color_is_set(no_color: str, is_styled: bool) -> None:
    script = "from phalanx.cli.output import *; emit([{'name': 'n1'}], [Column('name')], 'table')"
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": no_color}
    subprocess.run([sys.executable, "-c", script], stdout=terminal, env=environment, check=True)
    os.close(terminal)
    written = os.read(controller, 4096)
    os.close(controller)
    assert b"n1" in written
    assert (b"\x1b[" in written) == is_styled


def test_the_output_option_refuses_an_unknown_format() -> None:
    @click.command
    @output_option
    def verb(output: Output) -> None:
        click.echo(output)

    assert CliRunner().invoke(verb, []).output == "table\n"
    assert CliRunner().invoke(verb, ["-o", "yaml"]).output == "yaml\n"
    assert CliRunner().invoke(verb, ["-o", "xml"]).exit_code == Exit.USAGE
