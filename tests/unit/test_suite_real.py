"""Real traces in a suite: drawn by the seed, on a cluster small enough for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.cli.main import cli, run
from phalanx.simulate.studies import suite as suites
from phalanx.simulate.studies.real import POD_MAX_MS, Sampled, fewer, openb, philly
from phalanx.simulate.studies.study import Case
from phalanx.simulate.studies.suite import Folder, SuiteError, standard
from phalanx.simulate.traces.load import offered_load
from phalanx.simulate.traces.open import read_trace_cluster


@pytest.fixture
def philly_log(tmp_path: Path) -> str:
    """Sixty jobs of 1 to 4 GPUs, and one of more than the cluster has."""
    rows = [f"2017-10-09 07:{i:02}:00,{60 * (1 + i % 7)},{1 + i % 4},60,vc{i % 3}" for i in range(60)]
    rows.append("2017-10-09 08:00:00,60,64,60,vc0")
    path = tmp_path / "philly.csv"
    path.write_text("\n".join(("timestamp,duration,num_gpus,gpu_time,cluster", *rows, "")))
    return str(path)


@pytest.fixture
def openb_lists(tmp_path: Path) -> tuple[str, str]:
    """Forty pods, one of which ran for a year, and three hundred nodes of three models."""
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes.csv"
    asks = [(500 if i % 2 else 1000, "T4" if i % 5 else "") for i in range(39)]
    lines = [f"p{i},1000,1024,1,{part},{model},LS,Succeeded,{i},{i + 900},{i}" for i, (part, model) in enumerate(asks)]
    lines.append("p39,1000,1024,1,1000,,LS,Running,40,31536040,40")
    head = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    pods.write_text("\n".join((head, *lines, "")))
    kinds = [("G2", 8, 200), ("T4", 2, 99), ("T4", 4, 1), ("A10", 1, 1)]
    rows = [f"{model}-{gpus}-{i},64000,262144,{gpus},{model}" for model, gpus, count in kinds for i in range(count)]
    nodes.write_text("\n".join(("sn,cpu_milli,memory_mib,gpu,model", *rows, "cpu,64000,262144,0,", "")))
    return str(pods), str(nodes)


def test_jobs_of_a_real_trace_are_drawn_by_the_seed_and_brought_to_the_load(philly_log: str) -> None:
    workload = philly(philly_log, 20)
    gpus = workload.cluster.gpus
    first, again, other = (workload.source.at(gpus, 0.9, seed, 0) for seed in (1, 1, 2))
    assert first == again
    assert {job.id for job in first.jobs} != {job.id for job in other.jobs}
    assert len(first.jobs) == 20 == workload.source.jobs
    assert offered_load(first, gpus) == pytest.approx(0.9, rel=1e-3)
    assert first.jobs[0].submit_ms == 0


def test_jobs_that_the_cluster_could_never_hold_are_left_out_and_noted(philly_log: str) -> None:
    source = philly(philly_log, 60).source
    assert isinstance(source, Sampled)
    assert max(job.gpus for job in source.trace.jobs) == 4
    assert source.trace.notes == ("jobs that 32-gpus could never hold, left out: 1",)


def test_too_few_jobs_to_draw_from_are_refused(philly_log: str) -> None:
    with pytest.raises(SuiteError, match="at least 61 jobs to draw from, and 60 of its 61 jobs could ever run"):
        philly(philly_log, 61)


def test_a_small_cluster_has_every_model_by_its_share_of_gpus(openb_lists: tuple[str, str]) -> None:
    cluster = fewer(read_trace_cluster(openb_lists[1]), 48)
    kinds = [(node.gpu_type, node.gpus) for node in cluster.nodes]
    assert kinds == [("G2", 8)] * 5 + [("T4", 2)] * 3 + [("A10", 1)]


def test_pods_keep_their_parts_and_models_and_none_is_longer_than_a_week(openb_lists: tuple[str, str]) -> None:
    jobs = openb(*openb_lists, 40).source.at(47, 0.9, 0, 0).jobs
    assert max(job.duration_ms for job in jobs) == POD_MAX_MS
    assert {job.gpu_milli for job in jobs} == {0, 500}
    assert {job.gpu_type for job in jobs} == {"", "T4"}


def test_results_of_another_file_are_not_taken_for_those_of_this(philly_log: str, tmp_path: Path) -> None:
    folder, case = Folder(tmp_path / "kept", "1"), Case("fifo", "fifo", 0, 0.9)
    workload = philly(philly_log, 20)
    folder.keep(workload, case, {"a": 1})
    assert folder.find(philly(philly_log, 20), case) is not None
    Path(philly_log).write_text(Path(philly_log).read_text().replace("07:03:00,240", "07:03:00,241"))
    assert folder.find(philly(philly_log, 20), case) is None
    (made,) = (each for each in standard(20).workloads if each.name == "philly")
    assert folder.find(made, case) is None


def test_the_verb_runs_a_suite_on_real_files_and_says_so(
    philly_log: str,
    openb_lists: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suites, "LOADS", (0.9,))
    page = tmp_path / "page.md"
    with Path(philly_log).open("a") as file:
        file.write("2017-10-09 09:00:00,60,many,60,vc0\n")
    real = ["--philly", philly_log, "--openb-pods", openb_lists[0], "--openb-nodes", openb_lists[1]]
    words = ["--jobs", "10", "--seeds", "1", "--policy", "fifo", "--keep", str(tmp_path / "kept"), "--workers", "1"]
    suite = ["compare", "--suite", "standard", *real, *words, "--markdown", str(page), "-o", "json"]
    assert run(cli, suite) == 1
    assert "column 'num_gpus'" in capsys.readouterr().err
    assert run(cli, [*suite, "--skip-bad-rows"]) == 0
    out, err = capsys.readouterr()
    assert {row["workload"] for row in json.loads(out)[0]["cells"]} >= {"philly", "openb", "mixed"}
    assert "note: philly: jobs that 32-gpus could never hold, left out: 1" in err
    assert "note: 1 bad row of philly was dropped" in err
    text = page.read_text()
    assert f"--seeds 1 --jobs 10 --philly {philly_log} --openb-pods" in text
    assert "10 jobs of the real trace pods, drawn by the seed; 47 GPUs" in text
