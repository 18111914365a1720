"""What Slurm's commands print is read as it is, and what is not understood does no harm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builders import a_job
from phalanx.backends.slurm.commands import SlurmDown, SlurmMissing, SlurmRefused, run, said
from phalanx.backends.slurm.endings import ending_of, start_failure
from phalanx.backends.slurm.jobs import GONE, SlurmJob, read_accounted, read_jobs
from phalanx.backends.slurm.nodes import cluster_of, fields, read_nodes
from phalanx.backends.slurm.orders import NodeYard, write_orders
from phalanx.backends.slurm.request import sbatch_arguments, shares_of
from phalanx.backends.slurm.script import batch_script
from phalanx.cluster.cluster import Health, Node
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import ActionId, Start
from phalanx.workload.formats.hostlist import HostlistError, expand, numbers
from phalanx.workload.job import Execution

NODE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=2 CPUEfctv=64 CPUTot=64 CPULoad=4.03 "
    "AvailableFeatures=ib,fast ActiveFeatures=ib,fast Gres=gpu:h100:4(S:0-1) GresDrain=N/A "
    "GresUsed=gpu:h100:2(IDX:0,3) NodeAddr=10.0.0.7 NodeHostName=n1 Version=22.05.8 OS=Linux 6.1 #1 SMP "
    "RealMemory=64000 AllocMem=1000 State={state} ThreadsPerCore=1 Partitions=gpu,all  "
    "BootTime=2026-11-19T00:52:12 Reason={reason} [root@2026-11-19T01:00:00]"
)


def node(state: str = "MIXED", reason: str = "none"):  # type: ignore[no-untyped-def]
    return next(read_nodes(NODE.format(state=state, reason=reason)))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("n[1-3,07],login", ("n1", "n2", "n3", "n07", "login")),
        ("r[1-2]n[08-09]-ib", ("r1n08-ib", "r1n09-ib", "r2n08-ib", "r2n09-ib")),
        ("(null)", ()),
        ("", ()),
    ],
)
def test_a_list_of_names_is_expanded(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["n[1-", "n[a-b]", "n[1-99999999999]", "n]1["])
def test_what_is_no_list_of_names_is_refused(text: str) -> None:
    with pytest.raises(HostlistError):
        expand(text)


def test_numbers_of_devices_are_read() -> None:
    assert numbers("0-2,5") == (0, 1, 2, 5)
    assert numbers("N/A") == ()


def test_a_node_is_read_with_what_is_used_of_it() -> None:
    found = node()
    assert (found.gpus, found.gpu_type, found.cpus, found.memory_mb) == (4, "h100", 64, 64000)
    assert (found.used_devices, found.used_gpus, found.used_cpus, found.used_memory_mb) == ((0, 3), 2, 2, 1000)
    assert (found.address, found.features, found.partitions) == ("10.0.0.7", ("ib", "fast"), ("gpu", "all"))


@pytest.mark.parametrize(
    ("state", "health"),
    [
        ("IDLE", Health.HEALTHY),
        ("MIXED+PLANNED", Health.HEALTHY),
        ("IDLE*", Health.SUSPECT),
        ("UNKNOWN", Health.SUSPECT),
        ("ALLOCATED+NOT_RESPONDING", Health.SUSPECT),
        ("MIXED+DRAIN", Health.DRAINING),
        ("IDLE+MAINT", Health.DRAINING),
        ("DOWN*", Health.FAILED),
        ("DOWN+DRAIN", Health.FAILED),
        ("SOMETHING_NEW", Health.HEALTHY),
    ],
)
def test_the_state_of_a_node_means_its_health(state: str, health: Health) -> None:
    assert node(state).health is health


def test_the_reason_of_an_operator_is_told() -> None:
    assert "fan broken" in node("IDLE+DRAIN", "fan broken").told


def test_a_cluster_is_made_of_nodes_and_the_catalogue() -> None:
    described = cluster_of([node()]).nodes[0]
    assert (described.gpu_type, described.gpus, described.cpus_milli) == ("H100", 4, 64_000)
    assert ("slurm/feature-ib", "true") in described.labels


def test_lines_that_are_no_nodes_are_passed_over() -> None:
    assert list(read_nodes("No nodes in the system\n\nslurm_load_node error: x")) == []


def test_a_value_may_have_blanks_and_the_first_of_a_name_counts() -> None:
    assert fields("JobId=1 OS=Linux 6 #1 State=RUNNING Comment=x State=FAKE")["State"] == "RUNNING"


def test_jobs_are_read_and_a_comment_may_have_any_sign() -> None:
    found = read_jobs("7|7|RUNNING|n[0-1]|None|a|b\nnot a job\n8|8|PENDING||Priority|(null)\n")
    assert found["7"] == SlurmJob("7", "RUNNING", ("n0", "n1"), "None", "a|b")
    assert found["8"].is_pending
    assert found["8"].comment == ""


def test_a_hetjob_is_one_job_that_is_as_far_as_its_last_part() -> None:
    found = read_jobs("15|15+0|COMPLETED|n0|None|c\n16|15+1|RUNNING|n2|None|(null)\n")
    assert list(found) == ["15"]
    assert (found["15"].state, found["15"].nodes) == ("RUNNING", ("n0", "n2"))


@pytest.mark.parametrize("state", ["COMPLETING", "RUNNING", "PENDING", "CONFIGURING", "SUSPENDED"])
def test_a_job_that_may_hold_devices_is_not_over(state: str) -> None:
    assert not SlurmJob("1", state).is_over


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", GONE, "SOMETHING_NEW"])
def test_a_job_in_any_other_state_is_over(state: str) -> None:
    assert SlurmJob("1", state).is_over


@pytest.mark.parametrize(
    ("state", "outcome", "word"),
    [
        ("NODE_FAIL", "lost", "a node failed"),
        ("PREEMPTED", "lost", "preempted"),
        ("TIMEOUT", "failed", "timeout: "),
        ("OUT_OF_MEMORY", "failed", "oom: "),
        ("CANCELLED", "failed", "not by phalanx"),
        (GONE, "lost", "does not know job 7 any more"),
        ("FAILED", "lost", "was killed"),
    ],
)
def test_an_end_of_which_nodes_tell_nothing_is_told_by_slurm(state: str, outcome: str, word: str) -> None:
    ending = ending_of({"n0": None}, SlurmJob("7", state))
    assert ending["outcome"] == outcome
    assert word in ending["reason"]


def test_a_start_of_which_nothing_was_heard_has_failed_with_what_slurm_wrote() -> None:
    why = start_failure({"n0": None}, ActionId(1, "a", 1, 0), SlurmJob("7", "FAILED"), "no such file on node n0")
    assert why is not None
    assert why["retryable"]
    assert why["node"] == "n0"
    assert "no such file on node n0" in why["reason"]


def test_complaints_become_one_line() -> None:
    told = "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed: No\n"
    assert said(told) == "invalid partition specified: x; Batch job submission failed: No"


def test_failures_that_pass_are_told_apart_from_refusals() -> None:
    with pytest.raises(SlurmDown):
        run(["sh", "-c", "echo 'squeue: error: Unable to contact slurm controller (connect failure)' >&2; exit 1"])
    with pytest.raises(SlurmDown):
        run(["sh", "-c", "echo 'error: Munge encode failed: Failed to access' >&2; exit 1"])
    with pytest.raises(SlurmRefused):
        run(["sh", "-c", "echo 'error: Invalid account or account/partition combination' >&2; exit 1"])
    with pytest.raises(SlurmMissing):
        run(["/no/such/command"])


def test_commands_get_nothing_of_the_servers_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_TOKEN", "secret")
    assert "secret" not in run(["env"])


def placed(*slots: tuple[str, tuple[int, ...]]) -> Placement:
    return Placement(tuple(Slot(rank, "worker", node, devices) for rank, (node, devices) in enumerate(slots)))


NODES = {name: Node(name, (), 4, cpus_milli=64_000, memory_mb=64_000) for name in ("n0", "n1", "n2")}


def test_nodes_with_as_many_gpus_are_one_part_of_a_request() -> None:
    job = a_job("a", 2, 2)
    shares = shares_of(job, placed(("n0", (0, 1)), ("n2", (2, 3))), NODES)
    argv = sbatch_arguments(job, shares, "c", "/f", [])
    assert "--nodelist=n0,n2" in argv
    assert "--gres=gpu:2" in argv
    assert "--mem=32000M" in argv
    assert ":" not in argv


def test_nodes_with_different_counts_are_parts_of_a_hetjob() -> None:
    job = a_job("a", 1, 4)
    shares = shares_of(job, placed(("n0", (0,)), ("n0", (1,)), ("n0", (2,)), ("n1", (0,))), NODES)
    argv = sbatch_arguments(job, shares, "c", "/f", [])
    assert [share.gpus for share in shares] == [3, 1]
    assert argv[argv.index(":") + 1 :][0] == "--nodelist=n1"
    assert "--het-group=0-1" in batch_script("/f", len(shares))


def test_a_name_of_a_job_reaches_no_option_and_no_shell() -> None:
    job = a_job("a", name="x --uid=0; rm -rf / `id` $(id)\n")
    argv = sbatch_arguments(job, shares_of(job, placed(("n0", (0,))), NODES), "c", "/a b'c", [])
    name = next(each for each in argv if each.startswith("--job-name="))
    assert set(name.removeprefix("--job-name=")) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.")
    assert "'/a b'\"'\"'c'" in batch_script("/a b'c", 1)


def test_labels_of_a_job_choose_partition_and_account_and_no_other_option() -> None:
    labels = (("slurm/partition", "gpu"), ("slurm/account", "ml"), ("slurm/uid", "0"))
    job = a_job("a", labels=labels, max_run_ms=3_600_000)
    argv = sbatch_arguments(job, shares_of(job, placed(("n0", (0,))), NODES), "c", "/f", [])
    assert {"--partition=gpu", "--account=ml", "--time=62"} <= set(argv)
    assert not any("uid" in each for each in argv)


def test_a_job_of_another_user_is_submitted_as_that_user() -> None:
    job = a_job("a")
    argv = sbatch_arguments(job, shares_of(job, placed(("n0", (0,))), NODES), "c", "/f", [1000, 100])
    assert {"--uid=1000", "--gid=100"} <= set(argv)


def test_the_order_of_a_node_has_its_tasks_and_no_others(tmp_path: Path) -> None:
    job = a_job("a", 2, 3, execution=Execution(("true",)))
    start = Start(ActionId(1, "a", 1, 0), placed(("n0", (0, 1)), ("n1", (0, 1)), ("n0", (2, 3))))
    yard = NodeYard(tmp_path)
    write_orders(yard, start, job, {"n0": "10.0.0.7"}, 0)
    found = {name: replace(yard, node=name).folder("a", 1).order() for name in ("n0", "n1")}
    tasks = {name: order["tasks"] for name, order in found.items() if order is not None}
    assert {name: [task["rank"] for task in each] for name, each in tasks.items()} == {"n0": [0, 2], "n1": [1]}
    assert {task["env"]["WORLD_SIZE"] for each in tasks.values() for task in each} == {"3"}
    assert {task["env"]["MASTER_ADDR"] for each in tasks.values() for task in each} == {"10.0.0.7"}


def test_sacct_tells_of_jobs_and_hetjobs_and_not_of_their_steps() -> None:
    found = read_accounted(
        "7|NODE_FAIL|n1\n7.batch|CANCELLED|n1\n8|CANCELLED by 0|n[1-2]\n9+0|COMPLETED|n1\n9+1|OUT_OF_MEMORY|n2\n|\n"
    )
    assert {job: (each.state, each.nodes) for job, each in found.items()} == {
        "7": ("NODE_FAIL", ("n1",)),
        "8": ("CANCELLED", ("n1", "n2")),
        "9": ("OUT_OF_MEMORY", ("n1", "n2")),
    }
