"""Traces and clusters in the formats of others, and our own journal as a trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, a_job, array, of_roles
from phalanx.cluster.cluster import Cluster, Node, flat
from phalanx.engine.state.journal import Journal
from phalanx.errors import PhalanxError
from phalanx.protocol.event import JobCancelled, Outcome, Progress
from phalanx.simulate.figures.outcome import outcome
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.formats.tiresias import write_cluster, write_jobs
from phalanx.simulate.traces.open import read_trace, read_trace_cluster
from phalanx.simulate.world.costs import NO_COSTS, Costs
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Checkpointing, Kind

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "traces"

Write = Callable[[str], str]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Writes a file and gives its path."""

    def write(content: str) -> str:
        path = tmp_path / "file"
        path.write_text(content)
        return str(path)

    return write


def refusal(read: Callable[[str], object], path: str) -> str:
    with pytest.raises(TraceError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(path)
    assert "\n" not in message
    return message.removeprefix(path)


def test_tiresias_jobs_are_read_with_their_models() -> None:
    trace = read_trace(str(DATA / "tiresias_jobs.csv"))
    assert trace.jobs == (
        TraceJob("0", 0, 40_000, 1, model="vgg16"),
        TraceJob("3", 5_000, 0, 2, model="alexnet"),
        TraceJob("1", 7_000, 1_200_500, 4, model="resnet50"),
    )
    assert trace.notes == (
        "jobs without GPUs, left out: 1",
        "jobs were not in the order of their submission: sorted",
    )


def test_tiresias_jobs_need_no_columns_that_the_simulator_does_not_use(written: Write) -> None:
    (job,) = read_trace(written("submit_time,duration,num_gpu,job_id,aggr_interval\n30,5,2,x,0\n")).jobs
    assert job == TraceJob("x", 30_000, 5_000, 2)


def test_a_queue_of_a_tiresias_job_is_read_where_a_file_adds_the_column(written: Write) -> None:
    rows = "0,1,0,5,research\n1,1,0,5,\n"
    jobs = read_trace(written(f"job_id,num_gpu,submit_time,duration,queue\n{rows}")).jobs
    assert [job.queue for job in jobs] == ["research", "default"]


def test_what_is_written_for_the_simulator_of_tiresias_is_read_back(tmp_path: Path) -> None:
    jobs = (
        TraceJob("0", 0, 40_000, 1, "a", model="vgg16"),
        TraceJob("1", 7_000, 1_200_000, 4, "b", model="resnet50"),
    )
    write_jobs(jobs, str(tmp_path / "jobs.csv"))
    assert (tmp_path / "jobs.csv").read_text() == (
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval,queue\n"
        "0,1,0,0,vgg16,40,7,a\n"
        "1,4,7,0,resnet50,1200,0,b\n"
    )
    assert read_trace(str(tmp_path / "jobs.csv")).jobs == jobs
    write_cluster(str(tmp_path / "n15g4.csv"), 1, 15, 4, 128, 256)
    cluster = read_trace_cluster(str(tmp_path / "n15g4.csv"))
    assert (len(cluster.nodes), cluster.gpus, cluster.nodes[0].cpus_milli) == (15, 60, 128_000)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,1,0,5", ":3: column 'job_id': expected an id that no other job has, got 0 again"),
        ("1,0.5,0,5", ":3: column 'num_gpu': expected a whole number of GPUs, 0 to 1,000,000, got 0.5"),
        ("1,1,0", ":3: expected 4 fields as in the header, got 3: 1,1,0"),
        ("1,1,0,", ":3: column 'duration': expected seconds, 0 to 10,000,000,000, got nothing"),
    ],
)
def test_a_bad_tiresias_row_is_refused_or_dropped(row: str, message: str, written: Write) -> None:
    path = written(f"job_id,num_gpu,submit_time,duration\n0,1,0,5\n{row}\n")
    assert refusal(read_trace, path) == message
    assert read_trace(path, skip_bad_rows=True).dropped == 1


