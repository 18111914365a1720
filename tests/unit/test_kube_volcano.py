"""The life of a Volcano Job, step by step: what its status and its pods say is all that it goes by."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from phalanx.kube.volcano.job import JOB_VERSION, TASK_INDEX, TASK_SPEC, VolcanoJob, Worker
from phalanx.kube.volcano.lifecycle import Step, step
from phalanx.kube.volcano.manifests import group_of, pod_of
from phalanx.kube.volcano.refusal import refusal_of

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


def job(*tasks: dict[str, Any], status: dict[str, Any] | None = None, **spec: Any) -> VolcanoJob:
    written = {"metadata": {"name": "j"}, "spec": {"tasks": list(tasks), **spec}, "status": status or {}}
    return msgspec.convert(written, VolcanoJob)


def worker(task: str, index: int, phase: str, version: int = 0, **fields: Any) -> Worker:
    metadata = {
        "name": f"j-{task}-{index}",
        "labels": {TASK_SPEC: task, TASK_INDEX: str(index)},
        "annotations": {JOB_VERSION: str(version)},
        **fields.pop("metadata", {}),
    }
    return msgspec.convert({"metadata": metadata, "status": {"phase": phase, **fields}}, Worker)


def running(count: int, **tasks: int) -> dict[str, Any]:
    """The status of a job that ran with so many pods when it was written."""
    counts = {name: {"phase": {"Running": each}} for name, each in tasks.items()}
    return {"state": {"phase": "Running"}, "running": count, "taskStatusCount": counts}


def partitioned(least: int) -> dict[str, Any]:
    """A task of two partitions with two pods each, which lie below one switch."""
    topology = {"mode": "hard", "highestTierAllowed": 1}
    policy = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": least, "networkTopology": topology}
    return {"replicas": 4, "partitionPolicy": policy}


def created(found: Step) -> list[str]:
    return [f"{task.name}-{index}" for task, index in found.create]


def test_a_new_job_is_pending_and_has_all_its_pods_made() -> None:
    found = step(job({"name": "a", "replicas": 2}, {"name": "b"}), (), NOW)
    assert created(found) == ["a-0", "a-1", "b-0"]
    assert found.status.state.phase == "Pending"
    assert found.status.min_available == 3


def test_pods_of_a_large_job_are_made_in_waves() -> None:
    large = job({"name": "a", "replicas": 450}, {"name": "b", "dependsOn": {"name": ["a"]}})
    pods: list[Worker] = []
    waves = []
    while wave := step(large, pods, NOW).create:
        waves.append(len(wave))
        pods += (worker(task.name, index, "Running") for task, index in wave)
    assert waves == [200, 200, 50, 1]


def test_it_is_complete_when_enough_pods_succeeded_though_others_run() -> None:
    them = job({"name": "a", "replicas": 3}, status=running(3, a=3), minSuccess=1)
    pods = [worker("a", 0, "Succeeded"), worker("a", 1, "Running"), worker("a", 2, "Running")]
    found = step(them, pods, NOW)
    assert found.status.state.phase == "Completed"
    assert [pod.metadata.name for pod in found.delete] == ["j-a-1", "j-a-2"]


@pytest.mark.parametrize(
    ("task", "spec", "phases", "wanted"),
    [
        ({}, {"minAvailable": 1}, ("Succeeded", "Failed"), "Completed"),
        ({}, {}, ("Succeeded", "Failed"), "Failed"),
        ({"minAvailable": 1}, {}, ("Succeeded", "Failed"), "Completed"),
        ({"minAvailable": 2}, {"minAvailable": 2}, ("Succeeded", "Failed"), "Failed"),
        ({}, {"minAvailable": 1, "minSuccess": 2}, ("Succeeded", "Failed"), "Failed"),
    ],
)
def test_what_becomes_of_it_when_all_pods_have_ended(
    task: dict[str, Any], spec: dict[str, Any], phases: tuple[str, ...], wanted: str
) -> None:
    them = job({"name": "a", "replicas": 2, **task}, status=running(2, a=2), **spec)
    assert step(them, [worker("a", i, each) for i, each in enumerate(phases)], NOW).status.state.phase == wanted


def test_containers_that_were_started_again_too_often_fail_their_task() -> None:
    policy = {"event": "TaskFailed", "action": "TerminateJob"}
    them = job({"name": "a", "maxRetry": 2, "policies": [policy]}, status=running(1, a=1))
    for restarts, wanted in ((1, "Running"), (2, "Terminating")):
        pod = worker("a", 0, "Running", containerStatuses=[{"restartCount": restarts}])
        assert step(them, [pod], NOW).status.state.phase == wanted


def test_a_pod_that_leaves_counts_as_evicted_before_it_is_gone() -> None:
    policies = [{"events": ["PodEvicted", "PodFailed"], "action": "RestartJob"}]
    them = job({"name": "a", "replicas": 2}, status=running(2, a=2), policies=policies)
    leaving = worker("a", 0, "Running", metadata={"deletionTimestamp": "2026-11-18T12:00:00Z"})
    found = step(them, [leaving, worker("a", 1, "Running")], NOW)
    assert (found.status.state.phase, found.status.version) == ("Restarting", 1)
    assert [pod.metadata.name for pod in found.delete] == ["j-a-1"]
    assert found.status.terminating == 2
    assert found.status.task_status_count is None, "those that are deleted here were not evicted"


def test_a_restarted_job_makes_pods_when_enough_of_the_old_ones_are_gone() -> None:
    status = {"state": {"phase": "Restarting"}, "version": 1, "retryCount": 1}
    them = job({"name": "a", "replicas": 2}, status=status)
    assert step(them, [worker("a", 0, "Running")], NOW).status.state.phase == "Restarting"
    assert step(them, [], NOW).status.state.phase == "Pending"


def test_a_pod_of_a_job_that_was_made_smaller_is_not_evicted() -> None:
    policies = [{"event": "PodEvicted", "action": "AbortJob"}]
    them = job({"name": "a", "replicas": 1}, status=running(2, a=2), policies=policies, minAvailable=1)
    found = step(them, [worker("a", 0, "Running"), worker("a", 1, "Running")], NOW)
    assert found.status.state.phase == "Running"
    assert [pod.metadata.name for pod in found.delete] == ["j-a-1"]


def test_of_several_tasks_that_one_depends_on_any_will_do_if_it_says_so() -> None:
    tasks = ({"name": "a"}, {"name": "b"})
    for iteration, wanted in (("any", ["c-0"]), ("all", []), ("", [])):
        last = {"name": "c", "dependsOn": {"name": ["a", "b"], "iteration": iteration}}
        found = step(job(*tasks, last), [worker("a", 0, "Running"), worker("b", 0, "Pending")], NOW)
        assert created(found) == wanted


def test_a_task_is_not_up_before_its_containers_are_ready() -> None:
    them = job({"name": "a"}, {"name": "b", "dependsOn": {"name": ["a"]}})
    for is_ready, wanted in ((False, []), (True, ["b-0"])):
        pod = worker("a", 0, "Running", containerStatuses=[{"ready": is_ready}])
        assert created(step(them, [pod], NOW)) == wanted


def test_pods_that_wait_for_others_are_not_in_their_gang() -> None:
    them = job({"name": "a"}, {"name": "b", "replicas": 4, "dependsOn": {"name": ["a"]}})
    assert group_of(them, "v")["spec"] == {"minMember": 1, "queue": "default"}


def test_the_partitions_of_a_task_are_sub_groups_of_its_group() -> None:
    """A job with a minimum of partitions needs no more than their pods."""
    them = job({"name": "a", **partitioned(least=1)})
    spec = group_of(them, "scheduling.volcano.sh/v1beta1")["spec"]
    assert spec["subGroupPolicy"] == [
        {
            "name": "a",
            "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "a"}},
            "matchLabelKeys": ["volcano.sh/partition-id"],
            "subGroupSize": 2,
            "minSubGroups": 1,
            "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        }
    ]
    assert (spec["minMember"], spec["minTaskMember"]) == (2, {"a": 2})
    labels = [pod_of(them, them.tasks[0], i, "phalanx")["metadata"]["labels"] for i in range(4)]
    assert [each["volcano.sh/partition-id"] for each in labels] == ["0", "0", "1", "1"]


def test_a_finished_job_says_when_it_is_to_be_deleted() -> None:
    status = {"state": {"phase": "Failed", "lastTransitionTime": "2026-11-18T12:00:00Z"}}
    found = step(job({"name": "a"}, status=status, ttlSecondsAfterFinished=60), (), NOW)
    assert found.expires == datetime(2026, 11, 18, 12, 1, tzinfo=UTC)
    assert step(job({"name": "a"}, status=status), (), NOW).expires is None


def test_nothing_changes_where_nothing_happened() -> None:
    them = job({"name": "a"})
    pods = [worker("a", 0, "Running")]
    status = step(them, pods, NOW).status
    again = step(msgspec.structs.replace(them, status=status), pods, NOW.replace(minute=5))
    assert (again.status, again.create, again.delete) == (status, (), ())


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (job(), "spec.tasks: expected at least one task"),
        (job({"name": "a"}, {"name": "a"}), "spec.tasks: expected a name of its own for each, got 'a', 'a'"),
        (
            job({"name": "a"}, minAvailable=2),
            "spec.minAvailable: expected at most the 1 replicas of all tasks, got 2",
        ),
        (
            job({"name": "a", "minAvailable": 2}, minAvailable=1),
            "spec.tasks[a].minAvailable: expected at most its 1 replicas, got 2",
        ),
        (
            job({"name": "a", "dependsOn": {"name": ["b"]}}),
            "spec.tasks[a].dependsOn: there is no task b; there are a",
        ),
        (
            job({"name": "a", "dependsOn": {"name": ["b"]}}, {"name": "b", "dependsOn": {"name": ["a"]}}),
            "spec.tasks: a, b depend on one another",
        ),
        (
            job({"name": "a"}, policies=[{"event": "PodFailed", "action": "Explode"}]),
            (
                "spec.policies[0].action: expected one of AbortJob, RestartJob, RestartTask, RestartPod, TerminateJob, "
                "CompleteJob, SyncJob, got 'Explode'"
            ),
        ),
        (
            job({"name": "a", "policies": [{"action": "AbortJob", "event": "Rain"}]}),
            (
                "spec.tasks[a].policies[0].event: expected one of PodFailed, PodEvicted, TaskCompleted, TaskFailed, "
                "Unknown, *, got 'Rain'"
            ),
        ),
        (
            job({"name": "a"}, policies=[{"action": "AbortJob"}]),
            "spec.policies[0]: expected an event, or an exitCode other than 0",
        ),
        (
            job({"name": "a"}, policies=[{"action": "AbortJob", "event": "*", "timeout": "5m"}]),
            "spec.policies[0].timeout: phalanx acts at once; leave it out",
        ),
        (
            job({"name": "a"}, plugins={"svc": ["--fast"]}),
            "spec.plugins.svc: expected --publish-not-ready-addresses, --disable-network-policy, got --fast",
        ),
        (job({"name": "a"}, plugins={"env": ["--fast"]}), "spec.plugins.env: expected no arguments, got --fast"),
        (
            job({"name": "a"}, volumes=[{"mountPath": "/v", "volumeClaim": {}}]),
            "spec.volumes: phalanx makes no claims of a volumeClaim; name one that exists in volumeClaimName",
        ),
        (
            job({"name": "a", "replicas": 4, "partitionPolicy": {"totalPartitions": 2, "partitionSize": 3}}),
            (
                "spec.tasks[a].partitionPolicy: expected totalPartitions and partitionSize that make its 4 replicas, "
                "got 2 and 3"
            ),
        ),
        (
            job({"name": "a", "minAvailable": 4, **partitioned(least=1)}),
            ("spec.tasks[a].partitionPolicy: expected minPartitions × partitionSize to be its minAvailable, 4, got 2"),
        ),
        (
            job({"name": "a", **partitioned(least=3)}, minAvailable=1),
            "spec.tasks[a].minAvailable: expected at most its 4 replicas, got 6",
        ),
        (
            job({"name": "a", "replicas": 10**9}, {"name": "b"}, minAvailable=1),
            "spec.tasks: expected at most 10000 replicas of all tasks, got 1000000001",
        ),
        (
            job({"name": "a", "replicas": -1}, {"name": "b", "replicas": 3}),
            "spec.tasks[a].replicas: expected 0 or more, got -1",
        ),
        (job(*({"name": f"t{i}"} for i in range(501))), "spec.tasks: expected at most 500 tasks, got 501"),
        (job({"name": "a", **partitioned(least=1)}), ""),
        (job({"name": "a"}, plugins={"env": []}, policies=[{"exitCode": 3, "action": "RestartJob"}]), ""),
    ],
)
def test_what_cannot_be_meant_is_named(written: VolcanoJob, said: str) -> None:
    assert refusal_of(written) == said
