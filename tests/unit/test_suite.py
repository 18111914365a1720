"""Suites: policies on several workloads, kept run by run, and ranked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from phalanx.cli.main import cli, run
from phalanx.policy.registry import BUILTIN, split
from phalanx.simulate import suite as suites
from phalanx.simulate.ranking import FIGURES, ranked
from phalanx.simulate.report.markdown import KEPT, write_suite_markdown
from phalanx.simulate.report.suite import write_suite_report
from phalanx.simulate.study import Case
from phalanx.simulate.suite import NEEDS, Cell, Folder, Suite, run_suite, standard, workloads
from phalanx.simulate.traces.load import at_load


def small(*policies: str) -> Suite:
    return replace(standard(jobs=12, seeds=2, policies=policies or ("fifo", "srtf")), loads=(0.9,))


def test_the_standard_suite_has_every_policy() -> None:
    assert [split(written)[0] for written in standard().policies] == list(BUILTIN)
    assert all(split(written)[0] in BUILTIN for written in NEEDS.values())


def test_every_workload_is_at_its_load_and_the_same_for_the_same_seed() -> None:
    for workload in workloads(40):
        gpus = workload.cluster.gpus
        first, again, other = (workload.source.at(gpus, 0.9, seed, 0) for seed in (1, 1, 2))
        assert first == again != other
        assert at_load(first, gpus, 0.9).jobs[-1].submit_ms == first.jobs[-1].submit_ms


def test_openb_like_jobs_fit_their_cluster_and_some_share_gpus() -> None:
    (openb,) = (each for each in workloads(300) if each.name == "openb")
    jobs = openb.source.at(openb.cluster.gpus, 0.9, 0, 0).jobs
    assert any(job.gpu_milli for job in jobs)
    assert any("|" in job.gpu_type for job in jobs)
    types = {node.gpu_type for node in openb.cluster.nodes}
    assert all(name in types for job in jobs for name in job.gpu_type.split("|") if name)


def test_elastic_jobs_may_have_more_and_fewer_gpus_and_some_tune_their_batch() -> None:
    (elastic,) = (each for each in workloads(100) if each.name == "elastic")
    jobs = elastic.source.at(elastic.cluster.gpus, 0.9, 0, 0).jobs
    assert all(job.min_gpus <= job.gpus <= job.max_gpus <= elastic.cluster.gpus for job in jobs)
    assert all(job.min_gpus < job.max_gpus for job in jobs)
    assert {job.batch for job in jobs} == {"", "adaptive"}
    assert max(job.duration_ms for job in jobs) <= suites.ELASTIC_MAX_MS


def test_runs_that_are_kept_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path / "kept", "1")
    cells = list(run_suite(small(), folder, workers=1))
    assert len(cells) == small().size == len(small().workloads) * 2 * 2
    monkeypatch.setattr(suites, "run_cases", lambda *_: pytest.fail("it is there"))
    again = list(run_suite(small(), folder, workers=1))
    by = lambda cell: (cell.workload, cell.policy, cell.seed)  # noqa: E731
    assert sorted(again, key=by) == sorted(cells, key=by)


def test_a_torn_file_and_one_of_another_version_are_run_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "1")
    list(run_suite(small("fifo"), folder, workers=1))
    files = sorted(tmp_path.glob("*.json"))
    files[0].write_text(files[0].read_text()[:20])
    assert len(list(run_suite(small("fifo"), folder, workers=1))) == len(files)
    assert json.loads(files[0].read_text())["summary"]["policy"] == "fifo"
    (workload, *_) = small().workloads
    other = Folder(tmp_path, "2")
    case = Case("fifo", "fifo", 0, 0.9)
    assert folder.find(workload, case) is not None
    assert other.find(workload, case) is None


def cell(policy: str, jct: float, allocated: float, seed: int = 0) -> Cell:
    summary: Mapping[str, Any] = {
        "policy": policy,
        "jct_s": {"mean": jct, "p99": 2 * jct},
        "gpu_allocated": allocated,
        "fairness": {"jain": 0.5},
    }
    return Cell("w", policy, 0.9, seed, summary)


def test_a_ranking_says_how_many_times_the_best_each_policy_is() -> None:
    cells = [cell("a", 10, 0.5), cell("a", 14, 0.5, 1), cell("b", 24, 1.0), cell("b", 24, 1.0, 1)]
    ranking = ranked(cells)
    (first, second) = ranking.standings
    assert (first.policy, second.policy) == ("a", "b")
    assert first.ratios == pytest.approx({"mean_jct": 1, "p99_jct": 1, "allocated": 2, "jain": 1})
    assert second.ratios == pytest.approx({"mean_jct": 2, "p99_jct": 2, "allocated": 1, "jain": 1})
    assert (first.near, second.near, ranking.compared) == (3, 2, len(FIGURES))
    assert first.rank == pytest.approx((1 + 1 + 2 + 1.5) / 4)
    found = ranking.means["mean_jct"]["w", 0.9]["a"]
    assert (found.mean, found.count) == (12, 2)
    assert found.low is not None
    assert found.low < 10


def test_the_report_ranks_draws_and_says_how_to_repeat_it(tmp_path: Path) -> None:
    cells = list(run_suite(small(), Folder(tmp_path / "kept", "1"), workers=1))
    path = tmp_path / "suite.html"
    write_suite_report(small(), cells, ranked(cells), str(path), "phalanx compare --suite standard")
    page = path.read_text()
    for told in ("phalanx compare --suite standard", "heavy-tail", "srtf", "chart-suite-ratios", "95 % confidence"):
        assert told in page


@pytest.fixture
def two_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.cli.compare_suite.standard", lambda jobs, seeds, policies: small(*policies))


@pytest.mark.usefixtures("two_loads")
def test_the_verb_prints_a_ranking(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep = ["--keep", str(tmp_path / "kept"), "--policy", "fifo", "--policy", "srtf", "--workers", "1"]
    assert run(cli, ["compare", "--suite", "standard", *keep, "-o", "json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert sorted(row["policy"] for row in told["ranking"]) == ["fifo", "srtf"]
    assert {row["figure"] for row in told["cells"]} == {"jct_s.mean", "jct_s.p99", "gpu_allocated", "fairness.jain"}
    assert run(cli, ["compare", "--suite", "standard", *keep]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[:2] == ["POLICY", "RANK"]


@pytest.mark.parametrize("wrong", [["--cluster", "c.yaml"], ["--load", "0.5"]])
def test_what_a_suite_has_of_its_own_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["compare", "--suite", "standard", *wrong]) == 2
    assert f"{wrong[0]} is not for --suite" in capsys.readouterr().err


def test_what_is_for_suites_is_refused_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["compare", "--policy", "fifo", "--keep", "x"]) == 2
    assert "--keep is for --suite" in capsys.readouterr().err


def two_workloads() -> list[Cell]:
    """`srtf` knows the future and is best; of the others `las` is, but on one workload `fifo` has more GPUs in use."""
    figures = {"srtf": (10.0, 0.5), "las": (11.0, 0.5), "phalanx": (12.0, 0.5), "fifo": (24.0, 1.0)}
    cells = []
    for workload, times in (("mixed", 1.0), ("philly", 2.0)):
        for policy, (jct, allocated) in figures.items():
            found = cell(policy, times * jct, allocated if workload == "mixed" else 0.5)
            cells.append(replace(found, workload=workload, summary={**found.summary, "run": {"wall_s": 30.0}}))
    return cells


PAGE = Path(__file__).parents[1] / "data" / "suite-page.md"


def test_the_page_tells_how_far_the_default_is_from_the_best_and_of_whom(tmp_path: Path) -> None:
    suite = standard(policies=("srtf", "las", "phalanx", "fifo"), seeds=1)
    suite = replace(suite, workloads=tuple(each for each in suite.workloads if each.name in ("mixed", "philly")))
    ranking = ranked(two_workloads(), suite.foreseeing)
    path = tmp_path / "suite.md"
    path.write_text(f"old\n{KEPT}\n\nWhy that is so.\n")
    write_suite_markdown(suite, two_workloads(), ranking, str(path), "phalanx compare --suite standard")
    written, _, kept = path.read_text().partition(KEPT)
    assert written == PAGE.read_text() + "\n"
    assert kept == "\n\nWhy that is so.\n"


def test_who_foresees_is_what_policies_say_of_themselves() -> None:
    suite = standard(policies=("srtf", "gavel", "phalanx", "multifactor", "multifactor:backfill=easy", "optimus"))
    assert suite.foreseeing == ("srtf", "gavel", "multifactor:backfill=easy")


@pytest.mark.usefixtures("two_loads")
def test_the_verb_tells_how_far_every_policy_is_from_the_best_and_writes_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = ["--keep", str(tmp_path / "kept"), "--policy", "fifo", "--policy", "srtf", "--workers", "1"]
    page = tmp_path / "suite.md"
    assert run(cli, ["compare", "--suite", "standard", *keep, "-o", "json", "--markdown", str(page)]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert {row["policy"]: row["foresight"] for row in told["ranking"]} == {"fifo": False, "srtf": True}
    distances = told["distances"]
    assert len(distances) == 2 * len(small().workloads) * len(FIGURES)
    assert all(row["best_equal"] == "fifo" for row in distances)
    assert all(row["times_best"] == 1 for row in distances if row["policy"] == row["best"])
    first = told["ranking"][0]["policy"]
    assert f"## `{first}` beside the best" in page.read_text()
    assert run(cli, ["compare", "--suite", "standard", *keep]) == 0
    assert f"{first} beside the best of all" in capsys.readouterr().out