def test_a_tiresias_trace_without_durations_is_refused_by_its_header(written: Write) -> None:
    path = written("job_id,num_gpu,submit_time\n0,1,0\n")
    assert refusal(read_trace, path) == ":1: expected a column 'duration', found job_id, num_gpu, submit_time"


def test_a_tiresias_cluster_has_switches_above_equal_nodes() -> None:
    cluster = read_trace_cluster(str(DATA / "tiresias_cluster.csv"))
    assert (cluster.name, cluster.levels, cluster.gpus) == ("tiresias_cluster", ("switch", "node"), 24)
    assert cluster.nodes[0] == Node("n0", ("s0",), 4, cpus_milli=48_000, memory_mb=96 * 1024)
    assert [node.path for node in cluster.nodes] == [("s0",)] * 3 + [("s1",)] * 3


CLUSTER_HEADER = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", ": expected one row below the header, found 0"),
        ("1,1,1,1,1\n1,1,1,1,1\n", ": expected one row below the header, found 2"),
        ("0,1,1,1,1\n", ":2: column 'num_switch': expected a whole number, 1 to 200,000, got 0"),
        ("1,1,8.5,1,1\n", ":2: column 'num_gpu_p_node': expected a whole number, 0 to 1,024, got 8.5"),
        ("1,1,8,1\n", ":2: expected 5 fields as in the header, got 4: 1,1,8,1"),
        ("1000,1000,8,1,1\n", ": expected at most 200,000 nodes, got 1000 switches of 1000"),
    ],
)
def test_a_bad_tiresias_cluster_is_refused(rows: str, message: str, written: Write) -> None:
    assert refusal(read_trace_cluster, written(CLUSTER_HEADER + rows)) == message


def test_the_distilled_philly_trace_counts_from_its_first_submission_and_names_jobs_by_rows() -> None:
    trace = read_trace(str(DATA / "philly_distilled.csv"))
    assert trace.jobs == (
        TraceJob("2", 0, 2_951_000, 8, "vc-b"),
        TraceJob("1", 2_932_000, 66_000, 1, "vc-a"),
    )
    assert trace.notes[0] == "jobs without GPUs, left out: 1"


@pytest.mark.parametrize("time", ["yesterday", "", "2017-10-09T07:01:55+00:00", "None"])
def test_a_time_that_is_none_is_refused(time: str, written: Write) -> None:
    path = written(f"timestamp,duration,num_gpus,gpu_time,cluster\n{time},1,1,1,a\n")
    expected = "expected a time such as 2017-10-09 07:01:55"
    assert refusal(read_trace, path) == f":2: column 'timestamp': {expected}, got {time or 'nothing'}"


def test_the_philly_log_adds_up_attempts_and_takes_the_gpus_of_the_last() -> None:
    trace = read_trace(str(DATA / "philly_log.json"))
    assert trace.jobs == (
        TraceJob("application_2", 0, 0, 1, "vc-b", "bob", ending=Ending.FAILED),
        TraceJob("application_1", 699_000, 74_000 + 3_600_000, 4, "vc-a", "ann"),
        TraceJob("application_3", 29 * 86_400_000 + 2_400_000, 0, 1, ending=Ending.CANCELLED),
    )


def test_what_the_philly_log_has_no_times_or_gpus_for_is_left_out_and_noted() -> None:
    assert read_trace(str(DATA / "philly_log.json")).notes == (
        "jobs with no attempts (they never ran), left out: 1",
        "jobs with no time of submission, left out: 1",
        "jobs whose last attempt has no start or no end (they still ran, or were not logged), left out: 1",
        "jobs without GPUs, left out: 1",
        "attempts that end before they begin (the clock was put back), counted as 0 s: 1",
        "jobs were not in the order of their submission: sorted",
    )


