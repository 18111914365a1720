"""Estimates: jobs of a trace that say another length than they run, and who goes by what they say."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx.cli.compare import compare
from phalanx.cli.main import cli
from phalanx.cli.simulate import simulate as simulate_verb
from phalanx.cluster.cluster import flat
from phalanx.simulate.entry import OptionError, Options, simulate
from phalanx.simulate.estimates import MODELS, ROUND_MS, EstimatesError, estimates_of
from phalanx.simulate.forecasts.forecast import Outlook, forecast
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.submission import Submitter
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.formats.columns import COLUMNS, write_trace
from phalanx.simulate.traces.open import read_trace
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.workload.job import Kind

HOUR_MS = 3_600_000


def trace_of(*jobs: TraceJob) -> Trace:
    return Trace("few", jobs)


MANY = trace_of(*(TraceJob(f"j{i}", 1000 * i, 60_000 * (1 + i % 90), 1 + i % 4) for i in range(200)))


def said(text: str, seed: int = 0, trace: Trace = MANY) -> list[float]:
    """What each job says it takes, as a multiple of what it does."""
    jobs = estimates_of(text).of(trace, seed).jobs
    return [job.estimate_ms / job.duration_ms for job in jobs if job.estimate_ms is not None]


def simulation(policy: str, *jobs: TraceJob) -> Simulation:
    run = Simulation(Setup(flat(1, 4), trace_of(*jobs), policy, costs=NO_COSTS))
    run.begin()
    return run


def starts_s(policy: str, *jobs: TraceJob) -> dict[str, int]:
    """When each job first started, in seconds."""
    run = simulation(policy, *jobs)
    run.go()
    records = run.run.state.jobs.values()
    return {each.job.id: each.first_start_ms // 1000 for each in records if each.first_start_ms is not None}


def test_a_job_is_submitted_with_what_it_says_and_runs_as_long_as_it_does() -> None:
    run = simulation("fifo", TraceJob("a", 0, 90_000, 4, estimate_ms=60_000))
    run.go()
    record = run.run.state.jobs["a"]
    assert record.job.duration_ms == 60_000
    assert record.ended_ms == 90_000


def test_a_job_that_says_nothing_else_says_how_long_it_runs() -> None:
    submitter = Submitter(flat(1, 4))
    assert submitter.job(TraceJob("a", 0, 90_000, 4)).duration_ms == 90_000
    service = TraceJob("a", 0, 90_000, 4, kind=Kind.SERVICE, estimate_ms=60_000)
    assert submitter.job(service).duration_ms is None


@pytest.mark.parametrize("policy", ["sjf", "srtf"])
def test_the_shortest_is_the_one_that_says_so(policy: str) -> None:
    first = TraceJob("first", 0, 10_000, 4, estimate_ms=1_000)
    long = TraceJob("long", 1_000, 50_000, 4, estimate_ms=10_000)
    short = TraceJob("short", 1_000, 20_000, 4, estimate_ms=30_000)
    starts = starts_s(policy, first, long, short)
    assert starts["long"] < starts["short"]


def test_a_job_passes_the_head_by_what_it_says() -> None:
    runs = TraceJob("runs", 0, 50_000, 2, estimate_ms=60_000)
    head = TraceJob("head", 1_000, 10_000, 4)
    passes = TraceJob("passes", 2_000, 70_000, 2, estimate_ms=30_000)
    waits = TraceJob("waits", 3_000, 1_000, 2, estimate_ms=90_000)
    assert starts_s("backfill", runs, head, passes, waits) == {"runs": 0, "passes": 2, "head": 72, "waits": 82}


def test_the_head_is_told_a_time_by_what_others_say() -> None:
    run = simulation("backfill", TraceJob("runs", 0, 50_000, 4, estimate_ms=90_000), TraceJob("head", 1_000, 10_000, 4))
    run.go(until_ms=2_000)
    assert [each.at_ms for each in run.run.state.reservations] == [90_000]


def test_a_forecast_knows_what_jobs_say_and_not_how_long_they_run() -> None:
    spans = []
    for length_ms in (10_000, 500_000):
        run = simulation(
            "backfill", TraceJob("runs", 0, length_ms, 4, estimate_ms=90_000), TraceJob("head", 1, 9_000, 4)
        )
        run.go(until_ms=2_000)
        spans.append(forecast(run.run.state, Outlook(runs=2, costs=NO_COSTS)).spans)
    assert spans[0] == spans[1]
    assert spans[0]["head"].middle_ms == 90_000


@pytest.mark.parametrize("name", ["said.csv", "said.parquet"])
def test_the_column_is_written_where_it_says_something_and_read_again(name: str, tmp_path: Path) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("polars")
    trace = trace_of(TraceJob("a", 0, 90_000, 4, estimate_ms=60_500), TraceJob("b", 0, 90_000, 4))
    write_trace(trace, str(tmp_path / name))
    assert read_trace(str(tmp_path / name)).jobs == trace.jobs
    plain = tmp_path / "plain.csv"
    write_trace(trace_of(trace.jobs[1]), str(plain))
    assert "estimate_s" not in plain.read_text()


@pytest.mark.parametrize("policy", ["backfill", "sjf", "srtf"])
def test_exact_estimates_change_nothing_and_take_the_place_of_those_of_the_trace(policy: str) -> None:
    told = replace(MANY, jobs=tuple(replace(job, estimate_ms=1_000) for job in MANY.jobs))
    plain = simulate(flat(2, 4), MANY, policy)
    assert simulate(flat(2, 4), MANY, policy, estimates="exact").summary["digest"] == plain.summary["digest"]
    assert simulate(flat(2, 4), told, policy, estimates="exact").summary["digest"] == plain.summary["digest"]
    assert simulate(flat(2, 4), told, policy).summary["digest"] != plain.summary["digest"]


def test_names_that_people_write_stay_as_they_are() -> None:
    assert tuple(MODELS) == ("exact", "factor", "spread", "f", "round")
    assert ("estimate_s", "estimate_ms") in [(column.name, column.field) for column in COLUMNS]
    assert "estimates" in Options.__annotations__
    assert all(
        "--estimates" in [name for each in verb.params for name in each.opts] for verb in (simulate_verb, compare)
    )


def test_a_factor_is_the_same_for_all() -> None:
    assert said("factor=1.3") == [1.3] * len(MANY.jobs)
    assert said("factor=0.5") == [0.5] * len(MANY.jobs)


def test_a_spread_lies_evenly_on_both_sides() -> None:
    found = said("spread=0.3")
    assert 0.7 <= min(found) < 0.75
    assert 1.25 < max(found) <= 1.3
    assert sum(each < 1 for each in found) / len(found) == pytest.approx(0.5, abs=0.1)


def test_by_the_badness_factor_estimates_lie_evenly_between_once_and_f_plus_one_times_the_length() -> None:
    found = said("f=4")
    assert 1 <= min(found) < 1.2
    assert 4.8 < max(found) <= 5
    assert sum(found) / len(found) == pytest.approx(3, abs=0.3)


def test_round_estimates_are_of_twenty_values_none_less_than_the_length() -> None:
    found = estimates_of("round").of(MANY, 0).jobs
    assert len(ROUND_MS) == 20
    assert all(job.estimate_ms in ROUND_MS and job.estimate_ms >= job.duration_ms for job in found)
    assert sum(job.estimate_ms >= 2 * job.duration_ms for job in found if job.estimate_ms) > len(found) / 3


def test_round_estimates_of_what_is_longer_than_all_of_them_are_whole_weeks() -> None:
    longest = ROUND_MS[-1]
    (job,) = estimates_of("round").of(trace_of(TraceJob("a", 0, longest + 1, 1)), 0).jobs
    assert job.estimate_ms == 2 * longest


def test_estimates_follow_from_the_seed_and_the_job_alone() -> None:
    fewer = trace_of(*MANY.jobs[:10])
    assert said("f=4") == said("f=4")
    assert said("f=4")[:10] == said("f=4", trace=fewer)
    assert said("f=4") != said("f=4", seed=1)


def test_services_and_jobs_that_end_as_they_start_say_what_they_did() -> None:
    jobs = TraceJob("s", 0, 1000, 1, kind=Kind.SERVICE), TraceJob("z", 0, 0, 1)
    assert [job.estimate_ms for job in estimates_of("factor=2").of(trace_of(*jobs), 0).jobs] == [None, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wild", "--estimates wild: expected exact, factor=1.3, spread=0.3, f=4 or round"),
        ("factor", "--estimates factor: expected a number, as in factor=1.3"),
        ("factor=0", "--estimates factor=0: expected more than 0"),
        ("factor=nan", "--estimates factor=nan: expected a number, as in factor=1.3"),
        ("f=-1", "--estimates f=-1: expected 0 or more"),
        ("f=1e400", "--estimates f=1e400: expected a number, as in f=4"),
        ("factor=1e9", "--estimates factor=1e9: expected at most 1,000,000"),
        ("spread=1", "--estimates spread=1: expected less than 1"),
        ("exact=1", "--estimates exact=1: exact has no number"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, message: str) -> None:
    with pytest.raises(EstimatesError, match=f"^{re.escape(message)}$"):
        estimates_of(text)


def test_an_option_that_is_no_text_is_told() -> None:
    with pytest.raises(OptionError, match="estimates is 3: expected estimates, such as 'f=4'"):
        simulate(flat(1, 4), MANY, "fifo", estimates=3)  # type: ignore[arg-type]


def test_the_verb_takes_estimates_and_each_seed_has_its_own(tmp_path: Path) -> None:
    trace, cluster = tmp_path / "t.csv", tmp_path / "c.yaml"
    write_trace(trace_of(*MANY.jobs[:30]), str(trace))
    cluster.write_text("nodes:\n  - {name: n, count: 2, gpus: 4}\n")
    common = ["--cluster", str(cluster), "--trace", str(trace), "--policy", "sjf", "-o", "json"]
    digests = []
    for more in ([], ["--estimates", "exact"], ["--estimates", "f=9"], ["--estimates", "f=9", "--seed", "1"]):
        result = CliRunner().invoke(cli, ["simulate", *common, *more])
        assert result.exit_code == 0, result.output
        digests.append(next(line for line in result.stdout.splitlines() if '"digest"' in line))
    assert digests[0] == digests[1]
    assert len(dict.fromkeys(digests)) == 3
