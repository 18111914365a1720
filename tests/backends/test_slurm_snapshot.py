"""A Slurm cluster read from what its commands print: on texts recorded elsewhere, and on a real cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.backends.slurm.shadow import Look, look_at, report
from phalanx.backends.slurm.snapshot import SnapshotError, Taken, read_folder
from phalanx.cli.main import cli, run
from phalanx.engine.state.records import JobState
from phalanx.engine.turn import replay
from phalanx.engine.why.why import why
from phalanx.protocol.reason import Reason
from phalanx.words.reason import because
from slurm_cluster import shared_cluster

POLICY = "priority:backfill=easy"
TAKEN_MS = 1_795_053_600_000
NODE = (
    "NodeName={name} CPUAlloc=2 CPUEfctv=64 CPUTot=64 ActiveFeatures=ib Gres=gpu:h100:4 "
    "GresUsed=gpu:h100:{used}(IDX:{index}) NodeAddr={name} RealMemory=64000 AllocMem=1000 State={state} "
    "Partitions=gpu Reason={reason}"
)
JOB = (
    "JobId={id} JobName={name} UserId=ann(1000) GroupId=ann(1000) Priority={priority} Nice=0 Account=ml QOS=normal "
    "JobState={state} Reason={reason} Dependency={after} TimeLimit=01:00:00 SubmitTime=2026-11-19T01:00:00 "
    "EligibleTime=2026-11-19T01:00:00 StartTime={start} Partition=gpu ReqNodeList=(null) ExcNodeList=(null) "
    "NodeList={nodes} NumNodes={count} NumCPUs=2 NumTasks=1 CPUs/Task=1 TRES=cpu=2,mem=2000M,node=1 {devices} "
    "MinMemoryNode=1000M Features=(null) TresPerNode=gres:gpu:{gpus}"
)


def node(name: str, used: int = 0, index: str = "N/A", state: str = "IDLE", reason: str = "none") -> str:
    return NODE.format(name=name, used=used, index=index, state=state, reason=reason)


def pending(
    id_: str, gpus: int, reason: str = "Priority", count: int = 1, priority: int = 5, after: str = "(null)"
) -> str:
    return JOB.format(
        id=id_,
        name="wants",
        priority=priority,
        state="PENDING",
        reason=reason,
        after=after,
        start="Unknown",
        nodes="(null)",
        count=count,
        devices="",
        gpus=gpus,
    )


def running(id_: str, name: str, index: str, gpus: int) -> str:
    devices = f"JOB_GRES=gpu:h100:{gpus}   Nodes={name} CPU_IDs=0-1 Mem=1000 GRES=gpu:h100:{gpus}(IDX:{index})"
    return JOB.format(
        id=id_,
        name="has",
        priority=9,
        state="RUNNING",
        reason="None",
        after="(null)",
        start="2026-11-19T01:10:00",
        nodes=name,
        count=1,
        devices=devices,
        gpus=gpus,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "taken.txt").write_text(str(TAKEN_MS))
    return tmp_path


def taken(folder: Path, nodes: list[str], jobs: list[str]) -> Taken:
    (folder / "nodes.txt").write_text("\n".join(nodes) + "\n")
    (folder / "jobs.txt").write_text("\n".join(jobs) + "\n")
    return read_folder(folder, POLICY)


def test_what_runs_has_its_devices_and_what_waits_is_explained(folder: Path) -> None:
    found = taken(
        folder, [node("n0", 3, "0,2-3"), node("n1")], [running("7", "n0", "0,2-3", 3), pending("8", 4, count=2)]
    )
    attempt = found.state.record("7").attempt
    assert attempt is not None
    assert attempt.placement.slots[0].devices == (0, 2, 3)
    explained = why(found.state, "8")
    assert explained.reason is Reason.GPUS
    assert found.reasons == {"8": "Priority"}
    assert not found.left_out


def test_a_job_that_slurm_keeps_back_though_it_fits_is_one_that_phalanx_would_start(folder: Path) -> None:
    found = taken(folder, [node("n0")], [pending("8", 4)])
    assert look_at(found, TAKEN_MS).would_start == ("8",)


def test_no_running_job_is_stopped_for_one_that_waits(folder: Path) -> None:
    found = taken(folder, [node("n0", 2, "0-1")], [running("7", "n0", "0-1", 2), pending("8", 4, priority=99)])
    assert look_at(found, TAKEN_MS).would_start == ()


def test_a_pending_job_is_not_placed_on_nodes_that_it_excludes(folder: Path) -> None:
    asked = pending("8", 4).replace("ExcNodeList=(null)", "ExcNodeList=n[0-1]")
    found = taken(folder, [node("n0"), node("n1"), node("n2", 4, "0-3")], [asked])
    told = because(why(found.state, "8"))
    assert "(of 3 nodes: 2 that it excludes by phalanx/node=n0,n1, 1 without enough free GPUs)" in told


def test_jobs_that_a_rule_of_slurms_keeps_back_are_held(folder: Path) -> None:
    found = taken(
        folder, [node("n0")], [pending("8", 1, reason="QOSMaxGRESPerUser"), pending("9", 1, after="afterok:8")]
    )
    assert why(found.state, "8").reason is Reason.HELD
    assert why(found.state, "9").reason is Reason.DEPENDENCY


def test_nodes_that_are_drained_take_nothing(folder: Path) -> None:
    found = taken(folder, [node("n0", state="IDLE+DRAIN", reason="fan broken")], [pending("8", 1)])
    assert why(found.state, "8").reason is Reason.UNHEALTHY


def test_gpus_of_jobs_that_could_not_be_read_are_used(folder: Path) -> None:
    found = taken(folder, [node("n0", 3, "0-2")], ["JobId=5 JobState=RUNNING NumNodes=x", pending("8", 2)])
    assert sum(found.left_out.values()) == 1
    assert why(found.state, "8").reason is Reason.GPUS


def test_pending_members_of_an_array_are_jobs_of_their_own(folder: Path) -> None:
    line = pending("8", 1).replace("JobId=8 ", "JobId=8 ArrayJobId=8 ArrayTaskId=3-4,9%2 ")
    assert sorted(taken(folder, [node("n0")], [line]).reasons) == ["8_3", "8_4", "8_9"]


def test_the_journal_of_a_snapshot_replays_to_the_same_state(folder: Path) -> None:
    found = taken(folder, [node("n0", 1, "3")], [running("7", "n0", "3", 1), pending("8", 4)])
    again = replay(found.journal)
    assert again.record("7").state is JobState.RUNNING
    assert again.record("8").state is JobState.WAITING


ACCOUNTED = (
    "JobID|Submit|Start|End|Elapsed|State|AllocTRES|User|Account|Partition|NNodes|Priority|Timelimit|QOS\n"
    "1|2026-11-18T01:00:00|x|x|01:00:00|COMPLETED|gres/gpu=4,node=1|ann|ml|gpu|1|10|02:00:00|normal\n"
    "1.batch|2026-11-18T01:00:00|x|x|01:00:00|COMPLETED|gres/gpu=4,node=1|||||||\n"
    "2|2026-11-18T01:01:00|x|x|02:00:00|COMPLETED|gres/gpu=8,node=2|ann|ml|gpu|2|10|02:00:00|normal\n"
)


def test_policies_are_compared_on_the_history_of_a_snapshot(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken(folder, [node("n0"), node("n1")], [])
    (folder / "trace.txt").write_text(ACCOUNTED)
    assert run(cli, ["slurm", "snapshot", str(folder), "--recorded"]) == 0
    capsys.readouterr()
    files = ["--cluster", str(folder / "cluster.yaml"), "--trace", str(folder / "trace.txt")]
    assert run(cli, ["compare", *files, "--policy", "fifo", "--policy", "tiresias-las", "-o", "json"]) == 0
    assert [each["jobs"]["completed"] for each in json.loads(capsys.readouterr().out)] == [2, 2]


def test_a_folder_without_texts_says_what_belongs_there(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="scontrol show node"):
        read_folder(tmp_path, POLICY)


def test_a_shadow_reports_when_each_would_have_started() -> None:
    looks = [
        Look(0, (), ("a", "b", "c"), ("a",)),
        Look(60_000, ("b",), ("a", "c"), ("a",)),
        Look(120_000, ("a", "b"), ("c",), ()),
    ]
    found = report(looks)
    assert (found.looks, found.seen_pending, found.started) == (3, 3, 2)
    assert (found.slurm_wait_s, found.phalanx_wait_s) == (90.0, 30.0)
    assert (found.earlier, found.later) == (1, 1)


@pytest.mark.needs("slurm")
def test_a_snapshot_of_a_real_cluster_explains_its_pending_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm = shared_cluster()
    first = slurm.submit("sleep 600", "--gres=gpu:3", "--nodelist=n0", "--mem=100", "--time=60")
    slurm.until(lambda: slurm.state(first) == "RUNNING", "the first job runs")
    wide = slurm.submit("sleep 600", "--nodes=2", "--gres=gpu:4", "--mem=100", "--time=60")
    later = slurm.submit("sleep 600", f"--dependency=afterok:{first}", "--gres=gpu:1", "--mem=100")
    try:
        assert run(cli, ["slurm", "snapshot", str(tmp_path / "s"), "-o", "json"]) == 0
        rows = {row["job"]: row for row in json.loads(capsys.readouterr().out)}
        assert (rows[wide]["reason"], rows[later]["reason"]) == ("gpus", "dependency")
        assert run(cli, ["slurm", "shadow", str(tmp_path / "t"), "--for", "1s", "--every", "1s", "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["seen_pending"] == 2
    finally:
        slurm.clear()
    assert run(cli, ["why", wide, "--state", str(tmp_path / "s" / "state.jsonl"), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["reason"] == "gpus"
    assert "8 GPUs and 5 are free" in told["why"]