def logged(**changes: Any) -> dict[str, Any]:
    attempt = {"start_time": "2017-10-07 01:00:00", "end_time": "2017-10-07 02:00:00", "detail": [{"gpus": ["gpu0"]}]}
    job = {"jobid": "b", "status": "Pass", "submitted_time": "2017-10-07 00:00:00", "attempts": [attempt]}
    return {**job, **changes}


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (logged(jobid="a"), ": job 2: column 'jobid': expected an id that no other job has, got a again"),
        (logged(jobid=""), ": job 2: column 'jobid': expected an id, got nothing"),
        (logged(jobid=7), ": job 2: Expected `str`, got `int` - at `$.jobid`"),
        (logged(status="Lost"), ": job 2: column 'status': expected one of Pass, Killed, Failed, got Lost"),
        (
            logged(submitted_time="noon"),
            ": job 2: column 'submitted_time': expected a time such as 2017-10-09 07:01:55, got noon",
        ),
        (
            logged(attempts=[{"start_time": "2017-10-07 01:00", "end_time": "2017-10-06", "detail": []}]),
            ": job 2: column 'attempts.end_time': expected a time after start_time 2017-10-07 01:00, got 2017-10-06",
        ),
        ({"jobid": "b"}, ": job 2: Object missing required field `status`"),
        ("text", ": job 2: Expected `object`, got `str`"),
    ],
)
def test_a_bad_job_of_the_philly_log_is_refused_or_dropped(job: object, message: str, written: Write) -> None:
    path = written(json.dumps([logged(jobid="a"), job]))
    assert refusal(read_trace, path) == message
    trace = read_trace(path, skip_bad_rows=True)
    assert ([job.id for job in trace.jobs], trace.dropped) == (["a"], 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[\n{"jobid": "a",', ":2: expected a whole JSON list of jobs: Input data was truncated"),
        ("[\n{}\n{}]", ":3: expected a whole JSON list of jobs: JSON is malformed: expected ',' or ']' (byte 5)"),
        ("[1, 2]", ": job 1: Expected `object`, got `int`"),
    ],
)
def test_broken_json_is_refused_with_its_line(content: str, message: str, written: Write) -> None:
    assert refusal(read_trace, written(content)) == message


def test_the_philly_list_of_machines_is_a_flat_cluster() -> None:
    cluster = read_trace_cluster(str(DATA / "philly_machines.csv"))
    assert cluster == Cluster(
        (
            Node("m1", (), 2, gpu_memory_gb=12.0),
            Node("m2", (), 8, gpu_memory_gb=24.0),
            Node("m3", (), 8),
        ),
        name="philly_machines",
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", ": expected at least one machine"),
        ("m1,8,24GB\nm1,8,24GB\n", ":3: column 'machineId': expected a name that no other machine has, got m1"),
        ("m1,x,24GB\n", ":2: column 'number of GPUs': expected a whole number, 0 to 1,024, got x"),
        ("m1,8,much\n", ":2: column 'single GPU mem': expected the memory of a GPU such as 24GB, got much"),
    ],
)
def test_a_bad_list_of_machines_is_refused(rows: str, message: str, written: Write) -> None:
    path = written(f"machineId,number of GPUs,single GPU mem\n{rows}")
    assert refusal(read_trace_cluster, path) == message


def test_our_own_cluster_file_is_a_cluster_too() -> None:
    assert len(read_trace_cluster(str(ROOT / "examples" / "cluster-small.yaml")).nodes) == 4


def test_our_own_cluster_file_may_be_json_that_begins_with_a_version(written: Write) -> None:
    assert read_trace_cluster(written('{"version": 1, "nodes": [{"count": 2, "gpus": 8}]}')).gpus == 16


def test_a_cluster_given_as_a_trace_and_a_trace_given_as_a_cluster_are_told_apart() -> None:
    assert "this is a cluster, not a trace" in refusal(read_trace, str(DATA / "tiresias_cluster.csv"))
    assert "this is a trace, not a cluster" in refusal(read_trace_cluster, str(DATA / "tiresias_jobs.csv"))


