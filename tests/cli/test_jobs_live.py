"""The daily verbs against a real server that runs real processes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from live import Phalanx, Server, until

from job_python import JOB_PYTHON
from phalanx.cli.exit import Exit
from phalanx.templates.gallery import templates
from phalanx.workload.formats.native import read_job


def submit(phalanx: Phalanx, *arguments: str) -> str:
    result = phalanx("submit", "-o", "name", *arguments)
    assert result.code == 0, result.err
    return result.out.strip()


def test_a_command_is_submitted_and_waited_for(phalanx: Phalanx) -> None:
    result = phalanx("submit", "--gpus", "1", "--wait", "-o", "json", "--", "true")
    assert result.code == 0
    assert result.data["gpus"] == 1
    assert "succeeded" in result.err


def test_run_prints_what_the_job_prints_and_exits_with_its_code(phalanx: Phalanx) -> None:
    result = phalanx("run", "--", "sh", "-c", "echo one; echo two; exit 3")
    assert result.code == 3
    assert "one\ntwo\n" in result.out
    assert "exit 3" in result.err


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 100", 100), ("kill -KILL $$", 137)])
def test_run_exits_as_the_command_would_have_in_a_shell(phalanx: Phalanx, script: str, code: int) -> None:
    assert phalanx("run", "--", "sh", "-c", script).code == code


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--gpus", "many", "--", "true"], "not a valid integer"),
        ([], "expected FILE"),
        (["--queue", "no such queue", "--", "true"], "expected a queue"),
        (["--", "no-such-program"], "no such program"),
    ],
)
def test_run_exits_with_125_where_no_job_gave_a_code(phalanx: Phalanx, arguments: list[str], told: str) -> None:
    result = phalanx("run", *arguments)
    assert result.code == Exit.RUN_ERROR
    assert told in result.err


def test_run_exits_with_125_where_there_is_no_server(phalanx: Phalanx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_ADDR", "http://127.0.0.1:1")
    assert phalanx("run", "--", "true").code == Exit.RUN_ERROR


def test_submit_and_wait_keep_their_own_codes(phalanx: Phalanx) -> None:
    assert phalanx("submit", "--wait", "--", "sh", "-c", "exit 3").code == Exit.JOB_FAILED
    assert phalanx("submit", "--gpus", "many", "--", "true").code == Exit.USAGE


def test_a_job_runs_in_the_folder_it_was_submitted_from_when_the_server_is_here(
    phalanx: Phalanx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path) in phalanx("run", "--", "pwd").out


def test_a_file_is_submitted_as_it_is(phalanx: Phalanx, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: from-file\ngpus: 2\ncommand: [sh, -c, 'echo $YES']\nenv: {YES: yes}\n")
    result = phalanx("run", str(file))
    assert result.code == 0
    assert "yes\n" in result.out


@pytest.mark.parametrize("verb", ["submit", "plan"])
def test_a_storage_tier_that_the_cluster_does_not_have_is_told_with_file_line_and_key(
    phalanx: Phalanx, tmp_path: Path, verb: str
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("gpus: 1\ncommand: 'true'\nstorage:\n  nvme: 10\n")
    result = phalanx(verb, str(job))
    assert result.code != 0
    assert f"{job}:4: key 'storage.nvme': this cluster has no storage tier 'nvme', it has none" in result.err


@pytest.mark.parametrize("verb", ["submit", "plan"])
def test_a_level_that_the_cluster_does_not_have_is_told_with_file_line_and_key(
    phalanx: Phalanx, tmp_path: Path, verb: str
) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("gpus: 1\ncommand: 'true'\n")
    bad.write_text("gpus: 1\ncommand: 'true'\ntopology:\n  required: pod\n")
    result = phalanx(verb, str(good), str(bad))
    assert result.code != 0
    assert f"{bad}:4: key 'topology.required': this cluster has no level 'pod'" in result.err


def test_several_files_are_submitted_together_and_may_wait_for_one_another(phalanx: Phalanx, tmp_path: Path) -> None:
    for name, after in (("last", "[first]"), ("first", "[]")):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\ngpus: 1\ncommand: 'true'\nafter: {after}\n")
    made = phalanx("submit", "-o", "json", "--wait", str(tmp_path / "last.yaml"), str(tmp_path / "first.yaml")).data
    assert [job["name"] for job in made] == ["last", "first"]
    assert [each["job"] for each in made[0]["spec"]["after"]] == [made[1]["id"]]


def test_files_that_wait_for_one_another_are_refused_with_the_circle_shown(phalanx: Phalanx, tmp_path: Path) -> None:
    for name, after in (("x-circle", "y-circle"), ("y-circle", "x-circle")):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\ngpus: 1\ncommand: 'true'\nafter: [{after}]\n")
    result = phalanx("submit", *(str(tmp_path / f"{name}-circle.yaml") for name in "xy"))
    assert result.code == Exit.REFUSED
    assert "x-circle -> y-circle -> x-circle" in result.err
    assert not [job for job in phalanx("jobs", "-o", "json").data if "circle" in job["name"]]


def test_a_file_with_a_mistake_is_refused_with_its_line_and_nothing_is_submitted(
    phalanx: Phalanx, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: true\ngpuz: 2\n")
    before = phalanx("jobs", "--all", "-o", "name", "--limit", "1").out
    result = phalanx("submit", str(file))
    assert result.code == 1
    assert f"{file}:2: key 'gpuz'" in result.err
    assert phalanx("jobs", "--all", "-o", "name", "--limit", "1").out == before


def test_nothing_to_run_is_a_usage_error_that_says_what_to_do(phalanx: Phalanx) -> None:
    result = phalanx("submit", "--gpus", "1")
    assert result.code == Exit.USAGE
    assert "phalanx submit -- true" in result.err


def test_a_deadline_and_how_long_it_may_wait_are_options_and_it_is_told_whether_it_can_be_met(phalanx: Phalanx) -> None:
    times = ("--duration", "1h", "--begin", "+1h", "--deadline", "+90m", "--max-wait", "10m")
    result = phalanx("submit", "-o", "json", *times, "--gpus", "1", "--", "true")
    assert result.code == 0, result.err
    spec = phalanx("job", result.data["id"], "-o", "json").data["spec"]
    assert (spec["duration_ms"], spec["max_wait_ms"]) == (3_600_000, 600_000)
    assert spec["deadline_ms"] is not None
    assert "cannot meet its deadline: its begin time comes in" in result.err
    assert phalanx("cancel", result.data["id"]).code == 0


def test_a_dry_run_prints_the_job_file_and_submits_nothing(phalanx: Phalanx) -> None:
    options = ("--dry-run", "--no-inherit-env", "--tasks", "2", "--gpus", "1", "--env", "A=b=c")
    result = phalanx("submit", *options, "--", "echo", "it's")
    keys = yaml.safe_load(result.out)
    assert keys["gang"] == [{"role": "worker", "replicas": 2, "gpus": 1}]
    assert keys["env"] == {"A": "b=c"}
    assert keys["command"] == ["echo", "it's"]


def test_a_gang_gets_one_rank_a_task(phalanx: Phalanx) -> None:
    job = submit(phalanx, "--tasks", "2", "--gpus", "1", "--wait", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE")
    assert phalanx("logs", job, "--rank", "1").out == "1 of 2\n"


def test_members_of_an_array_have_their_indices(phalanx: Phalanx) -> None:
    result = phalanx("submit", "--array", "3-5", "--wait", "-o", "json", "--", "sh", "-c", "echo $PHALANX_ARRAY_INDEX")
    assert result.code == 0
    assert [phalanx("logs", member).out for member in result.data["members"]] == ["3\n", "4\n", "5\n"]


def test_an_array_is_shown_waited_for_and_cancelled_by_its_own_id(phalanx: Phalanx) -> None:
    made = phalanx("submit", "--array", "0-2", "-o", "json", "--", "true").data
    assert phalanx("wait", made["array_of"]).code == 0
    assert [member["id"] for member in phalanx("job", made["array_of"], "-o", "json").data] == made["members"]
    made = phalanx("submit", "--array", "0-9%1", "--name", "long-array", "-o", "json", "--", "sleep", "600").data
    cancelled = phalanx("cancel", "long-array", "-o", "json").data
    assert [job["id"] for job in cancelled] == made["members"]
    assert {job["state"] for job in cancelled} <= {"stopping", "cancelled"}
    assert phalanx("wait", made["array_of"]).code == Exit.JOB_CANCELLED
    assert "is an array" in phalanx("why", made["array_of"]).err


@pytest.mark.parametrize("follow", [(), ("--follow",)])
def test_an_array_is_shown_by_its_name_also_when_it_is_over(phalanx: Phalanx, follow: tuple[str, ...]) -> None:
    name = f"sweep{len(follow)}"
    script = "echo member $PHALANX_ARRAY_INDEX"
    made = phalanx("submit", "--name", name, "--array", "0-2", "--wait", "-o", "json", "--", "sh", "-c", script).data
    assert [member["id"] for member in phalanx("job", name, "-o", "json").data] == made["members"]
    shown = phalanx("logs", name, *follow)
    assert (shown.code, shown.out) == (0, "member 0\nmember 1\nmember 2\n")
    assert [line for line in shown.err.splitlines() if line] == [f"==> {each} <==" for each in made["members"]]
    assert phalanx("logs", made["members"][1]).out == "member 1\n"


def test_members_of_an_array_that_have_not_started_keep_no_other_back(phalanx: Phalanx) -> None:
    script = "echo member $PHALANX_ARRAY_INDEX; sleep 600"
    options = ("--name", "some", "--array", "0-1%1", "-o", "json")
    made = phalanx("submit", *options, "--", "sh", "-c", script).data
    until(lambda: phalanx("logs", made["members"][0]).out)
    shown = phalanx("logs", "some")
    assert (shown.code, shown.out) == (0, "member 0\n")
    assert "has not been started yet" in shown.err
    phalanx("cancel", "some")


def test_an_array_of_one_member_is_that_member(phalanx: Phalanx) -> None:
    submit(phalanx, "--name", "alone", "--array", "3", "--wait", "--", "sh", "-c", "echo $PHALANX_ARRAY_INDEX")
    assert phalanx("logs", "alone").out == "3\n"


def test_what_a_job_prints_to_either_stream_is_shown_on_the_same(phalanx: Phalanx) -> None:
    result = phalanx("run", "--", "sh", "-c", "echo fine; echo 'something is wrong' >&2; exit 3")
    assert result.code == 3
    assert result.out.splitlines()[-1] == "fine"
    assert "something is wrong\n" in result.err
    job = phalanx("jobs", "--all", "--limit", "1", "-o", "name").out.strip()
    shown = phalanx("logs", job)
    assert (shown.out, shown.err) == ("fine\n", "something is wrong\n")


def test_the_last_lines_are_whole_however_long_they_are(phalanx: Phalanx) -> None:
    script = "[print(str(i) * 5000) for i in range(4)]"
    job = submit(phalanx, "--wait", "--", JOB_PYTHON, "-c", script)
    assert phalanx("logs", job, "--tail", "2").out == f"{'2' * 5000}\n{'3' * 5000}\n"


def test_what_a_job_says_of_its_progress_is_shown_with_it(phalanx: Phalanx) -> None:
    script = """
