"""What a user expects of `submit` and `run` in the first hour: options count, and jobs find the user's own Python."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from live import Phalanx

from phalanx.cli.exit import Exit


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text("name: mine\ngpus: 1\ncommand: [sh, -c, 'echo $COLOUR']\nenv: {COLOUR: green}\nduration: 1h\n")
    return file


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program in a virtual environment of the submitter's, and secrets in its shell."""
    program = tmp_path / "venv" / "bin" / "my-tool"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nenv\n")
    for path in (program, program.parent, program.parent.parent):
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("VIRTUAL_ENV", str(program.parents[1]))
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY"):
        monkeypatch.setenv(name, "very-secret")
    return program.name


def test_set_changes_a_file_and_dry_run_tells_what(phalanx: Phalanx, job_file: Path) -> None:
    shown = phalanx("submit", str(job_file), "--set", "gpus=2", "--set", "priority=5", "--dry-run")
    keys = yaml.safe_load(shown.out)
    assert (keys["gpus"], keys["priority"], keys["name"]) == (2, 5, "mine")
    assert f"{job_file}: gpus: 1 becomes 2\n{job_file}: priority: 5\n" in shown.err


def test_set_changes_a_template_and_dry_run_tells_what(phalanx: Phalanx) -> None:
    shown = phalanx("submit", "--template", "hello", "--set", "name=other", "--dry-run")
    assert "template hello: name: hello becomes other" in shown.err


