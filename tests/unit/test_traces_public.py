"""Public traces in the forms they were published in: Helios, Acme, Alibaba 2020 and 2023, and Slurm's accounting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.cluster.cluster import Cluster, Node
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.studies.batch import run_one
from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces.describe import describe
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.formats.columns import read_csv, write_csv
from phalanx.simulate.traces.load import work_gpu_ms
from phalanx.simulate.traces.open import read_trace, read_trace_cluster

DATA = Path(__file__).parents[1] / "data/traces"

Read = Callable[..., Trace]

HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
7,u1,vc9,8,32,1,COMPLETED,2020-04-01 00:00:11,2020-04-01 00:00:12,2020-04-01 00:10:12,600,1
8,u2,vc9,32,128,4,FAILED,2020-04-01 00:01:11,2020-04-01 00:03:12,2020-04-01 00:03:42,30,121
9,u2,vcA,0,4,1,COMPLETED,2020-04-01 00:01:12,2020-04-01 00:01:12,2020-04-01 00:01:42,30,0
10,u3,vcA,1,4,1,CANCELLED,2020-04-01 00:02:11,None,2020-04-01 00:03:00,0,49
11,u3,vcA,1,4,1,TIMEOUT,2020-04-01 00:02:11,2020-04-01 00:02:11,2020-04-01 00:03:11,60,0
"""

KALOS = """\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,type,state,submit_time,start_time,end_time,fail_time,duration,queue
k1,u1,8,64,960,1000,Other,FAILED,2023-05-17 11:00:00+00:00,2023-05-17 11:00:10+00:00,2023-05-17 11:00:18+00:00,,18,10.0
k2,u1,1,8,96,100,Eval,COMPLETED,2023-05-17 11:10:00+00:00,2023-05-17 11:10:00+00:00,2023-05-17 11:11:00+00:00,,60,0.0
k3,u2,1,8,96,100,Eval,CANCELLED,2023-05-17 11:20:00+00:00,,2023-05-17 11:21:00+00:00,,60,60.0
"""

ACME = (DATA / "acme.csv").read_text()

SACCT = (DATA / "sacct.txt").read_text()

PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,460,,LS,Running,100,1100,110
p1,6000,12288,1,1000,V100M16|V100M32,BE,Succeeded,200,400,250
p2,6000,12288,8,1000,,BE,Failed,300,400,300
p3,6000,12288,0,0,,BE,Succeeded,300,400,300
p4,6000,12288,1,1000,,BE,Pending,300,400,
"""

NODES = """\
sn,cpu_milli,memory_mib,gpu,model
n0,64000,262144,2,P100
n1,96000,786432,8,V100M32
n2,32000,131072,0,
"""

TASKS = """\
j1,worker,4,Terminated,1000.0,1600.0,600,29.3,50,T4
j1,ps,1,Terminated,990.0,1600.0,600,29.3,,
j2,tensorflow,1,Failed,2000.0,2100.0,600,29.3,25,MISC
j3,worker,2,Terminated,2000.0,2100.0,600,29.3,200,V100
j4,worker,2,Running,2000.0,,600,29.3,100,V100
"""

JOBS = """\
j1,i1,alice,Terminated,900.0,1600.0
j2,i2,bob,Failed,1999.0,2100.0
"""


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def reader(text: str, name: str = "trace.csv", skip_bad_rows: bool = False) -> Trace:
        path = tmp_path / name
        path.write_text(text)
        return read_trace(str(path), skip_bad_rows)

    return reader


def test_a_helios_log_is_read_by_virtual_cluster_without_jobs_that_never_ran_or_have_no_gpus(read: Read) -> None:
    trace = read(HELIOS)
    assert [(job.id, job.submit_ms, job.duration_ms, job.gpus, job.queue, job.ending) for job in trace.jobs] == [
        ("7", 0, 600_000, 8, "vc9", Ending.COMPLETED),
        ("8", 60_000, 30_000, 32, "vc9", Ending.FAILED),
        ("11", 120_000, 60_000, 1, "vcA", Ending.FAILED),
    ]
    assert trace.jobs[1].gpus_per_node == 8
    assert trace.notes == ("jobs without GPUs, left out: 1", "jobs that never ran, left out: 1")


def test_an_acme_log_is_read_with_its_zones_and_what_jobs_are_for(read: Read) -> None:
    trace = read(ACME)
    assert [(job.id, job.submit_ms, job.gpus_per_node, job.model) for job in trace.jobs] == [
        ("a1", 0, 8, "pretrain"),
        ("a2", 30_000, 0, "evaluation"),
    ]


def test_what_acme_and_helios_call_queue_is_time_that_was_waited_and_no_queue(read: Read) -> None:
    assert {job.queue for job in read(ACME).jobs} == {"default"}
    assert [job.duration_ms for job in read(ACME).jobs] == [3_600_000, 60_000]
    assert {job.queue for job in read(HELIOS).jobs} == {"vc9", "vcA"}


def test_durations_of_kalos_leave_out_the_wait_that_its_log_counts_in(read: Read) -> None:
    trace = read(KALOS)
    assert [(job.id, job.duration_ms, job.queue) for job in trace.jobs] == [
        ("k1", 8_000, "default"),
        ("k2", 60_000, "default"),
    ]
    assert trace.notes == (
        "jobs that never ran, left out: 1",
        "durations that are not the time from start to end, as where they include the wait, read as that time: 1",
    )


def test_a_log_without_starts_goes_by_its_durations(read: Read) -> None:
    rows = [line.split(",") for line in KALOS.splitlines()[:3]]
    without = "\n".join(",".join(row[:9] + row[12:]) for row in rows)
    assert [job.duration_ms for job in read(without).jobs] == [18_000, 60_000]


def test_sacct_is_read_without_steps_and_with_arrays_het_jobs_and_typed_gpus(read: Read) -> None:
    trace = read(SACCT)
    assert [(job.id, job.submit_ms, job.duration_ms, job.gpus, job.gpu_type, job.ending) for job in trace.jobs] == [
        ("100", 0, 3_600_000, 8, "A100-80", Ending.COMPLETED),
        ("101_3", 1000, 93_605_000, 1, "", Ending.CANCELLED),
        ("102+1", 2000, 60_000, 2, "", Ending.FAILED),
    ]
    first = trace.jobs[0]
    assert (first.queue, first.user, first.priority, first.gpus_per_node) == ("vision", "ann", 4294, 4)
    assert trace.notes == ("jobs that had not ended, left out: 1", "jobs without GPUs, left out: 1")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("nvidia_a100_80gb_pcie", "A100-80"),
        ("nvidia_a100-sxm4-40gb", "A100-40"),
        ("a100", "A100-80"),
        ("nvidia_h100_80gb_hbm3", "H100"),
        ("nvidia_h100_pcie", "H100"),
        ("nvidia_h200", "H200"),
        ("tesla_v100-pcie-32gb", "V100-32"),
        ("tesla_v100-sxm2-16gb", "V100"),
        ("tesla_p100-pcie-16gb", "P100"),
        ("tesla_t4", "T4"),
        ("nvidia_l40s", "L40S"),
        ("ours", "OURS"),
    ],
)
def test_types_that_slurm_takes_from_the_driver_are_those_of_the_catalogue(read: Read, written: str, name: str) -> None:
    assert read(SACCT.replace("gres/gpu:a100=8", f"gres/gpu:{written}=8")).jobs[0].gpu_type == name


@pytest.mark.parametrize(
    ("state", "note"), [("PENDING", "that had not ended"), ("CANCELLED by 1000", "that never ran")]
)
def test_members_of_an_array_that_never_started_come_in_one_row_and_are_left_out(
    read: Read, state: str, note: str
) -> None:
    waits = (
        f"104_[5-9%2]|ann|vision|gpu|2024-01-01T10:00:05|Unknown|Unknown|00:00:00|02:00:00|{state}||gres/gpu=1|1|1|0:0"
    )
    trace = read(f"{SACCT.rstrip()}\n{waits}\n")
    assert trace.jobs == read(SACCT).jobs
    assert any(note in each for each in trace.notes)


def test_a_priority_that_is_longer_than_any_of_slurms_is_none(read: Read) -> None:
    assert read(SACCT.replace("|4294|", f"|{'9' * 5000}|")).jobs[0].priority == 0


def test_a_list_of_pods_without_times_is_refused_for_the_times_it_lacks(read: Read) -> None:
    bare = "\n".join(",".join(line.split(",")[:5]) for line in PODS.splitlines())
    with pytest.raises(TraceError, match="expected a column 'creation_time'"):
        read(bare)


def test_a_file_may_be_given_as_a_path(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("job_id,submit_s,duration_s,gpus\na,0,soon,1\n")
    with pytest.raises(TraceError, match="column 'duration_s': expected seconds"):
        read_trace(tmp_path / "t.csv")
    with pytest.raises(TraceError, match="No such file"):
        read_trace_cluster(tmp_path / "none.yaml")


def test_slices_of_gpus_are_counted_as_whole_ones_and_noted(read: Read) -> None:
    trace = read(SACCT.replace("gres/gpu:a100=8", "gres/gpu:a100_3g.40gb=8"))
    assert (trace.jobs[0].gpu_type, trace.jobs[0].gpus) == ("A100-80", 8)
    assert "slices of GPUs (MIG), counted as whole GPUs: 1" in trace.notes
    assert read(SACCT.replace("gres/gpu:a100=8", "gres/gpu:1g.10gb=8")).jobs[0].gpu_type == ""


def test_a_job_finds_its_type_on_a_cluster_that_calls_it_by_another_name() -> None:
    cluster = Cluster((Node("new", (), 8, "A100-80"), Node("old", (), 8, "V100M32"), Node("own", (), 8, "OURS")))
    jobs = tuple(TraceJob(name, 0, 1000, 1, gpu_type=name) for name in ("A100", "V100-32", "OURS"))
    result = run_one(Setup(cluster, Trace("t", jobs), "fifo"), "fifo")
    assert {job.job_id: job.nodes for job in result.jobs} == {"A100": ("new",), "V100-32": ("old",), "OURS": ("own",)}


def test_parts_of_several_gpus_in_one_pod_are_read_as_whole_ones_and_noted(read: Read) -> None:
    trace = read(PODS.replace("p2,6000,12288,8,1000", "p2,6000,12288,2,500"))
    assert (trace.jobs[2].gpus, trace.jobs[2].gpu_milli) == (2, 0)
    assert trace.notes[-1] == "parts of several GPUs in one pod, read as whole GPUs: 1"


def test_a_part_beside_whole_gpus_is_read_as_one_more_and_noted(read: Read) -> None:
    trace = read(TASKS.replace("29.3,200,V100", "29.3,150,V100"), "pai_task_table.csv")
    assert [(job.gpus, job.gpu_milli) for job in trace.jobs if job.id == "j3"] == [(4, 0)]
    assert "tasks with a part beside whole GPUs, read with one GPU more: 1" in trace.notes


def test_openb_pods_have_parts_of_gpus_models_and_hosts(read: Read) -> None:
    trace = read(PODS)
    p0, p1, p2 = trace.jobs
    assert (p0.submit_ms, p0.duration_ms, p0.gpu_milli, p0.queue, p0.cpus_milli) == (0, 990_000, 460, "LS", 12_000)
    assert (p1.gpu_type, p1.gpu_milli, p1.duration_ms) == ("V100M16|V100M32", 0, 150_000)
    assert (p2.gpus, p2.ending) == (8, Ending.FAILED)
    assert trace.notes == ("jobs without GPUs, left out: 1", "jobs that were never scheduled, left out: 1")
    told = describe(trace)
    assert (told["shared"], told["gpu_types"]) == (1, {"V100M16|V100M32": 1})
    assert work_gpu_ms(trace) == 990_000 * 460 // 1000 + 150_000 + 800_000


def test_openb_pods_run_on_openb_nodes_two_on_one_gpu_where_they_fit(tmp_path: Path, read: Read) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    cluster = read_trace_cluster(str(tmp_path / "nodes.csv"))
    assert [(node.name, node.gpus, node.gpu_type, node.cpus_milli) for node in cluster.nodes] == [
        ("n0", 2, "P100", 64_000),
        ("n1", 8, "V100M32", 96_000),
        ("n2", 0, "", 32_000),
    ]
    result = run_one(Setup(cluster, read(PODS), "fifo:skip=true"), "fifo")
    assert result.summary["jobs"]["completed"] == 2
    assert next(job for job in result.jobs if job.job_id == "p1").nodes == ("n1",)
    shared = PODS.replace(
        "p1,6000,12288,1,1000,V100M16|V100M32,BE,Succeeded,200", "p1,6000,12288,1,500,,BE,Succeeded,110"
    )
    simulation = Simulation(Setup(cluster, read(shared), "fifo:skip=true"))
    simulation.begin()
    simulation.go(until_ms=150_000)
    slots = [record.attempt.placement.slots[0] for record in simulation.run.state.jobs.values() if record.attempt]
    assert len({(slot.node, slot.devices) for slot in slots}) == 1 < len(slots)


def test_alibaba_2020_gathers_tasks_into_jobs_and_finds_submissions_beside(tmp_path: Path, read: Read) -> None:
    (tmp_path / "pai_job_table.csv").write_text(JOBS)
    trace = read(TASKS, "pai_task_table.csv")
    j1, j2, j3 = trace.jobs
    assert (j1.submit_ms, j1.duration_ms, j1.gpus, j1.gpu_milli, j1.gpu_type, j1.user) == (
        0,
        610_000,
        4,
        500,
        "T4",
        "alice",
    )
    assert (j2.submit_ms, j2.gpu_milli, j2.gpu_type, j2.ending) == (1_099_000, 250, "", Ending.FAILED)
    assert (j3.gpus, j3.gpus_per_node, j3.gpu_milli) == (4, 2, 0)
    assert "jobs that had not ended, or of which no times are known, left out: 1" in trace.notes


def test_alibaba_2020_machines_are_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "machines.csv").write_text(
        "machine,gpu_type,cap_cpu,cap_mem,cap_gpu\nm0,T4,96,512,2\nm1,CPU,96,512,0\n"
    )
    cluster = read_trace_cluster(str(tmp_path / "machines.csv"))
    assert [(node.name, node.gpus, node.gpu_type) for node in cluster.nodes] == [("m0", 2, "T4"), ("m1", 0, "")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            HELIOS.replace("TIMEOUT", "LATE"),
            ":6: column 'state': expected a state of Slurm such as COMPLETED, got LATE",
        ),
        (SACCT.replace("1-02:00:05", "soon"), ":5: column 'Elapsed': expected a time such as 1-02:03:04, got soon"),
        (SACCT.replace("102+1", "x1"), ":6: column 'JobID': expected an id such as 4821, 4821_7 or 4821+1, got x1"),
        (SACCT.replace("1-02:00:05", "9" * 18 + "-02:00:05"), ":5: column 'Elapsed': expected a time such as"),
        (
            SACCT.replace("gres/gpu=8,mem", "gres/gpu=8" + "0" * 400 + ",mem"),
            ":2: column 'AllocTRES': expected resources",
        ),
        (PODS.replace("460", "1460"), ":2: column 'gpu_milli': expected thousandths of a GPU, 0 to 1,000, got 1460"),
        (PODS.replace("Failed,300,400,300", "Failed,300,200,300"), ":4: column 'deletion_time': expected a time after"),
        (KALOS.replace("11:00:18", "10:00:18"), ":2: column 'end_time': expected a time after start_time"),
        (TASKS.replace("Failed,2000.0", "Failed,2200.0"), ":3: column 'end_time': expected a time after start_time"),
        (TASKS.replace("50,T4", "half,T4"), ":1: column 'plan_gpu': expected percent of a GPU, got half"),
        (
            ACME.replace("+08:00,2023-04-08 08:00:10", "x,2023-04-08 08:00:10"),
            ":2: column 'submit_time': expected a time",
        ),
    ],
)
def test_a_bad_row_is_named_by_its_line_and_can_be_skipped(read: Read, text: str, told: str) -> None:
    with pytest.raises(TraceError) as error:
        read(text)
    assert told in str(error.value)
    trace = read(text, skip_bad_rows=True)
    assert trace.dropped == 1
    assert [told in row for row in trace.bad_rows] == [True]


def test_parts_of_gpus_and_hosts_survive_our_own_columns(tmp_path: Path, read: Read) -> None:
    trace = read(PODS)
    write_csv(trace, str(tmp_path / "ours.csv"))
    assert read_csv(str(tmp_path / "ours.csv")).jobs == trace.jobs