@pytest.fixture
def world() -> World:
    return World(flat(nodes=4, gpus=8))


def journal_of(world: World, tmp_path: Path) -> str:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in world.journal.lines()))
    return str(path)


def test_a_journal_tells_how_long_jobs_ran(world: World, tmp_path: Path) -> None:
    world.submit(a_job("a", 8, 2, queue="research", user="ann", priority=5), after_ms=1_000)
    world.done("a", after_ms=500)
    world.submit(a_job("b", task={"gpu_types": ()}, deadline_ms=90_000, checkpoint=Checkpointing(0, 2_000)))
    world.done("b", after_ms=100)
    world.end("a", after_ms=10_000)
    world.end("b", Outcome.FAILED, after_ms=400)
    trace = read_trace(journal_of(world, tmp_path))
    assert trace.jobs == (
        TraceJob("a", 0, 10_100, 16, "research", "ann", 5, gpus_per_node=8),
        TraceJob(
            "b",
            500,
            10_400,
            1,
            gpus_per_node=1,
            ending=Ending.FAILED,
            deadline_ms=89_000,
            checkpoint_cost_ms=2_000,
        ),
    )
    assert trace.notes == ()


def test_a_job_that_lost_an_attempt_ran_as_long_as_its_last_and_what_was_saved_before(
    world: World, tmp_path: Path
) -> None:
    world.run(a_job("a"))
    world.turn(Progress("a", 1, step=10, durable_step=10), after_ms=3_000)
    world.end("a", Outcome.LOST, after_ms=2_000)
    world.done("a", after_ms=700)
    world.end("a", after_ms=4_000)
    (job,) = read_trace(journal_of(world, tmp_path)).jobs
    assert job.duration_ms == 3_000 + 4_000


def test_a_job_cancelled_while_it_ran_ran_until_then(world: World, tmp_path: Path) -> None:
    world.run(a_job("a"))
    world.turn(JobCancelled("a"), after_ms=5_000)
    world.done("a", after_ms=900)
    (job,) = read_trace(journal_of(world, tmp_path)).jobs
    assert (job.duration_ms, job.ending, job.cancel_ms) == (5_000, Ending.CANCELLED, None)


def test_a_job_cancelled_before_it_ran_is_cancelled_at_the_same_time_again(world: World, tmp_path: Path) -> None:
    world.submit(a_job("a", 8, 4), after_ms=1_000)
    world.submit(a_job("b", 8), a_job("c", 8, duration_ms=60_000), after_ms=1_000)
    world.turn(JobCancelled("b"), JobCancelled("c"), after_ms=7_000)
    trace = read_trace(journal_of(world, tmp_path))
    told = [(job.id, job.submit_ms, job.duration_ms, job.cancel_ms, job.ending) for job in trace.jobs]
    assert told == [
        ("b", 1_000, 7_000, 8_000, Ending.CANCELLED),
        ("c", 1_000, 60_000, 8_000, Ending.CANCELLED),
    ]
    assert trace.notes == ("jobs that had not ended, left out: 1",)


def test_elastic_jobs_services_and_jobs_without_gpus_keep_what_they_are(world: World, tmp_path: Path) -> None:
    world.run(
        a_job("elastic", 2, (2, 4)),
        a_job("web", kind=Kind.SERVICE),
        a_job("cpus", 0, task={"cpus_milli": 0}),
        of_roles("roles", Role("driver", task=Task(1)), Role("worker", task=Task(2))),
    )
    for name in ("elastic", "web", "cpus", "roles"):
        world.end(name, after_ms=1_000)
    trace = read_trace(journal_of(world, tmp_path))
    elastic, web, roles = trace.jobs
    assert (elastic.min_gpus, elastic.gpus, elastic.max_gpus, elastic.gpus_per_node) == (4, 8, 8, 2)
    assert web.kind is Kind.SERVICE
    assert (roles.gpus, roles.gpus_per_node) == (3, 0)
    assert trace.notes == ("jobs without GPUs, left out: 1",)


