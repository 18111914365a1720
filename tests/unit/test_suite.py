"""Suites: policies on several workloads, kept run by run, and ranked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from phalanx.advice.solver import NotSolvedError
from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run
from phalanx.errors import PhalanxError
from phalanx.policy.registry import BUILTIN, split
from phalanx.simulate.code import code_of
from phalanx.simulate.report.markdown import KEPT, write_suite_markdown
from phalanx.simulate.report.suite import write_suite_report
from phalanx.simulate.studies import suite as suites
from phalanx.simulate.studies.batch import FailedRunsError, Results, run_cases
from phalanx.simulate.studies.ranking import FIGURES, ranked
from phalanx.simulate.studies.study import Case, Study
from phalanx.simulate.studies.suite import (
    NEEDS,
    Cell,
    FailedSuiteError,
    Failure,
    Folder,
    Suite,
    run_suite,
    standard,
    workloads,
)
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


class BreaksError(Exception):
    """What no policy raises as such."""


def failing(study: Study, cases: Sequence[Case], workers: int | None = None) -> Results:
    """As `run_cases`, where every run of `srtf` on `mixed` goes wrong, and all runs that meet `las` on `philly` end."""
    wrong = {}
    for number, case in enumerate(cases):
        if case.policy == "srtf" and study.cluster.name == "mixed":
            wrong[number] = PhalanxError("it never ends")
        elif case.policy == "las" and study.cluster.name == "32-gpus":
            raise BreaksError("a line\nthe last line")
        else:
            yield from ((number, result) for _, result in run_cases(study, [case], 1))
    if wrong:
        raise FailedRunsError(wrong)


def test_runs_that_fail_leave_all_others_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "run_cases", failing)
    suite = small("las", "fifo", "srtf")
    suite = replace(suite, workloads=tuple(each for each in suite.workloads if each.name in ("mixed", "philly")))
    told: list[Cell] = []
    with pytest.raises(FailedSuiteError) as error:
        told.extend(run_suite(suite, Folder(tmp_path, "1"), workers=1))
    assert error.value.failures == (
        Failure("philly", "las", 2, "the last line"),
        Failure("mixed", "srtf", 2, "it never ends"),
    )
    by_place = Counter((each.workload, each.policy) for each in told)
    ran = [("philly", "fifo"), ("philly", "srtf"), ("mixed", "las"), ("mixed", "fifo")]
    assert by_place == dict.fromkeys(ran, 2)


def test_a_policy_that_takes_its_process_with_it_loses_only_its_own_runs(tmp_path: Path) -> None:
    lines = (
        "import os",
        "from phalanx.policy.policy import Policy",
        "dies = Policy('dies', order=lambda *_: os._exit(3))",
    )
    (tmp_path / "own.py").write_text("\n".join(lines))
    dies = f"{tmp_path}/own.py:dies"
    suite = replace(standard(jobs=4, seeds=1, policies=(dies, "fifo", "las")), loads=(0.9,))
    suite = replace(suite, workloads=suite.workloads[:1])
    told: list[Cell] = []
    with pytest.raises(FailedSuiteError, match="its process died") as error:
        told.extend(run_suite(suite, Folder(tmp_path / "kept", "1"), workers=2))
    assert sorted(each.policy for each in told) == ["fifo", "las"]
    assert [(each.policy, each.runs) for each in error.value.failures] == [(dies, 1)]


def test_the_verb_names_what_failed_writes_the_rest_and_ends_with_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "LOADS", (0.9,))
    monkeypatch.setattr(suites, "run_cases", failing)
    page, html = tmp_path / "page.md", tmp_path / "page.html"
    words = [
        "--keep",
        str(tmp_path / "kept"),
        "--policy",
        "fifo",
        "--policy",
        "srtf",
        "--jobs",
        "5",
        "--seeds",
        "1",
        "--workers",
        "1",
    ]
    written = ["--markdown", str(page), "--report", str(html)]
    assert run(cli, ["compare", "--suite", "standard", *words, *written, "-o", "json"]) == Exit.ERROR
    out, err = capsys.readouterr()
    failed = "mixed, srtf: 1 run failed: it never ends"
    assert f"phalanx: {failed}" in err
    assert "note: 1 of 12 runs failed: what is shown is without them" in err
    (told,) = json.loads(out)
    assert told["failures"] == [{"workload": "mixed", "policy": "srtf", "runs": 1, "error": "it never ends"}]
    assert sorted(row["policy"] for row in told["ranking"]) == ["fifo", "srtf"]
    assert f"- {failed}" in page.read_text()
    assert failed in html.read_text()


def test_results_of_other_code_or_of_another_file_of_a_policy_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, mine = tmp_path / "phalanx", tmp_path / "mine.py"
    package.mkdir()
    (package / "__init__.py").write_text("")
    mine.write_text("")
    monkeypatch.setattr("phalanx.simulate.code.ROOT", package)
    policies = ["fifo", f"{mine}:own"]
    found = [code_of(policies)]
    (package / "a.py").write_text("b = 1")
    found.append(code_of(policies))
    (package / "a.py").write_text("b = 2")
    found.append(code_of(policies))
    mine.write_text("c = 1")
    found.append(code_of(policies))
    assert len(set(found)) == 4
    assert code_of(policies) == found[-1] != code_of(["fifo"])


@pytest.mark.usefixtures("two_loads")
def test_what_older_code_came_to_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    words = ["compare", "--suite", "standard", "--keep", str(kept), "--policy", "fifo", "--workers", "1", "-o", "json"]
    files = []
    for code in ("old", "old", "new"):
        monkeypatch.setattr("phalanx.cli.compare_suite.code_of", lambda policies, code=code: code)
        assert run(cli, words) == 0
        files.append(len(list(kept.glob("*.json"))))
    assert files == [files[0], files[0], 2 * files[0]]


def test_one_seed_is_one_seed_and_the_command_tells_policies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "LOADS", (0.9,))
    page, html = tmp_path / "page.md", tmp_path / "page.html"
    words = ["--jobs", "5", "--policy", "fifo", "--policy", "fifo:skip=true", "--workers", "1"]
    more = ["--keep", str(tmp_path / "kept"), "--markdown", str(page), "--report", str(html), "-o", "json"]
    assert run(cli, ["compare", "--suite", "standard", "--seeds", "1", *words, *more]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert {row["seeds"] for row in told["cells"]} == {1}
    command = "phalanx compare --suite standard --seeds 1 --jobs 5 --policy fifo --policy fifo:skip=true"
    assert page.read_text().splitlines()[2].startswith(f"`{command} --markdown FILE`")
    assert command in html.read_text()
    assert "±" not in page.read_text()


def test_without_seeds_there_are_ten_and_the_page_tells_how_sure_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "LOADS", (0.9,))
    page = tmp_path / "page.md"
    words = ["--jobs", "5", "--policy", "fifo", "--workers", "1", "--keep", str(tmp_path / "kept")]
    assert run(cli, ["compare", "--suite", "standard", *words, "--markdown", str(page), "-o", "json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert {row["seeds"] for row in told["cells"]} == {10}
    (row,) = (line for line in _section(page, "On philly") if line.startswith("| `fifo`"))
    assert [" ± " in value for value in row.split("|")[2:6]] == [True] * 4


def _section(page: Path, title: str) -> list[str]:
    return page.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0].splitlines()


def cell(policy: str, jct: float, allocated: float, seed: int = 0) -> Cell:
    summary: Mapping[str, Any] = {
        "policy": policy,
        "jct_s": {"mean": jct, "p99": 2 * jct},
        "gpu_allocated": allocated,
        "gpu_busy": allocated,
        "fairness": {"jain": 0.5},
    }
    return Cell("w", policy, 0.9, seed, summary)


def test_a_ranking_tells_of_jobs_that_never_ended_and_of_solvers_that_gave_no_answer() -> None:
    fine, starved = cell("a", 10, 0.5), cell("b", 24, 1.0)
    jobs = {"completed": 3, "unfinished": 1, "never_fit": 1}
    some = [replace(starved, seed=i, summary={**starved.summary, "jobs": jobs}, advice_kept=i) for i in range(2)]
    assert ranked([fine]).caveats == ()
    assert ranked([fine, *some]).caveats == (
        "w, b: 4 jobs never ended, of all runs: they are missing from its times",
        "w, b: its solver found no answer once, of all runs; the last advice was kept",
    )


@pytest.mark.needs("highspy")
def test_a_suite_says_that_the_last_advice_was_kept_also_of_runs_that_it_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise NotSolvedError("no answer")

    monkeypatch.setattr(suites, "LOADS", (0.9,))
    monkeypatch.setattr("phalanx.advice.gavel.allocate", fails)
    page, html, kept = tmp_path / "page.md", tmp_path / "page.html", tmp_path / "kept"
    words = ["--jobs", "5", "--seeds", "1", "--policy", "gavel", "--workers", "1", "--keep", str(kept)]
    for _ in range(2):
        assert run(cli, ["compare", "--suite", "standard", *words, "--markdown", str(page), "--report", str(html)]) == 0
        assert "note: mixed, gavel: its solver found no answer" in capsys.readouterr().err
    assert "- mixed, gavel: its solver found no answer" in page.read_text()
    assert "mixed, gavel: its solver found no answer" in html.read_text()


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
    monkeypatch.setattr("phalanx.cli.compare_suite.standard", lambda jobs, seeds, policies, real: small(*policies))


@pytest.mark.usefixtures("two_loads")
def test_the_verb_prints_a_ranking(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep = ["--keep", str(tmp_path / "kept"), "--policy", "fifo", "--policy", "srtf", "--workers", "1"]
    assert run(cli, ["compare", "--suite", "standard", *keep, "-o", "json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert sorted(row["policy"] for row in told["ranking"]) == ["fifo", "srtf"]
    assert {row["figure"] for row in told["cells"]} == {"jct_s.mean", "jct_s.p99", "gpu_allocated", "fairness.jain"}
    assert run(cli, ["compare", "--suite", "standard", *keep]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[:2] == ["POLICY", "RANK"]


@pytest.mark.parametrize(
    "wrong",
    [
        ["--cluster", "c.yaml"],
        ["--load", "0.5"],
        ["--seed", "0"],
        ["--costs", "default"],
        ["--placement", "topology"],
    ],
)
def test_what_a_suite_has_of_its_own_is_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["compare", "--suite", "standard", *wrong]) == 2
    assert f"{wrong[0]} is not for --suite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--skip-bad-rows"], "--skip-bad-rows is for the real traces of a suite, and none is given"),
        (["--openb-pods", "p.csv"], "--openb-pods and --openb-nodes go together"),
    ],
)
def test_options_of_real_traces_that_miss_something_are_refused(
    wrong: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["compare", "--suite", "standard", *wrong]) == 2
    assert told in capsys.readouterr().err


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
    picture = ElementTree.parse(tmp_path / "suite-mixed.svg").getroot()
    texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "mixed: mean JCT against the load"
    assert texts[-4:] == ["srtf", "las", "phalanx", "fifo"]


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
