"""What is particular to Slurm: it chooses devices, has other users, operators and moods."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from programs import COMMANDS, Program
from rig import Rig
from slurm_subject import SlurmSubject

from builders import a_job
from phalanx.backends.local.logs.files import logs_in
from phalanx.backends.slurm import attempts, backend, jobs, script
from phalanx.backends.slurm.commands import SlurmDown, SlurmRefused, run
from phalanx.backends.slurm.orders import NodeYard
from phalanx.cluster.cluster import Health
from phalanx.engine.state.records import JobState
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import ActionId, Start, Stop
from phalanx.protocol.event import DevicesAssigned, Done, Event, Failed, ForeignUse, NodeHealthChanged
from phalanx.workload.job import UnixIdentity
from slurm_cluster import SlurmCluster, end_shared, shared_cluster

pytestmark = pytest.mark.needs("slurm")

NOBODY = 65_534
START = ActionId(1, "a", 1, 0)


@pytest.fixture
def slurm() -> Iterator[SlurmCluster]:
    found = shared_cluster()
    yield found
    found.clear()
    found.settle()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend looks at nodes, and for a Slurm that is down, more often than it does elsewhere."""
    monkeypatch.setattr(backend, "NODES_S", 0.5)
    monkeypatch.setattr(backend, "DOWN_S", 0.5)


@pytest.fixture
def another_cluster_after() -> Iterator[None]:
    """Has the cases behind this one have a cluster of their own."""
    yield
    # What Slurm starts while its controller comes back may never be freed.
    end_shared()


@pytest.fixture
def rig(slurm: SlurmCluster) -> Iterator[Rig]:
    subject = SlurmSubject()
    yield Rig(subject)
    subject.close()


def start(rig: Rig, *slots: tuple[str, tuple[int, ...]], program: Program = Program.FOREVER, **job: object) -> Event:
    """Starts job `a` without the engine; the answer."""
    rig.subject.job(a_job("a", 1, (1, 8), **job), program)  # type: ignore[arg-type]
    placed = tuple(Slot(rank, "worker", node, devices) for rank, (node, devices) in enumerate(slots))
    return rig.ask(Start(START, Placement(placed)))


def heard(rig: Rig, event: Event) -> None:
    """Waits until an event has come."""
    rig.until(lambda: event in rig.seen)


def test_the_devices_that_slurm_chose_are_told_before_the_start_is_done(rig: Rig, slurm: SlurmCluster) -> None:
    other = slurm.submit("sleep 600", "--gres=gpu:2", "--nodelist=n0", "--mem=100")
    slurm.until(lambda: slurm.state(other) == "RUNNING", "the other job runs")
    assert start(rig, ("n0", (0, 1))) == Done(START)
    assert DevicesAssigned("a", 1, (Slot(0, "worker", "n0", (2, 3)),)) in rig.seen
    env = rig.subject.processes("a")
    assert env
    assert (rig.subject.data / "jobs/a/1/nodes/n0/order.json").read_text().count('"CUDA_VISIBLE_DEVICES": "2,3"') == 1  # type: ignore[attr-defined]


def test_a_gang_with_different_counts_of_gpus_a_node_is_one_hetjob(rig: Rig, slurm: SlurmCluster) -> None:
    assert start(rig, ("n0", (0,)), ("n0", (1,)), ("n0", (2,)), ("n1", (0,))) == Done(START)
    assert rig.subject.living("a") == 4
    assert len(slurm.run("squeue", "-h", "-o", "%i").split()) == 2
    stop = ActionId(1, "a", 1, 1)
    assert rig.ask(Stop(stop, 3_000, "cancelled")) == Done(stop)
    assert rig.subject.living("a") == 0
    assert not slurm.jobs()


