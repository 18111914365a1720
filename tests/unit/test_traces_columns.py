"""Our own trace files: read, refused with their place, and written so that they read the same."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.formats.columns import NAMES, write_csv, write_parquet
from phalanx.simulate.traces.open import read_trace
from phalanx.workload.job import PRIORITY_MAX, PRIORITY_MIN, Kind

DATA = Path(__file__).parents[1] / "data" / "traces"
HEADER = "job_id,submit_s,duration_s,gpus\n"

Write = Callable[[str | bytes], str]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Writes a file and gives its path."""

    def write(content: str | bytes) -> str:
        path = tmp_path / "trace.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def refusal(path: str, skip_bad_rows: bool = False) -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(path, skip_bad_rows)
    message = str(caught.value)
    assert message.startswith(path)
    assert "\n" not in message
    return message.removeprefix(path)


def test_columns_stand_in_any_order_and_empty_fields_have_their_defaults() -> None:
    trace = read_trace(str(DATA / "jobs.csv"))
    assert trace.name == "jobs"
    assert trace.jobs == (
        TraceJob("a", 0, 60_000, 1),
        TraceJob(
            "b",
            12_250,
            3_600_500,
            8,
            "research",
            "ann",
            100,
            8,
            "H100",
            "resnet, wide",
            Ending.FAILED,
            4,
            16,
            90_000_000,
            2_500,
        ),
        TraceJob(
            "a name\non two lines",
            12_250,
            10_000,
            2,
            "research",
            "bob",
            -5,
            ending=Ending.CANCELLED,
            cancel_ms=40_000,
            kind=Kind.SERVICE,
        ),
    )
    assert (trace.dropped, trace.notes) == (0, ())


def test_jobs_are_sorted_by_submission_and_equal_times_keep_the_order_of_the_file(written: Write) -> None:
    trace = read_trace(written(HEADER + "a,5,1,1\nb,0,1,1\nc,5,1,1\nd,0,1,1\n"))
    assert [job.id for job in trace.jobs] == ["b", "d", "a", "c"]
    assert trace.notes == ("jobs were not in the order of their submission: sorted",)


def test_jobs_without_gpus_are_left_out_and_noted(written: Write) -> None:
    trace = read_trace(written(HEADER + "a,0,1,0\nb,0,1,2\nc,1,1,0\n"))
    assert [job.id for job in trace.jobs] == ["b"]
    assert (trace.dropped, trace.notes) == (0, ("jobs without GPUs, left out: 2",))


def test_a_job_may_take_no_time_and_a_whole_number_may_be_written_as_a_float(written: Write) -> None:
    (job,) = read_trace(written(HEADER + "a,0,0,4.0\n")).jobs
    assert (job.duration_ms, job.gpus) == (0, 4)


def test_what_the_engine_calls_succeeded_is_completed(written: Write) -> None:
    (job,) = read_trace(written("job_id,submit_s,duration_s,gpus,state\na,0,1,1,succeeded\n")).jobs
    assert job.ending is Ending.COMPLETED


def test_a_byte_order_mark_other_line_ends_and_empty_lines_make_no_difference(written: Write) -> None:
    trace = read_trace(written(b"\xef\xbb\xbfjob_id,submit_s,duration_s,gpus\r\n\r\na,0,1,1\r\n\r\n"))
    assert [job.id for job in trace.jobs] == ["a"]