import json, os, urllib.request
said = json.dumps({"step": 1200, "durable_step": 1000, "samples_per_s": 512, "gpu_busy": 0.5, "metrics": {"loss": 2.5}})
headers = {"Authorization": "Bearer " + os.environ["PHALANX_PROGRESS_TOKEN"], "Content-Type": "application/json"}
urllib.request.urlopen(urllib.request.Request(os.environ["PHALANX_PROGRESS_URL"], said.encode(), headers))
"""
    job = submit(phalanx, "--wait", "--", JOB_PYTHON, "-c", script)
    told = "step 1,200, 1,000 saved, 512 samples/s, GPUs 50% busy, loss 2.5, "
    assert told in phalanx("job", job).out
    assert phalanx("job", job, "-o", "json").data["progress"]["metrics"] == {"loss": 2.5}


def test_who_waits_for_a_job_that_cannot_start_hears_why(phalanx: Phalanx) -> None:
    job = submit(phalanx, "--gpus", "64", "--", "true")
    result = phalanx("wait", "--timeout", "8", job)
    assert result.code == Exit.JOB_NOT_FINISHED
    assert f"job {job} is pending: never_fits; `phalanx why {job}` tells more" in result.err
    phalanx("cancel", job)


@pytest.mark.parametrize("template", templates(), ids=lambda template: template.name)
def test_every_template_of_the_gallery_is_a_job_file_with_a_line_about_it(template: object) -> None:
    read_job(template.text, template.name, job_id="1")  # type: ignore[attr-defined]
    assert template.summary.endswith(".")  # type: ignore[attr-defined]


def test_a_template_is_changed_by_set_by_options_and_by_a_command(phalanx: Phalanx) -> None:
    result = phalanx(
        "submit", "--template", "train-ddp", "--set", "gang.0.replicas=2", "--name", "mine", "--dry-run", "--", "true"
    )
    keys = yaml.safe_load(result.out)
    assert keys["gang"][0]["replicas"] == 2
    assert keys["name"] == "mine"
    assert keys["command"] == ["true"]


def test_an_unknown_template_is_named_with_those_there_are(phalanx: Phalanx) -> None:
    result = phalanx("submit", "--template", "nosuch")
    assert result.code == Exit.NOT_FOUND
    assert "train-ddp" in result.err


def test_the_gallery_is_listed(phalanx: Phalanx) -> None:
    assert "sweep" in phalanx("submit", "--template", "list", "-o", "name").out.split()


def test_jobs_lists_what_is_not_over_and_with_all_what_is(phalanx: Phalanx) -> None:
    over = submit(phalanx, "--wait", "--", "true")
    alive = submit(phalanx, "--", "sleep", "600")
    listed = phalanx("jobs", "-o", "name").out.split()
    assert alive in listed
    assert over not in listed
    assert over in phalanx("jobs", "--all", "-o", "name").out.split()
    assert phalanx("jobs", "--state", "succeeded", "-o", "json").data[0]["state"] == "succeeded"
    phalanx("cancel", alive)


def test_a_job_is_shown_with_its_attempts_by_id_and_by_name(phalanx: Phalanx) -> None:
    job = submit(phalanx, "--name", "shown", "--", "sh", "-c", "exit 4")
    assert phalanx("wait", job).code == Exit.JOB_FAILED
    shown = phalanx("job", job, "-o", "json").data
    assert shown["exit_code"] == 4
    assert shown["tries"][0]["outcome"] == "failed"
    assert phalanx("job", "shown", "-o", "name").out.strip() == job


def test_an_unknown_job_is_not_found(phalanx: Phalanx) -> None:
    for verb in (("job",), ("logs",), ("cancel",), ("why",)):
        assert phalanx(*verb, "999999").code == Exit.NOT_FOUND
    assert phalanx("logs", "-f", "999999").code == Exit.NOT_FOUND
    assert phalanx("wait", "999999").code == Exit.JOB_GONE


def test_a_held_job_waits_until_it_is_released(phalanx: Phalanx) -> None:
    blocker = submit(phalanx, "--gpus", "4", "--tasks", "2", "--", "sleep", "600")
    job = submit(phalanx, "--gpus", "1", "--", "true")
    assert phalanx("hold", job, "-o", "json").data[0]["held"]
    phalanx("cancel", blocker)
    assert phalanx("wait", blocker).code == Exit.JOB_CANCELLED
    assert phalanx("why", job, "-o", "json").data["reason"] == "held"
    phalanx("release", job)
    assert phalanx("wait", job).code == 0


def test_what_cannot_be_cancelled_is_named_and_the_rest_is(phalanx: Phalanx) -> None:
    job = submit(phalanx, "--", "sleep", "600")
    result = phalanx("cancel", "999999", job)
    assert result.code == Exit.NOT_FOUND
    assert "999999" in result.err
    assert phalanx("wait", job).code == Exit.JOB_CANCELLED


def test_waiting_can_be_given_up(phalanx: Phalanx) -> None:
    job = submit(phalanx, "--", "sleep", "600")
    assert phalanx("wait", "--timeout", "0.2", job).code == Exit.JOB_NOT_FINISHED
    assert phalanx("wait", "--timeout", "200ms", job, job).code == Exit.JOB_NOT_FINISHED
    wrong = phalanx("wait", "--timeout", "soon", job)
    assert (wrong.code, "expected a duration such as 90s" in wrong.err) == (Exit.USAGE, True)
    phalanx("cancel", job)


def test_the_last_lines_of_a_log_are_shown(phalanx: Phalanx) -> None:
    script = "for i in 1 2 3 4; do echo $i; done; sleep 0.3; echo oops >&2"
    job = submit(phalanx, "--wait", "--", "sh", "-c", script)
    assert phalanx("logs", job, "--stream", "out", "--tail", "2").out == "3\n4\n"
    assert phalanx("logs", job, "--stream", "err").out == "oops\n"
    both = phalanx("logs", job, "--tail", "2")
    assert (both.out, both.err) == ("4\n", "oops\n")


def test_a_job_that_printed_nothing_says_what_became_of_it(phalanx: Phalanx) -> None:
    failed = phalanx("submit", "--wait", "-o", "name", "--gpus", "1", "--", "no-such-program").out.strip()
    shown = phalanx("logs", failed)
    assert (shown.code, shown.out) == (0, "")
    assert f"nothing was printed; job {failed} has failed: " in shown.err
    assert "no such program" in shown.err
    waiting = phalanx("submit", "-o", "name", "--gpus", "1", "--begin", "+1h", "--", "true").out.strip()
    assert "has not been started yet" in phalanx("logs", waiting).err
    phalanx("cancel", waiting)


def test_following_a_job_that_is_tried_again_shows_every_attempt(phalanx: Phalanx) -> None:
    script = "echo attempt $PHALANX_ATTEMPT; test $PHALANX_ATTEMPT = 2"
    result = phalanx("run", "--retries", "1", "--", "sh", "-c", script)
    assert result.code == 0
    assert "attempt 1\nattempt 2\n" in result.out


def test_a_plan_on_the_live_state_changes_nothing(phalanx: Phalanx, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: true\ngpus: 2\n")
    before = phalanx("jobs", "--all", "-o", "name", "--limit", "1").out
    planned = phalanx("plan", str(file), "-o", "json").data
    assert planned[0]["gpus"] == 2
    assert phalanx("jobs", "--all", "-o", "name", "--limit", "1").out == before


def test_a_job_that_will_never_fit_says_so(phalanx: Phalanx) -> None:
    job = submit(phalanx, "--gpus", "64", "--", "true")
    assert phalanx("why", job, "-o", "json").data["reason"] == "never_fits"
    phalanx("cancel", job)


def test_submit_says_at_once_that_a_job_can_never_start_and_takes_it_all_the_same(
    phalanx: Phalanx, tmp_path: Path
) -> None:
    result = phalanx("submit", "-o", "json", "--gpus", "64", "--", "true")
    job = result.data["id"]
    assert result.code == Exit.OK
    assert result.err.startswith(f"job {job} can never start: no part of this cluster could ever hold it")
    files = [tmp_path / "fits.yaml", tmp_path / "never.yaml"]
    files[0].write_text("gpus: 1\ncommand: 'true'\n")
    files[1].write_text("gpus: 64\ncommand: 'true'\n")
    assert phalanx("submit", str(files[0])).err == ""
    both = phalanx("submit", "-o", "json", *map(str, files))
    never = both.data[1]["id"]
    assert both.err.startswith(f"job {never} can never start: ")
    assert both.err.count("\n") == 1
    phalanx("cancel", never)
    phalanx("cancel", job)


def test_run_refuses_a_job_that_can_never_start_and_leaves_nothing_pending(phalanx: Phalanx) -> None:
    result = phalanx("run", "--gpus", "64", "--", "true")
    job = result.out.split()[-1]
    assert result.code == Exit.RUN_ERROR
    assert result.err.startswith(f"phalanx: job {job} can never start: no part of this cluster could ever hold it")
    assert "`phalanx submit` keeps such a job until the cluster has grown" in result.err
    assert phalanx("job", job, "-o", "json").data["state"] == "cancelled"


def test_a_job_runs_on_while_the_server_is_killed_and_started_again(
    phalanx: Phalanx, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = submit(phalanx, "--gpus", "1", "--", "sh", "-c", "echo $$; while [ ! -e done ]; do sleep 0.05; done")
    until(lambda: phalanx("logs", job).out)
    pid = int(phalanx("logs", job).out)
    server.kill()
    assert phalanx("jobs").code == Exit.UNREACHABLE
    assert os.path.exists(f"/proc/{pid}")
    server.start()
    assert phalanx("job", job, "-o", "json").data["state"] == "running"
    assert int(phalanx("logs", job).out) == pid
    (tmp_path / "done").touch()
    assert phalanx("wait", job).code == 0
    assert phalanx("job", job, "-o", "json").data["attempts"] == 1


def test_a_command_runs_beside_a_task_with_its_input_and_exit_code(
    phalanx: Phalanx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(phalanx, "--gpus", "1", "--", "sleep", "600")
    until(lambda: phalanx("job", job, "-o", "json").data["state"] == "running")
    typed = tmp_path / "typed"
    typed.write_text("word\n")
    with typed.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        result = phalanx("exec", job, "--", "sh", "-c", "read typed; echo $PHALANX_JOB_ID $typed; exit 6")
    assert result.out == f"{job} word\n"
    assert result.code == 6
    with typed.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert phalanx("exec", job, "--", "/no/such/program").code != 0
    phalanx("cancel", job)


def test_no_command_runs_beside_a_job_that_is_over(phalanx: Phalanx) -> None:
    job = submit(phalanx, "--wait", "--", "true")
    assert phalanx("exec", job, "--", "true").code == Exit.REFUSED
    assert phalanx("exec", "999999", "--", "true").code == Exit.NOT_FOUND


def test_following_a_job_goes_on_where_it_was_after_the_server_was_killed(
    phalanx: Phalanx, server: Server, tmp_path: Path
) -> None:
    script = f"echo one; while [ ! -e {tmp_path}/killed ]; do sleep 0.05; done; echo two"
    job = submit(phalanx, "--", "sh", "-c", script)
    until(lambda: phalanx("logs", job).out)

    def kill_and_start() -> None:
        time.sleep(0.5)
        server.kill()
        (tmp_path / "killed").touch()
        server.start()

    killer = threading.Thread(target=kill_and_start)
    killer.start()
    try:
        assert phalanx("logs", "-f", job).out == "one\ntwo\n"
    finally:
        killer.join()


def test_waiting_for_a_job_of_a_server_that_is_not_there_does_not_wait(
    phalanx: Phalanx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_ADDR", "http://127.0.0.1:1")
    assert phalanx("wait", "1").code == Exit.UNREACHABLE
    assert phalanx("logs", "-f", "1").code == Exit.UNREACHABLE


def test_an_elastic_job_that_runs_is_resized_and_its_tasks_come_and_go(
    phalanx: Phalanx, server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("gang:\n- {replicas: {min: 1, max: 3}, gpus: 1}\ncommand: [sleep, '600']\ngrace: 1s\n")
    job = submit(phalanx, str(file))
    until(lambda: phalanx("job", job, "-o", "json").data["gpus"] == 3)
    shrunk = phalanx("resize", job, "1")
    assert shrunk.code == 0, shrunk.err
    until(lambda: phalanx("job", job, "-o", "json").data["gpus"] == 1)
    assert phalanx("resize", job, "2").code == 0
    until(lambda: phalanx("job", job, "-o", "json").data["gpus"] == 2)
    refused = phalanx("resize", job, "2", "--role", "server")
    assert (refused.code, "it has: worker" in refused.err) == (Exit.REFUSED, True)
    phalanx("cancel", job)


def test_two_futures_of_the_live_state_are_shown_and_nothing_is_changed(phalanx: Phalanx, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: big\ngpus: 4\nduration: 1h\ncommand: 'true'\n")
    before = phalanx("jobs", "--all", "-o", "json").data
    told = phalanx("what-if", "--job", str(file), "--add-nodes", "2:n0", "-o", "json")
    assert told.code == 0, told.err
    assert told.data["what_if"]["jobs"] == told.data["as_it_is"]["jobs"] + 1
    assert told.data["what_if"]["submitted"][0]["name"] == "big"
    table = phalanx("what-if", "--job", str(file))
    assert "as it is" in table.out
    assert "big starts at" in table.out
    assert [job["id"] for job in phalanx("jobs", "--all", "-o", "json").data] == [job["id"] for job in before]
    assert phalanx("what-if", "--add-nodes", "2:nowhere").code == Exit.NOT_FOUND


def test_at_submission_it_is_said_whether_a_deadline_can_be_met(phalanx: Phalanx, tmp_path: Path) -> None:
    for duration, said in (("1m", "can meet its deadline"), ("2h", "cannot meet its deadline")):
        path = tmp_path / "urgent.yaml"
        path.write_text(f"command: ['true']\ngpus: 1\nduration: {duration}\ndeadline: +1h\nbegin: +30m\n")
        told = phalanx("submit", str(path))
        assert told.code == 0, told.err
        assert said in told.err
        job = told.out.split()[-1]
        assert said in phalanx("why", job, "-o", "json").data["deadline"]
        phalanx("cancel", job)


def test_a_pending_job_is_updated_and_one_that_runs_or_is_not_there_is_refused(phalanx: Phalanx) -> None:
    held = phalanx("submit", "-o", "json", "--begin", "+1h", "--", "true").data["id"]
    updated = phalanx("update", held, "--priority", "5", "--max-run", "2h", "-o", "json")
    assert (updated.code, updated.data[0]["priority"]) == (0, 5), updated.err
    assert phalanx("update", held, "--max-run", "2 weeks").err == (
        "phalanx: max_run: expected a time such as 90s, 4h or 2d, or none, got '2 weeks'\n"
    )
    assert phalanx("update", held).code == Exit.USAGE
    assert phalanx("update", "no-such-job", "--priority", "1").code == Exit.NOT_FOUND
    started = phalanx("update", held, "--begin", "none")
    assert started.code == 0, started.err
    assert phalanx("wait", held).code == 0
    over = phalanx("update", held, "--priority", "1")
    assert (over.code, over.err) == (
        Exit.REFUSED,
        f"phalanx: job {held} has succeeded: only a pending job can be updated\n",
    )


def test_a_job_that_is_suspended_gives_up_its_gpus_until_it_is_resumed_and_requeue_starts_it_again(
    phalanx: Phalanx,
) -> None:
    job = phalanx("submit", "-o", "json", "--gpus", "1", "--", "sleep", "60").data["id"]

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = phalanx("job", job, "-o", "json").data
        return found

    until(lambda: shown()["state"] == "running")
    [suspended] = phalanx("suspend", "--wait", job, "-o", "json").data
    assert (suspended["state"], suspended["next"]) == ("waiting", f"it starts after `phalanx resume {job}`")
    assert (shown()["state"], shown()["reason"]) == ("waiting", "held")
    assert (
        phalanx("requeue", job).err
        == f"phalanx: job {job} is pending: only a job that has started and is not over can be requeued\n"
    )
    assert phalanx("resume", job).code == 0
    until(lambda: (shown()["state"], shown()["attempts"]) == ("running", 2))
    [requeued] = phalanx("requeue", "--wait", job, "-o", "json").data
    assert requeued["next"] in ("it starts again in its turn", "it runs again, as attempt 3")
    until(lambda: (shown()["state"], shown()["attempts"]) == ("running", 3))
    assert [each["reason"] for each in shown()["tries"]] == ["suspended", "requeued", ""]
    phalanx("cancel", job)
    until(lambda: shown()["state"] == "cancelled")
    for verb in ("requeue", "suspend", "resume"):
        assert phalanx(verb, job).code == Exit.REFUSED
        assert phalanx(verb, "99999").code == Exit.NOT_FOUND


def test_jobs_of_a_drained_node_are_evicted_and_start_elsewhere(phalanx: Phalanx) -> None:
    job = phalanx("submit", "-o", "json", "--gpus", "4", "--", "sleep", "60").data["id"]
    until(lambda: phalanx("job", job, "-o", "json").data["state"] == "running")
    [node] = phalanx("job", job, "-o", "json").data["nodes"]
    assert phalanx("drain", node, "--by", "+1m").code == Exit.USAGE
    assert phalanx("drain", node, "--evict", "--by", "soon").code == Exit.USAGE
    drained = phalanx("drain", node, "--evict", "--by", "+1s")
    assert (drained.code, f"job {job}: requeued" in drained.err) == (0, True), drained.err
    until(lambda: phalanx("job", job, "-o", "json").data["nodes"] not in ([], [node]))
    assert "no job runs there" in phalanx("drain", node, "--evict").err
    phalanx("undrain", node)
    phalanx("cancel", job)


def test_when_history_and_usage_tell_of_a_job_that_waits_runs_and_is_over(phalanx: Phalanx) -> None:
    name = "日本語" * 20
    job = phalanx("submit", "-o", "json", "--gpus", "1", "--name", name, "--duration", "1h", "--", "sleep", "60").data[
        "id"
    ]
    until(lambda: phalanx("job", job, "-o", "json").data["state"] == "running")
    assert "by its own estimate" in phalanx("when", job).out
    later = phalanx("submit", "-o", "json", "--begin", "+1h", "--", "true").data["id"]
    assert phalanx("when", later).out.count("STARTS") == 1
    for each in (job, later):
        phalanx("cancel", each)
        until(lambda each=each: phalanx("job", each, "-o", "json").data["state"] == "cancelled")  # type: ignore[misc]
    assert "ago" in phalanx("when", job).out
    listed = {each["id"]: each for each in phalanx("history", "-o", "json").data}
    assert (listed[job]["state"], listed[job]["nodes"] != []) == ("cancelled", True)
    assert name in phalanx("history").out
    by_job = {each["key"]: each for each in phalanx("usage", "--by", "job", "-o", "json").data}
    assert by_job[job]["gpu_ms"] > 0
    assert "admin" in phalanx("usage", "--since", "1h").out
    assert phalanx("usage", "--user", "nobody").err == "No job held a GPU in that time.\n"
    assert phalanx("history", "--name", "no-such-name").err.startswith("No job has ended since ")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (
            ["usage", "--since", "a while"],
            Exit.USAGE,
            "--since a while: expected how long ago, with its unit, such as 5m",
        ),
        (["usage", "--since", "+1h"], Exit.USAGE, "--since +1h: expected how long ago"),
        (["usage", "--since", "1h", "--until", "2h"], Exit.USAGE, "--since 1h: expected a time before 2h"),
        (["history", "--since", "tomorrow"], Exit.USAGE, "--since tomorrow: expected how long ago"),
        (["when", "99999"], Exit.NOT_FOUND, "there is no job '99999'"),
    ],
)
def test_times_and_jobs_that_are_none_are_refused_in_one_line(
    phalanx: Phalanx, arguments: list[str], code: Exit, told: str
) -> None:
    result = phalanx(*arguments)
    assert (result.code, told in result.err, result.out) == (code, True, ""), result.err


def test_a_job_that_waits_is_pending_in_tables_waiting_for_programs_and_found_by_both_words(phalanx: Phalanx) -> None:
    job = phalanx("submit", "-o", "json", "--begin", "+1h", "--", "true").data["id"]
    for word in ("pending", "waiting"):
        assert [each["state"] for each in phalanx("jobs", "--state", word, "-o", "json").data] == ["waiting"]
        assert " pending " in phalanx("jobs", "--state", word).out
    assert "pending" in phalanx("job", job).out
    assert "pending" in phalanx("why", job).out
    phalanx("cancel", job)
    assert phalanx("jobs", "--name", "no-such").err == "No active jobs match. Use --all to include finished ones.\n"
