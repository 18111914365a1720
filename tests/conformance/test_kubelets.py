"""Jobs on real kubelets: what only these can show."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from kubelet_subject import KubeletSubject, cluster
from programs import COMMANDS, Program
from rig import Rig

from phalanx.backends.local.logs.files import logs_in
from phalanx.engine.state.records import JobState

pytestmark = pytest.mark.needs("kubelet", "kubernetes")


@pytest.fixture
def pods() -> Iterator[KubeletSubject]:
    made = KubeletSubject()
    yield made
    made.close()


@pytest.fixture
def rig(pods: KubeletSubject) -> Rig:
    return Rig(pods)


def printed(pods: KubeletSubject, job: str, rank: int) -> str:
    """What a task has printed."""
    logs = logs_in(pods.data / "jobs" / job / "1", threading.Event())
    return "".join(each.piece(0, 100_000).decode() for each in logs if each.rank == rank)


def test_a_task_is_held_to_its_limits_without_rights_or_token(
    rig: Rig, pods: KubeletSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = "cat /proc/self/status; ls /var/run/secrets; cat /sys/fs/cgroup/memory/memory.limit_in_bytes; true"
    monkeypatch.setitem(COMMANDS, Program.SUCCEED, ("sh", "-c", look))
    rig.submit("a", Program.SUCCEED, task={"memory_mb": 64})
    assert rig.finish("a").final is JobState.SUCCEEDED, rig.record("a").end_reason
    said = printed(pods, "a", 0)
    assert "CapEff:\t0000000000000000" in said
    assert "CapBnd:\t0000000000000000" in said
    assert "NoNewPrivs:\t1" in said
    assert "Seccomp:\t2" in said
    assert "No such file" in said
    assert str(64 << 20) in said


def test_the_first_task_knows_itself_by_the_name_at_which_the_gang_meets(
    rig: Rig, pods: KubeletSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = 'grep "$MASTER_ADDR" /etc/hosts; echo "$RANK of $WORLD_SIZE"'
    monkeypatch.setitem(COMMANDS, Program.SUCCEED, ("sh", "-c", f"{look}; true"))
    rig.submit("a", Program.SUCCEED, count=2)
    assert rig.finish("a").final is JobState.SUCCEEDED, rig.record("a").end_reason
    assert "task-0.phx-" in printed(pods, "a", 0)
    assert "1 of 2" in printed(pods, "a", 1)


def test_a_kubelet_that_is_killed_and_started_again_finds_its_pods(rig: Rig, pods: KubeletSubject) -> None:
    rig.run("a", Program.FOREVER)
    _, nodes = cluster()
    node = next(each for each in nodes if each.name == rig.attempt("a").placement.nodes[0])
    node.kill_kubelet()
    assert pods.living("a") == 1
    node.start_kubelet()
    rig.turn()
    assert rig.record("a").state is JobState.RUNNING
    rig.cancel("a")
    assert rig.finish("a").final is JobState.CANCELLED
    assert pods.living("a") == 0
    assert rig.record("a").attempts == 1