def test_a_header_alone_is_a_trace_of_no_jobs(written: Write) -> None:
    assert read_trace(written(HEADER)).jobs == ()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("b,1,1", ":3: expected 4 fields as in the header, got 3: b,1,1"),
        ("b,1,1,1,1", ":3: expected 4 fields as in the header, got 5: b,1,1,1,1"),
        ("b,1,-5,1", ":3: column 'duration_s': expected seconds, 0 to 10,000,000,000, got -5"),
        ("b,1,nan,1", ":3: column 'duration_s': expected seconds, 0 to 10,000,000,000, got nan"),
        ("b,1,inf,1", ":3: column 'duration_s': expected seconds, 0 to 10,000,000,000, got inf"),
        ("b,1,1e300,1", ":3: column 'duration_s': expected seconds, 0 to 10,000,000,000, got 1e300"),
        ("b,4821_7,1,1", ":3: column 'submit_s': expected seconds, 0 to 10,000,000,000, got 4821_7"),
        ("b,soon,1,1", ":3: column 'submit_s': expected seconds, 0 to 10,000,000,000, got soon"),
        ("b,,1,1", ":3: column 'submit_s': expected seconds, 0 to 10,000,000,000, got nothing"),
        ("b,1,1,2.5", ":3: column 'gpus': expected a whole number of GPUs, 0 to 1,000,000, got 2.5"),
        ("b,1,1,-1", ":3: column 'gpus': expected a whole number of GPUs, 0 to 1,000,000, got -1"),
        ("b,1,1,nan", ":3: column 'gpus': expected a whole number of GPUs, 0 to 1,000,000, got nan"),
        ("b,1,1,1_0", ":3: column 'gpus': expected a whole number of GPUs, 0 to 1,000,000, got 1_0"),
        (",1,1,1", ":3: column 'job_id': expected an id, got nothing"),
        ("a,1,1,1", ":3: column 'job_id': expected an id that no other job has, got a again"),
        ('"b,1,1,1', ":3: expected a row of CSV: unexpected end of data"),
        ('"b"x,1,1,1', ":3: expected a row of CSV: ',' expected after '\"'"),
    ],
)
def test_a_bad_row_is_an_error_that_names_its_place_or_is_dropped_and_counted(
    row: str, message: str, written: Write
) -> None:
    path = written(f"{HEADER}a,0,1,1\n{row}")
    assert refusal(path) == message
    trace = read_trace(path, skip_bad_rows=True)
    assert [job.id for job in trace.jobs] == ["a"]
    assert trace.dropped == 1


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("state", "paused", "one of completed, failed, cancelled, succeeded, got paused"),
        ("kind", "batch", "one of training, service, interactive, got batch"),
        ("priority", "high", "a whole number, -1,000,000 to 1,000,000, got high"),
        ("priority", "1000001", "a whole number, -1,000,000 to 1,000,000, got 1000001"),
        ("gpus_per_node", "16", "at most its 8 gpus, got 16"),
        ("min_gpus", "9", "at most its 8 gpus, got 9"),
        ("max_gpus", "4", "at least its 8 gpus, got 4"),
        ("deadline_s", "4.5", "a time after its submit_s, got 4.5"),
        ("cancel_s", "4.999", "a time after its submit_s, got 4.999"),
        ("checkpoint_cost_s", "-1", "seconds, 0 to 10,000,000,000, got -1"),
    ],
)
def test_a_value_that_contradicts_its_column_or_its_job_is_refused(
    column: str, value: str, expected: str, written: Write
) -> None:
    path = written(f"job_id,submit_s,duration_s,gpus,{column}\na,5,1,8,{value}\n")
    assert refusal(path) == f":2: column '{column}': expected {expected}"


def test_the_line_of_a_row_is_where_it_begins_whatever_line_ends_its_fields_hold(written: Write) -> None:
    path = written(HEADER + '"a\nb\nc",0,1,1\n"d\ne",0,x,1\n')
    assert refusal(path).startswith(":5: column 'duration_s'")


@pytest.mark.parametrize("skip_bad_rows", [False, True])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            HEADER.strip() + ",gpu\na,0,1,1,1\n",
            f": unknown column 'gpu'; known are {', '.join(NAMES)}",
        ),
        (
            "job_id,submit_s,gpus\na,0,1\n",
            ": column 'duration_s' is missing; expected job_id, submit_s, duration_s, gpus, and any other column",
        ),
        (HEADER.strip() + ",gpus\na,0,1,1,1\n", ":1: column 'gpus' is there twice"),
        ("", ": the file is empty"),
        (" \n\n", ": the file is empty"),
        (b"\x00\x01\x02", ": expected text in UTF-8, or Parquet; found a zero byte"),
        (b"\xff\xfej\x00o\x00b\x00", ":1: expected text in UTF-8, or Parquet; found the byte 0xff"),
        (
            f"{HEADER}a,0,1,1\n".encode() + b"\xff,0,1,1\n",
            ":3: expected text in UTF-8, or Parquet; found the byte 0xff",
        ),
        (gzip.compress(b"anything", mtime=0), ": this is packed by gzip: unpack it first, as by gunzip"),
        (b"PK\x03\x04anything", ": this is a zip archive: unpack it first"),
        (b"phalanx simulation 1", ": this is a saved run: go on with it by phalanx simulate --resume FILE"),
    ],
)
def test_a_bad_header_or_a_file_that_is_no_text_is_an_error_whether_or_not_rows_are_skipped(
    content: str | bytes, message: str, skip_bad_rows: bool, written: Write
) -> None:
    assert refusal(written(content), skip_bad_rows) == message