def test_options_count_before_what_a_file_says(phalanx: Phalanx, job_file: Path) -> None:
    options = ("--name", "theirs", "--gpus", "2", "--tasks", "2", "--env", "SIZE=big", "--duration", "5m")
    keys = yaml.safe_load(phalanx("submit", str(job_file), *options, "--dry-run", "--", "true").out)
    assert keys["gang"] == [{"role": "worker", "gpus": 2, "replicas": 2}]
    assert (keys["name"], keys["duration"], keys["command"]) == ("theirs", "5m", ["true"])
    assert keys["env"]["COLOUR"] == "green"
    assert keys["env"]["SIZE"] == "big"
    result = phalanx("run", str(job_file), "--env", "COLOUR=red")
    assert (result.code, "red\n" in result.out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--gpus", "1", "python", "train.py"], "a command goes after `--`, as in `phalanx submit -- python train.py`"),
        (["python", "train.py", "--lr", "3"], "the command of a job goes after `--`"),
        (["--set", "gpus=1", "--", "true"], "--set changes a FILE or a template: name one"),
        (["{job}", "--template", "hello"], "name one of them"),
        (["{job}", "--set", "gpus"], "--set gpus: expected NAME=VALUE"),
        (["{job}", "--set", "gang.0.gpus=1"], "has no 'gang'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_do(
    phalanx: Phalanx, job_file: Path, arguments: list[str], told: str
) -> None:
    result = phalanx("submit", *[str(job_file) if each == "{job}" else each for each in arguments])
    assert result.code == Exit.USAGE
    assert told in result.err


def test_plan_and_submit_tell_at_which_sizes_a_batch_is_not_shared_out_evenly(phalanx: Phalanx, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "name: mine\ngang: [{replicas: {min: 1, max: 3}, gpus: 1}]\nbatch: {global: 8}\ncommand: ['true']\n"
    )
    told = "mine: at 3 ranks its batch of 8 is not shared out evenly"
    assert told in phalanx("plan", str(file)).err
    submitted = phalanx("submit", str(file))
    assert (submitted.code, told in submitted.err) == (0, True)


def test_a_program_in_the_place_of_a_job_file_is_told_how_to_run(phalanx: Phalanx, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("print('hello')\n")
    result = phalanx("submit", str(program))
    assert (result.code, result.out) == (Exit.USAGE, "")
    assert f"run it with `phalanx submit -- python {program}`" in result.err


def test_a_change_that_the_file_cannot_take_is_told_with_its_key(phalanx: Phalanx, job_file: Path) -> None:
    result = phalanx("submit", str(job_file), "--set", "gpus=many")
    assert result.code == Exit.ERROR
    assert f"{job_file}, as changed by options:" in result.err
    assert "key 'gpus'" in result.err


def test_a_job_finds_the_programs_of_its_submitter_and_none_of_its_secrets(phalanx: Phalanx, tool: str) -> None:
    result = phalanx("run", "--", tool)
    assert result.code == 0
    assert "VIRTUAL_ENV=" in result.out
    assert "PYTHONUNBUFFERED=1" in result.out
    assert "very-secret" not in result.out
    shown = phalanx("submit", "--dry-run", "--", tool).out
    assert "very-secret" not in shown


def test_what_a_job_says_of_its_environment_counts_before_that_of_the_shell(phalanx: Phalanx, tool: str) -> None:
    result = phalanx("run", "--env", "VIRTUAL_ENV=/opt/mine", "--env", "PYTHONUNBUFFERED=", "--", tool)
    assert "VIRTUAL_ENV=/opt/mine\n" in result.out
    assert "PYTHONUNBUFFERED=\n" in result.out


@pytest.mark.parametrize("how", ["by option", "by file"])
def test_a_job_can_go_without_the_environment_of_its_submitter(
    phalanx: Phalanx, tool: str, tmp_path: Path, how: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"command: [{tool}]\n{'inherit_env: false' if how == 'by file' else ''}\n")
    result = phalanx("run", *(["--no-inherit-env"] if how == "by option" else []), str(file))
    assert result.code == Exit.RUN_ERROR
    assert "there is no such program on the job's PATH" in result.err
    if how == "by file":
        assert phalanx("run", "--inherit-env", str(file)).code == 0


def test_a_folder_that_is_not_there_is_told_before_the_job_starts(phalanx: Phalanx, tmp_path: Path) -> None:
    result = phalanx("submit", "--begin", "+1h", "--workdir", str(tmp_path / "nowhere"), "-o", "name", "--", "true")
    assert f"workdir '{tmp_path}/nowhere': there is no such folder on this machine" in result.err
    assert phalanx("cancel", result.out.strip()).code == 0


def test_nodes_that_a_job_excludes_are_an_option(phalanx: Phalanx) -> None:
    made = phalanx("submit", "--begin", "+1h", "--exclude", "n0, n1", "--exclude", "n3", "-o", "name", "--", "true")
    job = phalanx("job", made.out.strip(), "-o", "json").data
    assert job["spec"]["node_selector"] == [["phalanx/node", "!n0,n1,n3"]]
    for options in (
        ["--node", "n0", "--exclude", "n1"],
        ["--node-selector", "phalanx/node=n0", "--exclude", "n1"],
        ["--exclude", ""],
        ["--exclude", "n1,,n2"],
        ["--exclude", "!n1"],
    ):
        wrong = phalanx("submit", *options, "--", "true")
        assert (wrong.code, "--exclude" in wrong.err) == (2, True)
    assert phalanx("cancel", job["id"]).code == 0


def test_preferences_are_an_option_with_weights(phalanx: Phalanx) -> None:
    liked = ["--prefer", "phalanx/node=n1:60", "--prefer", "zone=a:b"]
    made = phalanx("submit", "--begin", "+1h", *liked, "-o", "name", "--", "true")
    job = phalanx("job", made.out.strip(), "-o", "json").data
    assert [(each["label"], each["value"], each["weight"]) for each in job["spec"]["preferences"]] == [
        ("phalanx/node", "n1", 60),
        ("zone", "a:b", 1),
    ]
    for text in ("fast", "pool=a:0", "pool=a:-5", "pool=a:101", f"pool=a:{'9' * 5000}", "pool=a:²"):
        wrong = phalanx("submit", "--prefer", text, "--", "true")
        assert (wrong.code, "--prefer" in wrong.err) == (2, True)
    assert phalanx("cancel", job["id"]).code == 0


def test_node_size_and_dependencies_are_options_of_a_job(phalanx: Phalanx) -> None:
    first = phalanx("submit", "-o", "json", "--", "sleep", "60").data["id"]
    options = ["--node", "n1", "--node-selector", "a=b", "--tasks", "1:2", "--gpus", "1"]
    waits = ["--dependency", f"afterok:{first}", "--after-any", first, "--keep-unmet", "--array", "0-4:2%1"]
    made = phalanx("submit", "-o", "json", *options, *waits, "--", "true")
    assert made.code == 0, made.err
    spec = phalanx("job", made.data["id"], "-o", "json").data["spec"]
    assert sorted(spec["node_selector"]) == [["a", "b"], ["phalanx/node", "n1"]]
    [role] = spec["gang"]["roles"]
    assert (role["replicas_min"], role["replicas_max"]) == (1, 2)
    assert [(each["job"], each["on"], each["keep"]) for each in spec["after"]] == [
        (first, "end", True),
        (first, "success", True),
    ]
    assert [member.partition(".")[2] for member in made.data["members"]] == ["0", "2", "4"]
    assert phalanx("submit", "--tasks", "8:2", "--", "true").code == Exit.USAGE
    phalanx("cancel", first, made.data["id"].partition(".")[0])