def test_what_other_users_hold_is_told_and_given_back(rig: Rig, slurm: SlurmCluster) -> None:
    other = slurm.submit("sleep 600", "--gres=gpu:3", "--nodelist=n1", "--mem=1000", "--cpus-per-task=5")
    heard(rig, ForeignUse("n1", (0, 1, 2), 0, 5_000, 1_000))
    slurm.run("scancel", other)
    heard(rig, ForeignUse("n1"))


def test_a_job_waits_for_what_another_user_holds_and_starts_then(rig: Rig, slurm: SlurmCluster) -> None:
    other = slurm.submit("sleep 600", "--gres=gpu:3", "--nodelist=n1", "--mem=1000")
    rig.until(lambda: rig.state.foreign)
    rig.submit("a", Program.FOREVER, gpus=4, count=2)
    assert rig.record("a").attempt is None
    slurm.run("scancel", other)
    rig.until(rig.is_in("a", JobState.RUNNING))


def test_operators_drain_and_fail_nodes(rig: Rig, slurm: SlurmCluster) -> None:
    slurm.run("scontrol", "update", "nodename=n1", "state=drain", "reason=fan broken")
    rig.until(lambda: any(isinstance(event, NodeHealthChanged) for event in rig.seen))
    told = next(event for event in rig.seen if isinstance(event, NodeHealthChanged))
    assert (told.node, told.health) == ("n1", Health.DRAINING)
    assert "fan broken" in told.reason
    slurm.run("scontrol", "update", "nodename=n1", "state=down", "reason=gone")
    rig.until(lambda: rig.seen[-1:] and getattr(rig.seen[-1], "health", None) is Health.FAILED)
    slurm.run("scontrol", "update", "nodename=n1", "state=resume")
    heard(rig, NodeHealthChanged("n1", Health.HEALTHY))


@pytest.mark.usefixtures("another_cluster_after")
def test_what_runs_goes_on_while_slurm_is_down_and_its_end_is_told_afterwards(rig: Rig, slurm: SlurmCluster) -> None:
    rig.run("a", Program.FOREVER)
    slurm.stop_controller()
    rig.submit("b", Program.SUCCEED)
    rig.cancel("a")
    rig.until(lambda: rig.subject.living("a") == 0)
    assert rig.record("a").final is None
    slurm.start_controller()
    assert rig.finish("a").final is JobState.CANCELLED
    assert rig.finish("b").final is JobState.SUCCEEDED
    # A controller that has just come back starts jobs on nodes that it does not know yet; they are made up for.
    assert len(rig.endings("b")) == 1


def test_nothing_is_lost_while_munge_is_down(rig: Rig, slurm: SlurmCluster) -> None:
    slurm.stop_munge()
    rig.submit("a", Program.SUCCEED)
    rig.turn()
    slurm.start_munge()
    assert rig.finish("a").final is JobState.SUCCEEDED
    assert rig.record("a").attempts == 1