def test_bytes_that_are_no_text_are_named_by_their_line_also_far_down_in_the_file(written: Write) -> None:
    rows = "".join(f"{i},{i},1,1\n" for i in range(20_000)).encode()
    path = written(HEADER.encode() + rows + b"caf\xe9,1,1,1\n")
    assert refusal(path) == ":20002: expected text in UTF-8"


def test_a_file_that_nobody_knows_is_refused_with_the_formats_that_are_known(written: Write) -> None:
    message = refusal(written("time;job;gpus\n1;2;3\n"))
    assert message.startswith(": not a trace known here: it begins time;job;gpus; known are: phalanx CSV (job_id,")
    for name in ("Tiresias", "Philly", "Parquet", "journal"):
        assert name in message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refusal(str(tmp_path / "none.csv")) == ": No such file or directory"


def test_a_folder_that_is_not_there_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file or directory"):
        write_csv(Trace("t", ()), str(tmp_path / "none" / "out.csv"))


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
TIMES_MS = st.integers(0, 10_000_000_000_000)


@st.composite
def trace_jobs(draw: st.DrawFn, number: int) -> TraceJob:
    submit_ms = draw(TIMES_MS)
    gpus = draw(st.integers(1, 4096))
    later = st.none() | st.integers(submit_ms, 10_000_000_000_000)
    return TraceJob(
        id=f"{number}{draw(TEXTS)}",
        submit_ms=submit_ms,
        duration_ms=draw(TIMES_MS),
        gpus=gpus,
        queue=draw(TEXTS) or "default",
        user=draw(TEXTS),
        priority=draw(st.integers(PRIORITY_MIN, PRIORITY_MAX)),
        gpus_per_node=draw(st.integers(0, gpus)),
        gpu_type=draw(TEXTS),
        model=draw(TEXTS),
        ending=draw(st.sampled_from(Ending)),
        min_gpus=draw(st.integers(0, gpus)),
        max_gpus=draw(st.just(0) | st.integers(gpus, 100_000)),
        deadline_ms=draw(later),
        checkpoint_cost_ms=draw(TIMES_MS),
        cancel_ms=draw(later),
        kind=draw(st.sampled_from(Kind)),
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    jobs = [draw(trace_jobs(number)) for number in range(draw(st.integers(0, 4)))]
    return Trace("trace", tuple(sorted(jobs, key=lambda job: job.submit_ms)))


@given(trace=traces())
def test_a_trace_that_is_written_reads_the_same(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("written") / "trace.csv"
    write_csv(trace, str(path))
    assert replace(read_trace(str(path)), notes=()) == trace


@pytest.mark.needs("polars")
@given(trace=traces())
def test_a_trace_that_is_written_as_parquet_reads_the_same(
    trace: Trace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("written") / "trace.parquet"
    write_parquet(trace, str(path))
    assert replace(read_trace(str(path)), notes=()) == trace


@pytest.mark.needs("polars")
def test_parquet_has_numbers_where_there_are_numbers(polars: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    write_parquet(
        Trace("t", (TraceJob("1", 1500, 2000, 8, user="007", deadline_ms=9000), TraceJob("2", 1500, 1, 1))), str(path)
    )
    frame = polars.read_parquet(path)
    assert dict(zip(frame.columns, frame.rows()[0], strict=True)) == {
        "job_id": "1",
        "submit_s": 1.5,
        "duration_s": 2.0,
        "gpus": 8,
        "user": "007",
        "deadline_s": 9.0,
    }
    assert frame.rows()[1][-1] is None


def test_columns_that_say_nothing_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    write_csv(Trace("t", (TraceJob("a", 0, 1, 1), TraceJob("b", 1500, 2000, 8, user="ann"))), str(path))
    assert path.read_text() == "job_id,submit_s,duration_s,gpus,user\na,0,0.001,1,\nb,1.5,2,8,ann\n"


@pytest.fixture
def polars() -> Any:
    import polars

    return polars


@pytest.mark.needs("polars")
def test_parquet_has_the_same_columns(polars: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    frame = {
        "gpus": [8, 1, 0],
        "job_id": [7, 8, 9],
        "submit_s": [1.5, 0.0, 0.0],
        "duration_s": [10, 20, 30],
        "queue": ["research", None, None],
        "deadline_s": [None, 99.5, None],
    }
    polars.DataFrame(frame).write_parquet(path)
    trace = read_trace(str(path))
    assert trace.jobs == (
        TraceJob("8", 0, 20_000, 1, deadline_ms=99_500),
        TraceJob("7", 1_500, 10_000, 8, "research"),
    )
    assert trace.notes[0] == "jobs without GPUs, left out: 1"


@pytest.mark.needs("polars")
def test_a_bad_row_of_parquet_is_named_by_its_number(polars: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    frame = {"job_id": ["a", "b"], "submit_s": [0.0, 1.0], "duration_s": [1.0, float("nan")], "gpus": [1, 1]}
    polars.DataFrame(frame).write_parquet(path)
    assert refusal(str(path)).startswith(": row 2: column 'duration_s': expected seconds")
    assert read_trace(str(path), skip_bad_rows=True).dropped == 1


@pytest.mark.needs("polars")
def test_a_torn_parquet_file_is_refused(polars: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    polars.DataFrame({"job_id": ["a"]}).write_parquet(path)
    path.write_bytes(path.read_bytes()[:40])
    assert refusal(str(path)).startswith(": expected a whole Parquet file: ")


def test_without_polars_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    path = tmp_path / "trace.parquet"
    path.write_bytes(b"PAR1")
    assert refusal(str(path)) == ": reading Parquet needs polars: pip install polars"


@pytest.mark.parametrize(
    ("rows", "kept", "bad_lines"),
    [
        ('a,0,1,1\n"b,1,1,1\nc,2,1,1\nd,3,1,1\n', "acd", [3]),
        ('a,0,1,1\n"b,1,1,1\nc,2,1,1\n"d,3,1,1\ne,4,1,1\n', "ace", [3, 5]),
        ('"a,0,1,1\n"b,1,1,1\n"c,2,1,1\n', "", [2, 3, 4]),
        ('a,0,1,1\nb,"1,1,1\nc,2,1,1\nd,"3",1,1\ne,4,1,1\n', "acde", [3]),
        ('a,0,1,1\nb,1,1,"1\n', "a", [3]),
    ],
)
def test_a_quote_that_is_never_closed_spoils_its_own_row_only(
    rows: str, kept: str, bad_lines: list[int], written: Write
) -> None:
    path = written(HEADER + rows)
    trace = read_trace(path, skip_bad_rows=True)
    assert [job.id for job in trace.jobs] == list(kept)
    assert trace.dropped == len(bad_lines)
    assert [bad.removeprefix(path).split(":")[1] for bad in trace.bad_rows] == list(map(str, bad_lines))
    assert refusal(path).startswith(f":{bad_lines[0]}: expected a row of CSV: ")


def test_many_quotes_that_are_never_closed_are_passed_over_one_by_one(written: Write) -> None:
    rows = (('"' if number % 3 else "") + f"{number},{number},1,1\n" for number in range(9000))
    trace = read_trace(written(HEADER + "".join(rows)), skip_bad_rows=True)
    assert (len(trace.jobs), trace.dropped) == (3000, 6000)


def test_text_of_several_lines_in_quotes_is_still_one_row(written: Write) -> None:
    content = 'job_id,submit_s,duration_s,gpus,user\na,0,1,1,"one\ntwo"\nb,soon,1,1,x\nc,2,1,1,"y\n\nz"\nd,3,1,1,w\n'
    trace = read_trace(written(content), skip_bad_rows=True)
    assert [(job.id, job.user) for job in trace.jobs] == [("a", "one\ntwo"), ("c", "y\n\nz"), ("d", "w")]
    assert trace.bad_rows[0].partition("trace.csv:")[2].startswith("4: ")


def test_tasks_that_do_not_come_out_even_are_noted(written: Write) -> None:
    path = written("job_id,submit_s,duration_s,gpus,gpus_per_node\na,0,1,4,3\nb,0,1,4,2\nc,0,1,8,5\n")
    (note,) = read_trace(path).notes
    assert note == "jobs whose gpus_per_node does not divide their gpus, with a last task of the rest: 2"