def test_work_that_was_saved_before_a_job_made_way_is_part_of_its_duration(tmp_path: Path) -> None:
    """a works for 5 s, is told to stop, is gone after another, and has 4 s left."""
    world = World(flat(nodes=1, gpus=1), "priority")
    world.run(a_job("a", checkpoint=Checkpointing(0, 500, saves=True)))
    world.submit(a_job("b", priority=5), after_ms=5_000)
    world.done("a", after_ms=1_000)
    world.done("b", after_ms=100)
    world.end("b", after_ms=2_000)
    world.done("a", after_ms=700)
    world.end("a", after_ms=4_000)
    a, b = read_trace(journal_of(world, tmp_path)).jobs
    assert (a.duration_ms, b.duration_ms) == (9_000, 2_000)


def test_work_that_could_not_be_saved_has_to_be_done_again(tmp_path: Path) -> None:
    world = World(flat(nodes=1, gpus=1), "priority")
    world.run(a_job("a", checkpoint=Checkpointing()))
    world.submit(a_job("b", priority=5), after_ms=5_000)
    world.done("a", after_ms=1_000)
    world.done("b", after_ms=100)
    world.end("b", after_ms=2_000)
    world.done("a", after_ms=700)
    world.end("a", after_ms=4_000)
    assert read_trace(journal_of(world, tmp_path)).jobs[0].duration_ms == 4_000


MIXED = Cluster(
    (
        *(Node(f"a{i}", ("a",), 8, "A100", cpus_milli=64_000, memory_mb=256_000) for i in range(2)),
        *(Node(f"b{i}", ("b",), 4, "V100", cpus_milli=64_000, memory_mb=256_000) for i in range(2)),
    ),
    ("rack", "node"),
)


def a_trace_of_all_columns() -> Trace:
    jobs = []
    for i in range(40):
        more: dict[str, Any] = (
            {"gpus": 1, "gpu_milli": 500},
            {"gpus": 6, "gpus_per_node": 2, "user": "ann"},
            {"gpus": 4, "min_gpus": 2, "max_gpus": 8, "batch": "adaptive" if i % 2 else ""},
            {"gpus": 2, "tier": "premium", "gpu_type": "V100|A100", "model": "resnet50"},
            {"gpus": 8, "cpus_milli": 4_000, "memory_mb": 1_024, "priority": 3},
        )[i % 5]
        jobs.append(TraceJob(f"j{i}", i * 200_000, 400_000 + 70_001 * (i % 7), **more))
    return Trace("t", tuple(jobs))


@pytest.mark.parametrize("costs", [Costs(), NO_COSTS], ids=["costs", "none"])
@pytest.mark.parametrize("policy", ["tiresias-las", "srtf", "optimus", "gandiva"])
def test_the_journal_of_a_simulation_gives_its_trace_back(policy: str, costs: Costs, tmp_path: Path) -> None:
    """Whatever was stopped, moved, resized, shared or slowed by where it lay."""
    trace = a_trace_of_all_columns()
    simulation = Simulation(Setup(MIXED, trace, policy, "spread", costs), Journal())
    simulation.begin()
    simulation.go()
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in simulation.run.journal.lines()))
    assert outcome(simulation, policy).summary["goodput"] < (1.0 if costs is NO_COSTS else 0.95)
    assert read_trace(str(path)).jobs == trace.jobs


def test_members_of_an_array_are_jobs_of_their_own(world: World, tmp_path: Path) -> None:
    world.run(*array(a_job("sweep"), 3))
    world.end("sweep.1", after_ms=1_000)
    trace = read_trace(journal_of(world, tmp_path))
    assert [job.id for job in trace.jobs] == ["sweep.1"]


