"""What Kubernetes says of a pod, in the words that every backend uses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.backends.kubernetes.endings import NotBegun, end_of, mind_beginning, verdict_of
from phalanx.backends.kubernetes.pod import TaskPod, read_pod
from phalanx.placement.placement import Slot

SLOT = Slot(1, "worker", "n0")


def pod(phase: str = "Failed", metadata: dict[str, Any] | None = None, state: Any = None, **status: Any) -> TaskPod:
    """A pod in a state, with a sidecar that a webhook put beside its task."""
    statuses = [{"name": "sidecar", "state": {"running": {}}}]
    if state is not None:
        statuses.append({"name": "task", "state": state})
    written = {"metadata": metadata or {}, "status": {"phase": phase, "containerStatuses": statuses, **status}}
    return read_pod(json.dumps(written).encode())


def ended(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, **more}}


def waiting(reason: str, message: str) -> TaskPod:
    return pod("Pending", state={"waiting": {"reason": reason, "message": message}})


@pytest.mark.parametrize(
    ("found", "outcome", "code", "reason"),
    [
        (pod(state=ended(0, "Completed")), "succeeded", 0, "exit 0: task 1 (worker) on n0"),
        (pod(state=ended(3)), "failed", 3, "exit 3: task 1 (worker) on n0"),
        (pod(state=ended(139)), "failed", 139, "signal SIGSEGV: task 1 (worker) on n0"),
        (pod(state=ended(255)), "failed", 255, "exit 255: task 1 (worker) on n0"),
        (
            pod(state=ended(137, "OOMKilled")),
            "failed",
            137,
            "oom: task 1 (worker) on n0 ran out of its 64 MB",
        ),
        (pod(state=ended(137, "ContainerStatusUnknown")), "lost", 0, "lost: what looked after task 1"),
        (pod(reason="Evicted", message="no disk"), "lost", 0, "lost: task 1 (worker) on n0: Evicted: no disk"),
        (pod(state=ended(143), metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), "lost", 0, "lost: the pod of"),
        (pod(reason="Strange"), "lost", 0, "lost: the pod of task 1 (worker) on n0 ended without its task: Strange"),
    ],
)
def test_an_end_has_its_cause_and_code(found: TaskPod, outcome: str, code: int, reason: str) -> None:
    end = end_of(found, SLOT, 64, was_asked=False)
    assert (end["outcome"], end["exit_code"]) == (outcome, code)
    assert end["reason"].startswith(reason)


def test_a_task_that_has_ended_is_over_whatever_runs_beside_it() -> None:
    assert pod("Running", state=ended(0, "Completed")).is_over


def test_a_pod_that_was_asked_to_end_is_no_loss() -> None:
    leaving = pod(state=ended(143), metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert end_of(leaving, SLOT, 0, was_asked=True)["reason"].startswith("signal SIGTERM: ")


@pytest.mark.parametrize(
    ("found", "said", "retryable", "at_once"),
    [
        (waiting("ErrImagePull", "x: not found"), "image 'team/x': ErrImagePull: x: not found", False, True),
        (waiting("ErrImagePull", "i/o timeout"), "image 'team/x': ErrImagePull: i/o timeout", True, False),
        (waiting("InvalidImageName", ""), "image 'team/x': InvalidImageName", False, True),
        (waiting("CreateContainerConfigError", "image will run as root"), "image will run as root", False, True),
        (waiting("ContainerCreating", ""), "ContainerCreating", True, False),
        (pod(reason="OutOfcpu", message="node is full"), "the kubelet refused the pod: OutOfcpu", True, True),
        (pod(state=ended(128, "StartError", message="no such file or directory")), "no such program", False, True),
    ],
)
def test_why_a_task_does_not_begin_is_told_and_whether_waiting_helps(
    found: TaskPod, said: str, retryable: bool, at_once: bool
) -> None:
    with pytest.raises(NotBegun) as why:
        mind_beginning(found, SLOT, "team/x", "train.py")
    assert said in why.value.reason
    assert (why.value.retryable, why.value.at_once) == (retryable, at_once)


def test_the_first_failure_counts_and_a_loss_before_any() -> None:
    first = end_of(pod(state=ended(1, finishedAt="2026-01-01T00:00:01Z")), SLOT, 0, False)
    second = end_of(pod(state=ended(137, finishedAt="2026-01-01T00:00:02Z")), SLOT, 0, False)
    lost = end_of(pod(reason="Evicted"), SLOT, 0, False)
    assert verdict_of({0: second, 1: first}, 3) == first
    assert verdict_of({0: second, 1: first, 2: lost}, 3) == lost
    assert verdict_of({}, 1) is None