def test_a_submission_of_which_the_answer_got_lost_is_found_again(
    rig: Rig, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([True])

    def lossy(argv: list[str], text: str = "") -> str:
        told = run(argv, text)
        if next(losses, False):
            raise SlurmDown("sbatch did not answer")
        return told

    monkeypatch.setattr(attempts, "run", lossy)
    assert start(rig, ("n0", (0,))) == Done(START)
    assert rig.subject.living("a") == 1
    assert len(slurm.jobs()) == 1


def test_a_job_that_slurm_refuses_fails_for_good_with_its_words(rig: Rig) -> None:
    answer = start(rig, ("n0", (0,)), labels=(("slurm/partition", "nosuch"),))
    assert isinstance(answer, Failed)
    assert not answer.retryable
    assert "invalid partition specified: nosuch" in answer.reason


def test_a_job_that_slurm_keeps_pending_is_given_back_with_slurms_reason(
    rig: Rig, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "PENDING_PATIENCE_S", 1.0)
    other = slurm.submit("sleep 600", "--gres=gpu:4", "--nodelist=n0", "--mem=100")
    slurm.until(lambda: slurm.state(other) == "RUNNING", "the other job runs")
    answer = start(rig, ("n0", (0,)))
    assert isinstance(answer, Failed)
    assert answer.retryable
    assert "pending for 1 s" in answer.reason
    slurm.until(lambda: len(slurm.jobs()) == 1, "our job has left Slurm")


def test_an_allocation_on_other_nodes_is_given_back(
    rig: Rig, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddle(job: str) -> None:
        run(["scontrol", "update", f"JobId={job}", "ReqNodeList=n1"])
        run(["scontrol", "release", job])

    monkeypatch.setattr(jobs, "release", meddle)
    answer = start(rig, ("n0", (0,)))
    assert isinstance(answer, Failed)
    assert "n1" in answer.reason
    assert rig.subject.living("a") == 0


def test_a_job_that_an_operator_cancels_in_slurm_has_failed(rig: Rig, slurm: SlurmCluster) -> None:
    rig.run("a", Program.FOREVER)
    slurm.run("scancel", *slurm.jobs())
    assert rig.finish("a").final is JobState.FAILED
    assert "cancelled in Slurm, not by phalanx" in rig.record("a").end_reason


def test_how_a_job_ended_that_slurm_has_forgotten_is_read_from_its_accounting(
    rig: Rig, slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = jobs._ask

    def forgetful(ids: list[str]) -> dict[str, jobs.SlurmJob]:
        return {job: found for job, found in ask(ids).items() if not found.is_over}

    monkeypatch.setattr(jobs, "_ask", forgetful)
    rig.run("a", Program.FOREVER)
    slurm.run("scancel", *slurm.jobs())
    assert rig.finish("a").final is JobState.FAILED
    assert "cancelled in Slurm, not by phalanx" in rig.record("a").end_reason


def test_a_pending_job_of_another_user_is_not_starved_by_ours(rig: Rig, slurm: SlurmCluster) -> None:
    if os.getuid() != 0:
        pytest.skip("only root submits for other users")
    rig.run("a", Program.FOREVER, gpus=4)
    theirs = slurm.submit("sleep 1", "--nodes=2", "--gres=gpu:4", "--mem=100", f"--uid={NOBODY}")
    slurm.until(lambda: slurm.state(theirs) == "PENDING", "the other user's job is pending")
    rig.submit("b", Program.FOREVER, gpus=4)
    rig.until(lambda: len(slurm.jobs()) == 3)
    rig.cancel("a")
    rig.until(lambda: slurm.state(theirs) in ("RUNNING", "COMPLETING", "COMPLETED"))
    assert rig.record("b").state is not JobState.RUNNING
    rig.until(rig.is_in("b", JobState.RUNNING))
    assert slurm.state(theirs) == "COMPLETED"


@pytest.mark.parametrize(
    ("words", "passes"),
    [
        ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", True),
        ("Invalid account or account/partition combination specified", False),
        ("Requested time limit is invalid (missing or exceeds some limit)", False),
    ],
)
def test_a_refusal_is_tried_again_where_it_is_one_of_the_moment(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, words: str, passes: bool
) -> None:
    def refuse(argv: list[str], text: str = "") -> str:
        raise SlurmRefused(f"sbatch: Batch job submission failed: {words}")

    monkeypatch.setattr(attempts, "run", refuse)
    answer = start(rig, ("n0", (0,)))
    assert isinstance(answer, Failed)
    assert answer.retryable is passes
    assert words in answer.reason


def python_of_others() -> str:
    """A Python that a user without rights can run with phalanx; empty where there is none."""
    program = f"import sys; sys.path.append({script.ROOT!r}); import phalanx.backends.slurm.node_agent"
    for found in (sys.executable, "/usr/bin/python3"):
        try:
            tried = subprocess.run([found, "-I", "-S", "-c", program], user=NOBODY, cwd="/", capture_output=True)
        except OSError:
            continue
        if tried.returncode == 0:
            return found
    return ""


def test_a_job_of_another_user_runs_as_that_user(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    python = python_of_others() if os.getuid() == 0 else ""
    if not python:
        pytest.skip("only root submits for other users, where they can run phalanx")
    monkeypatch.setattr(script, "sys", SimpleNamespace(executable=python))
    monkeypatch.setitem(COMMANDS, Program.SUCCEED, ("sh", "-c", "id -u; touch $PHALANX_CHECKPOINT_DIR/mine"))
    subject = SlurmSubject()
    subject.data.chmod(0o711)
    subject.yard = NodeYard(subject.data, identity=lambda job: UnixIdentity(NOBODY, NOBODY, "nobody"))
    rig = Rig(subject)
    try:
        rig.submit("a", Program.SUCCEED)
        assert rig.finish("a").final is JobState.SUCCEEDED, rig.record("a").end_reason
        assert logs_in(subject.data / "jobs/a/1", threading.Event())[-1].piece(0, 100) == f"{NOBODY}\n".encode()
        assert (subject.data / "checkpoints/a/mine").stat().st_uid == NOBODY
    finally:
        subject.close()


def server_python(env: dict[str, str]) -> str:
    """A Python with which a user without rights can run a server; empty where there is none."""
    program = "import phalanx.server.loop.process, phalanx.server.api.process"
    for found in (sys.executable, "/usr/bin/python3"):
        try:
            tried = subprocess.run([found, "-c", program], user=NOBODY, cwd="/", env=env, capture_output=True)
        except OSError:
            continue
        if tried.returncode == 0:
            return found
    return ""


@pytest.fixture
def home_of_nobody() -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="nobody-"))
    os.chown(home, NOBODY, NOBODY)
    yield home
    shutil.rmtree(home)


def test_a_server_of_an_ordinary_user_runs_jobs_as_that_user(
    slurm: SlurmCluster, request: pytest.FixtureRequest
) -> None:
    packages = os.pathsep.join([script.ROOT, *(path for path in sys.path if path.endswith("site-packages"))])
    env = {**slurm.env, "PYTHONPATH": packages, "HOME": "/"}
    python = server_python(env) if os.getuid() == 0 else ""
    if not python:
        pytest.skip("only root tries what another user can do, where that user can run phalanx")
    home = request.getfixturevalue("home_of_nobody")
    env |= {"HOME": str(home), "PHALANX_CONFIG": str(home / "config")}
    command = [python, "-m", "phalanx", "up", "--backend", "slurm", "--data", str(home / "data")]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "-o", "json"], user=NOBODY, env=env, cwd=home, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        env |= {"PHALANX_ADDR": told["url"], "PHALANX_TOKEN_FILE": told["token_file"]}
        ran = subprocess.run(
            [python, "-m", "phalanx", "run", "--gpus", "1", "--", "id", "-u"],
            user=NOBODY,
            env=env,
            cwd=home,
            capture_output=True,
            text=True,
        )
        server.terminate()
    assert ran.returncode == 0, ran.stderr
    assert str(NOBODY) in ran.stdout.split()


def test_a_log_that_leads_elsewhere_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("not for users")
    node = tmp_path / "jobs" / "nodes" / "n0"
    node.mkdir(parents=True)
    (node / "0.out").symlink_to(secret)
    (log,) = logs_in(tmp_path / "jobs", threading.Event())
    assert log.piece(0, 100) == b""


def test_parts_of_gpus_are_refused(rig: Rig) -> None:
    rig.subject.job(a_job("a"), Program.FOREVER)
    from phalanx.cluster.device import Mode, Portion

    slot = Slot(0, "worker", "n0", (0,), Portion(Mode.MPS, 500, 0))
    answer = rig.ask(Start(START, Placement((slot,))))
    assert isinstance(answer, Failed)
    assert not answer.retryable
