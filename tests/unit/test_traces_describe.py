"""What a trace is said to hold, and `phalanx trace`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cli.main import run
from phalanx.cli.trace import time_words
from phalanx.cli.trace import trace as verb
from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces.describe import describe
from phalanx.simulate.traces.load import offered_load
from phalanx.simulate.traces.open import read_trace

DATA = Path(__file__).parents[1] / "data" / "traces"

SMALL = Trace(
    "small",
    (
        TraceJob("a", 0, 3_600_000, 1, "q0", "ann", model="resnet50"),
        TraceJob("b", 1_800_000, 7_200_000, 8, "q1", "bob", ending=Ending.FAILED, deadline_ms=9_000_000),
        TraceJob("c", 7_200_000, 0, 1, "q0", "ann", min_gpus=1, max_gpus=4),
    ),
    dropped=2,
    notes=("a note",),
)


def test_counts_shares_and_quantiles() -> None:
    found = describe(SMALL)
    assert (found["jobs"], found["dropped"], found["notes"]) == (3, 2, ["a note"])
    assert (found["users"], found["models"], found["elastic"], found["deadlines"]) == (2, 1, 1, 1)
    assert (found["gpu_hours"], found["gpus_offered"], found["gpus_max"]) == (17.0, 8.5, 8)
    assert (found["zero_duration"], found["span_s"]) == (1, 7_200.0)
    assert found["states"] == {"completed": 2, "failed": 1}
    assert found["duration_s"] == {"mean": 3600.0, "p50": 3600, "p90": 7200, "p95": 7200, "p99": 7200, "max": 7200}
    assert [(row["gpus"], row["jobs"], row["gpu_time_share"]) for row in found["sizes"]] == [
        (1, 2, pytest.approx(1 / 17)),
        (8, 1, pytest.approx(16 / 17)),
    ]
    assert [(row["queue"], row["jobs"]) for row in found["queues"]] == [("q0", 2), ("q1", 1)]


def test_load_over_time_is_what_would_be_busy_if_nobody_waited() -> None:
    load = describe(SMALL)["load"]
    assert load["bucket_s"] == 600
    assert [bucket["gpus"] for bucket in load["buckets"]] == [1.0] * 3 + [9.0] * 3 + [8.0] * 7
    assert [bucket["jobs"] for bucket in load["buckets"] if bucket["jobs"]] == [1, 1, 1]


def test_a_trace_of_no_jobs_can_be_described_too() -> None:
    found = describe(Trace("none", ()))
    assert (found["jobs"], found["gpus_offered"], found["duration_s"]) == (0, None, {})


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**9), st.integers(1, 64)), min_size=1, max_size=20))
def test_load_over_time_adds_up_to_the_gpu_time_within_the_span(rows: list[tuple[int, int, int]]) -> None:
    rows.sort()
    jobs = tuple(TraceJob(str(i), at, duration, gpus) for i, (at, duration, gpus) in enumerate(rows))
    load = describe(Trace("any", jobs))["load"]
    end = rows[0][0] + len(load["buckets"]) * load["bucket_s"] * 1000
    within = sum(gpus * max(min(at + duration, end) - at, 0) for at, duration, gpus in rows)
    told = sum(bucket["gpus"] for bucket in load["buckets"]) * load["bucket_s"] * 1000
    assert told == pytest.approx(within)
    assert sum(bucket["jobs"] for bucket in load["buckets"]) == len(jobs)
    assert len(load["buckets"]) <= 24


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (0.5, "0.5s"), (90, "1m 30s"), (3600, "1h"), (90_061, "1d 1h"), (86_400 * 7, "7d")],
)
def test_times_are_told_in_at_most_two_units(seconds: float, words: str) -> None:
    assert time_words(seconds) == words


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return Call(capsys)


class Call:
    """Runs the verb and gives back exit code, standard output and standard error."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = run(verb, arguments)
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err


