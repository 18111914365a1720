"""`phalanx why` on what was saved: journals and runs, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from click.testing import CliRunner

from builders import World, a_job, sockets
from phalanx.cli.exit import Exit
from phalanx.cli.files import save_journal
from phalanx.cli.main import cli, run
from phalanx.cli.saved import state_from
from phalanx.cluster.cluster import flat
from phalanx.engine.fold.snapshot import dump
from phalanx.simulate.forecasts.apart import WorkFailedError
from phalanx.simulate.forecasts.experience import ENOUGH, Experience, Miss, encoded


@pytest.fixture
def journal(tmp_path: Path) -> str:
    """a has the only node until 100 s, b waits for all of it, c for half."""
    world = World(flat(1, 8), "fifo:skip=true")
    world.run(a_job("a", 8, duration_ms=100_000))
    world.submit(a_job("b", 8, duration_ms=50_000), a_job("c", 4, duration_ms=50_000), after_ms=10_000)
    path = tmp_path / "state.jsonl"
    save_journal(world.journal, str(path))
    return str(path)


def told(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["why", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def data(*arguments: str) -> Any:
    return json.loads(told(*arguments, "-o", "json"))


def test_a_person_reads_the_reason_first_and_what_would_help_next(journal: str) -> None:
    lines = told("b", "--state", journal, "--no-forecast").splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "JOB",
        "STATE",
        "REASON",
        "WHY",
        "SOONER",
        "HELD BY",
        "NEXT TO END",
        "POSITION",
    ]
    assert lines[4].endswith("it would start now if job a of queue default (8 GPUs) ended")
    assert lines[6].endswith("8 GPUs of default in 1m 30s")


def test_where_no_forecast_can_be_made_the_answer_says_so_and_tells_the_rest(
    journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise WorkFailedError("a forked run failed: ValueError: no")

    monkeypatch.setattr("phalanx.simulate.forecasts.forecast.forecast", fails)
    text = told("b", "--state", journal)
    assert "it needs 8 GPUs" in text
    assert "EXPECTED START  unknown: there is no forecast (a forked run failed: ValueError: no)" in text
    answer = data("b", "--state", journal)
    assert (answer["forecast"], answer["no_forecast"]) == (None, "a forked run failed: ValueError: no")


def test_of_a_job_that_never_fits_no_start_is_foreseen_but_the_rule_is_told(tmp_path: Path) -> None:
    world = World(sockets(1))
    world.submit(a_job("j", 5, 1, "socket"))
    path = str(tmp_path / "state.jsonl")
    save_journal(world.journal, path)
    assert "EXPECTED" not in told("j", "--state", path, "--forecast")
    answer = data("j", "--state", path, "--forecast")
    assert "forecast" not in answer
    assert {key: answer["misfit"][key] for key in ("level", "gpus", "gpus_most")} == {
        "level": "socket",
        "gpus": 5,
        "gpus_most": 4,
    }


def test_a_program_gets_the_whole_object(journal: str) -> None:
    answer = data("b", "--state", journal, "--no-forecast")
    assert answer["reason"] == "gpus"
    assert answer["refusal"]["ruled_out"] == [["free_gpus", 1]]
    assert answer["ruled_out"] == {"free_gpus": 1}
    assert answer["held"] == [{"queue": "default", "gpus": 8, "jobs": 1}]
    assert answer["holders"][0]["expected_end_ms"] == 100_000
    (change,) = answer["changes"]
    assert (change["kind"], change["ends"][0]["job"]) == ("end", "a")
    assert change["text"] in answer["sooner"]
    assert "forecast" not in answer


def test_the_expected_start_is_told_where_few_wait(journal: str) -> None:
    # a says 100 s, of which jobs take a fifth at least, and a start takes 10 s by the usual costs.
    forecast = data("b", "--state", journal)["forecast"]
    assert (forecast["early_ms"], forecast["middle_ms"]) == (20_000, 110_000)
    line = "EXPECTED START  not before in 10s, in half of 19 runs by 1m 40s; how late is unknown (under fifo:skip"
    assert line in told("b", "--state", journal)


def test_an_end_is_told_by_what_the_server_learned_of_which_a_bundle_is(journal: str, tmp_path: Path) -> None:
    def expected(*misses: Miss) -> dict[str, Any]:
        with ZipFile(tmp_path / "bundle.zip", "w") as bundle:
            bundle.writestr("journal.jsonl", b"")
            bundle.writestr("snapshot.bin", dump(state_from(journal)))
            bundle.writestr("forecasts.json", encoded(Experience(misses={"fifo:skip=true": list(misses)})))
        found: dict[str, Any] = data("b", "--state", str(tmp_path / "bundle.zip"))["forecast"]
        return found

    assert expected()["open"]
    learned = expected(*[Miss(-1.0, 1.0)] * ENOUGH)
    assert not learned["open"]
    assert learned["late_ms"] > 2 * 110_000, "its like came later than was drawn"


def saved_plan(folder: Path, cluster: str, *jobs: str) -> str:
    """What `plan --save` leaves of jobs as people write them; their ids are 1, 2, …"""
    files = []
    for number, text in enumerate((cluster, *jobs)):
        files.append(folder / f"{number}.yaml")
        files[-1].write_text(text)
    state = str(folder / "plan.jsonl")
    cluster_file, *job_files = map(str, files)
    assert run(cli, ["plan", "--cluster", cluster_file, *job_files, "--save", state]) == 0
    return state


def test_less_memory_is_offered_to_a_job_as_people_write_it(tmp_path: Path) -> None:
    cluster = "nodes: [{count: 1, gpus: 8, cpus: 64, memory_gb: 512}]\n"
    state = saved_plan(tmp_path, cluster, "{cpus: 8, memory_gb: 400}", "{cpus: 8, memory_gb: 200, gpus: 1}")
    answer = data("2", "--state", state, "--no-forecast")
    assert answer["reason"] == "amount"
    assert answer["sooner"] == "it would start now with 112 GB of memory a task instead of 200"


def test_fewer_cpus_are_offered_to_a_job_as_people_write_it(tmp_path: Path) -> None:
    cluster = "nodes: [{count: 1, gpus: 8, cpus: 64, memory_gb: 512}]\n"
    state = saved_plan(tmp_path, cluster, "{cpus: 60, gpus: 1}", "{cpus: 8, gpus: 1}")
    answer = data("2", "--state", state, "--no-forecast")
    assert answer["sooner"] == "it would start now with 4 CPUs a task instead of 8"


def test_a_quota_is_an_object_and_every_key_of_an_answer_is_on_its_page(tmp_path: Path) -> None:
    cluster = "nodes: [{count: 2, gpus: 8}]\nqueues: [{name: a, limit: 8}, {name: b}]\n"
    state = saved_plan(tmp_path, cluster, "{gpus: 6, queue: a, duration: 1h}", "{gpus: 4, queue: a}")
    answer = data("2", "--state", state)
    assert answer["reason"] == "quota"
    quota = answer["quota"]
    assert {key: quota[key] for key in ("at", "asked", "left", "limit", "used", "most", "by_limit")} == {
        "at": "a",
        "asked": 4_000,
        "left": 2_000,
        "limit": 8_000,
        "used": 6_000,
        "most": None,
        "by_limit": True,
    }
    assert quota["held"] == [{"queue": "a", "gpus": 6, "jobs": 1}]
    assert quota["holders"][0]["job"] == "1"
    page = (Path(__file__).parents[2] / "docs" / "reference" / "why.md").read_text("utf-8")
    assert not [key for key in (*answer, *quota) if f"`{key}`" not in page and key != "expected_start"]


def test_a_deadline_that_its_begin_time_makes_impossible_is_told_in_every_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("nodes: [{gpus: 8}]\npolicy: edf\n")
    (tmp_path / "j.yaml").write_text("{gpus: 4, duration: 10m, deadline: +30m, begin: +25m}\n")
    call = ["plan", "--cluster", str(tmp_path / "c.yaml"), str(tmp_path / "j.yaml"), "--at", "0", "-o"]
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        assert run(cli, [*call, output]) == 0
        (row,) = read(capsys.readouterr().out)
        told = {key: row["deadline"][key] for key in ("can_be_met", "earliest_ms", "obstacle", "ends_ms")}
        assert told == {"can_be_met": False, "earliest_ms": 1_500_000, "obstacle": "begin_time", "ends_ms": None}


def test_the_reason_is_that_of_now_and_not_of_when_the_job_was_looked_at(tmp_path: Path) -> None:
    cluster = "nodes: [{count: 2, gpus: 8}]\npolicy: fifo:skip=true\n"
    state = saved_plan(tmp_path, cluster, "gpus: 5", "gpus: 5", "gpus: 6", "gpus: 3", "gpus: 3")
    answer = data("3", "--state", state, "--no-forecast")
    assert answer["reason"] == "gpus"
    assert answer["why"] == "it needs 6 GPUs and 0 are free (of 2 nodes: 2 without enough free GPUs)"


def test_a_job_that_runs_has_nothing_to_be_forecast(journal: str) -> None:
    assert "forecast" not in data("a", "--state", journal, "--forecast")


def test_a_saved_run_can_be_asked(tmp_path: Path) -> None:
    saved = str(tmp_path / "run.sim")
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("version: 1\nnodes: [{count: 1, gpus: 8}]\n")
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n1,8,0,9,x,900,1\n2,8,1,9,x,9,1\n"
    )
    assert (
        run(cli, ["simulate", "--cluster", str(cluster), "--trace", str(trace), "--until", "60s", "--save", saved]) == 0
    )
    assert data("2", "--state", saved)["reason"] == "gpus"


def test_a_job_that_is_not_there_is_not_found(journal: str) -> None:
    assert run(cli, ["why", "z", "--state", journal]) == Exit.NOT_FOUND