def test_a_torn_journal_is_refused_or_read_up_to_the_tear(world: World, tmp_path: Path) -> None:
    world.run(a_job("a"))
    world.end("a", after_ms=1_000)
    world.run(a_job("b"))
    path = Path(journal_of(world, tmp_path))
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:-2]) + whole[-2][:30] + b"\n" + whole[-1])
    tear = len(whole) - 1
    assert refusal(read_trace, str(path)).startswith(f":{tear}: not a journal record")
    trace = read_trace(str(path), skip_bad_rows=True)
    assert [job.id for job in trace.jobs] == ["a"]
    assert trace.dropped == 2
    assert f"the journal was read up to line {tear - 1}" in trace.notes


@given(data=st.data())
def test_a_file_that_was_damaged_is_read_or_refused_in_one_line_and_nothing_else(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = data.draw(st.sampled_from([*sorted(DATA.iterdir()), DATA.parent / "journal-v1.jsonl"])).read_bytes()
    start, end = sorted(data.draw(st.tuples(st.integers(0, len(whole)), st.integers(0, len(whole)))))
    path = tmp_path_factory.mktemp("damaged") / "file"
    path.write_bytes(whole[:start] + data.draw(st.binary(max_size=20)) + whole[end:])
    for read in (read_trace, read_trace_cluster, lambda path: read_trace(path, skip_bad_rows=True)):
        assert "\n" not in complaint(read, str(path))


def complaint(read: Callable[[str], object], path: str) -> str:
    """What a reader has against a file."""
    try:
        read(path)
    except PhalanxError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("content", ["[" * 100_000, '{"seq":' + "[" * 100_000, '[{"attempts":' + "[" * 100_000])
def test_nesting_without_end_is_refused(content: str, written: Write) -> None:
    assert "nested" in refusal(read_trace, written(content))


def test_a_trace_of_more_rows_than_memory_may_hold_is_refused_where_they_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx.simulate.traces.rows.ROWS_MAX", 3)
    trace = tmp_path / "trace.csv"
    rows = [f"{number},0,60,1" for number in range(4)]
    trace.write_text("\n".join(("job_id,submit_s,duration_s,gpus", *rows[:3])))
    assert len(read_trace(str(trace)).jobs) == 3
    trace.write_text("\n".join(("job_id,submit_s,duration_s,gpus", *rows)))
    assert "there are more than 3 lines" in refusal(read_trace, str(trace))


def test_a_parquet_of_more_rows_than_memory_may_hold_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    polars = pytest.importorskip("polars")
    trace = tmp_path / "trace.parquet"
    columns = {"job_id": ["1", "2"], "submit_s": [0, 0], "duration_s": [60, 60], "gpus": [1, 1]}
    polars.DataFrame(columns).write_parquet(trace)
    assert len(read_trace(str(trace)).jobs) == 2
    for module in ("rows", "formats.columns"):
        monkeypatch.setattr(f"phalanx.simulate.traces.{module}.ROWS_MAX", 1)
    assert "there are more than 1 rows" in refusal(read_trace, str(trace))


def test_a_log_of_philly_too_long_to_be_read_as_a_whole_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "cluster_job_log"
    attempt = '{"start_time":"2017-10-09 07:01:00","end_time":"2017-10-09 07:02:00","detail":[{"gpus":["gpu0"]}]}'
    job = '{"jobid":"%s","status":"Pass","submitted_time":"2017-10-09 07:00:00","vc":"v","user":"u","attempts":[' + (
        attempt + "]}"
    )
    log.write_text(f"[{job % 'a'},{job % 'b'}]")
    assert len(read_trace(str(log)).jobs) == 2
    with monkeypatch.context() as patch:
        for module in ("rows", "formats.philly"):
            patch.setattr(f"phalanx.simulate.traces.{module}.ROWS_MAX", 1)
        assert "there are more than 1 jobs" in refusal(read_trace, str(log))
    monkeypatch.setattr("phalanx.simulate.traces.formats.philly.BYTES_MAX", 100)
    assert "it is longer than 100 bytes" in refusal(read_trace, str(log))