def test_describe_shows_tables_notes_and_bars(call: Call) -> None:
    code, out, err = call("describe", str(DATA / "tiresias_jobs.csv"))
    assert (code, err) == (0, "")
    assert "JOBS                         3\n" in out
    assert "note: jobs without GPUs, left out: 1" in out
    assert "OF GPU TIME" in out
    assert "GPUs that would be busy if no job waited, in steps of 1s" in out
    assert "        7s  ########################################  5.0 GPUs, 1 jobs submitted" in out


def test_describe_gives_programs_all_of_it(call: Call) -> None:
    path = str(DATA / "philly_log.json")
    found = json.loads(call("describe", path, "-o", "json")[1])
    assert found == describe(read_trace(path))
    assert yaml.safe_load(call("describe", path, "-o", "yaml")[1]) == found
    assert call("describe", path, "-o", "name")[1] == "philly_log\n"


def test_a_trace_of_no_jobs_is_described_in_few_words(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    path.write_text("job_id,submit_s,duration_s,gpus\n")
    code, out, _ = call("describe", str(path))
    assert code == 0
    assert "JOBS                         0\n" in out


def test_many_queues_are_shown_in_part(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "queues.csv"
    path.write_text("job_id,submit_s,duration_s,gpus,queue\n" + "".join(f"{i},{i},1,1,q{i}\n" for i in range(20)))
    assert "… and 5 more queues" in call("describe", str(path))[1]


def test_bad_rows_stop_describe_unless_they_are_skipped(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("job_id,submit_s,duration_s,gpus\na,0,1,1\nb,0,never,1\n")
    code, out, err = call("describe", str(path))
    assert (code, out) == (1, "")
    assert err == f"phalanx: {path}:3: column 'duration_s': expected seconds, 0 to 10,000,000,000, got never\n"
    code, out, _ = call("describe", "--skip-bad-rows", str(path))
    assert code == 0
    assert "DROPPED                      1\n" in out


def test_make_writes_a_trace_at_its_load_and_says_so(call: Call, tmp_path: Path) -> None:
    path = str(tmp_path / "made.csv")
    options = ["--jobs", "300", "--gpus", "64", "--load", "0.7", "--seed", "5", "--sweeps", "0.2", "--services", "2"]
    code, out, err = call("make", *options, path)
    assert (code, out) == (0, "")
    assert f"{path}: 300 jobs over " in err
    assert "a load of 0.7 on 64 GPUs" in err
    made = read_trace(path)
    assert offered_load(made, 64) == pytest.approx(0.7, rel=1e-6)
    again = str(tmp_path / "again.csv")
    call("make", *options, again)
    assert Path(again).read_bytes() == Path(path).read_bytes()


def test_make_refuses_what_cannot_be_made_and_writes_nothing(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "made.csv"
    code, _, err = call("make", "--jobs", "300", "--gpus", "64", "--load", "-1", str(path))
    assert (code, err) == (1, "phalanx: synthetic trace: expected a load above 0, got -1.0\n")
    assert not path.exists()


def test_convert_writes_our_columns_and_tells_what_was_left_out(call: Call, tmp_path: Path) -> None:
    path = str(tmp_path / "ours.csv")
    code, out, err = call("convert", str(DATA / "philly_distilled.csv"), path)
    assert (code, out) == (0, "")
    assert err.splitlines() == [
        "note: jobs without GPUs, left out: 1",
        "note: jobs were not in the order of their submission: sorted",
        f"{path}: 2 jobs",
    ]
    assert read_trace(path).jobs == read_trace(str(DATA / "philly_distilled.csv")).jobs


@pytest.mark.needs("polars")
def test_convert_writes_parquet_where_the_name_says_so(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "ours.parquet"
    assert call("convert", str(DATA / "philly_distilled.csv"), str(path))[0] == 0
    assert path.read_bytes().startswith(b"PAR1")
    assert read_trace(str(path)).jobs == read_trace(str(DATA / "philly_distilled.csv")).jobs


def test_convert_of_what_cannot_be_read_writes_nothing(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "ours.csv"
    assert call("convert", str(DATA / "tiresias_cluster.csv"), str(path))[0] == 1
    assert not path.exists()
