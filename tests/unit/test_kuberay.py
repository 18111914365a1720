"""Job files as manifests of KubeRay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from phalanx.cli.export import export
from phalanx.compat.kuberay import Site, not_said, ray_cluster, ray_job
from phalanx.errors import PhalanxError
from phalanx.workload.formats.native import read_job
from phalanx.workload.job import Job

SITE = Site("2.60.0")


def job(text: str) -> Job:
    return read_job(f"name: train\n{text}\n", "job.yaml", "1")


def worker(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"].get("rayClusterSpec", manifest["spec"])
    (group,) = spec["workerGroupSpecs"]
    assert isinstance(group, dict)
    return group


def test_a_job_becomes_a_ray_job_that_can_be_suspended_and_ends_with_its_command() -> None:
    manifest = ray_job(job("command: [python, 'a b.py']\ngpus: 8\nretry: {limit: 3}\nmax_run: 90s"), SITE)
    spec = manifest["spec"]
    assert (spec["entrypoint"], spec["backoffLimit"], spec["activeDeadlineSeconds"]) == ("python 'a b.py'", 3, 90)
    assert spec["shutdownAfterJobFinishes"]


def test_a_task_is_a_pod_with_what_it_asks_for_and_its_grace() -> None:
    asked = "command: [x]\ngpus: 8\ncpus: 1.5\nmemory_gb: 64\ngrace: 61s\nnode_selector: {pool: a}"
    pod = worker(ray_job(job(asked), SITE))["template"]["spec"]
    limits = {"cpu": "1500m", "memory": "65536Mi", "nvidia.com/gpu": "8"}
    assert pod["containers"][0]["resources"] == {"requests": limits, "limits": limits}
    assert (pod["schedulerName"], pod["terminationGracePeriodSeconds"]) == ("phalanx", 61)
    assert pod["nodeSelector"] == {"pool": "a"}


def test_a_node_is_chosen_by_its_host_name_and_those_that_are_excluded_by_affinity() -> None:
    asked = 'command: [x]\ngpus: 8\nnode_selector: {phalanx/node: n1, pool: "a,b", zone: "!east"}'
    pod = worker(ray_job(job(asked), SITE))["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/hostname": "n1"}
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {
            "matchExpressions": [
                {"key": "pool", "operator": "In", "values": ["a", "b"]},
                {"key": "zone", "operator": "NotIn", "values": ["east"]},
            ]
        }
    ]


def test_an_elastic_role_is_a_group_that_ray_scales_and_a_rigid_one_is_not() -> None:
    elastic = ray_cluster(job("command: [x]\ngang: [{replicas: {min: 2, max: 6}, gpus: 1}]"), SITE)
    group = worker(elastic)
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (2, 2, 6)
    assert elastic["spec"]["enableInTreeAutoscaling"]
    rigid = ray_cluster(job("command: [x]\ngang: [{replicas: 3, gpus: 1}]"), SITE)
    assert not rigid["spec"]["enableInTreeAutoscaling"]


def test_a_replica_of_several_tasks_is_one_of_several_hosts() -> None:
    nested = "command: [x]\ngang: [{role: slice, replicas: 2, gang: [{replicas: 4, gpus: 8}]}]"
    assert (worker(ray_job(job(nested), SITE))["replicas"], worker(ray_job(job(nested), SITE))["numOfHosts"]) == (2, 4)


def test_variables_are_those_of_rays_runtime_environment() -> None:
    manifest = ray_job(job("command: [x]\nenv: {A: 'b: c'}"), SITE)
    assert yaml.safe_load(manifest["spec"]["runtimeEnvYAML"]) == {"env_vars": {"A": "b: c"}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gpus: 1\nimage: x", "there is nothing to run"),
        ("command: [x]\ngpus: 1\nshare: {fraction: 0.5}", "a pod has whole GPUs"),
        ("command: [x]\nkind: service\ngpus: 1", "a service is a RayService"),
    ],
)
def test_what_ray_cannot_run_is_refused(text: str, told: str) -> None:
    with pytest.raises(PhalanxError, match=told):
        ray_job(job(text), SITE)


def test_what_a_manifest_cannot_say_is_named() -> None:
    lines = list(not_said(job("command: [x]\nqueue: research\npriority: 3\ngpus: 1\ngpu_type: H100\nbegin: +1h")))
    assert [line.partition(":")[0] for line in lines] == ["queue 'research'", "priority 3", "begin", "gpu_type"]


def test_a_name_is_one_that_kubernetes_takes() -> None:
    def named(name: str) -> Job:
        return read_job(f"name: {name}\ncommand: [x]\n", "j", "1")

    assert ray_job(named("My_Training.7B"), SITE)["metadata"]["name"] == "my-training-7b"
    with pytest.raises(PhalanxError, match="expected a name with a letter first"):
        ray_job(named("'7B'"), SITE)


def test_export_prints_yaml_and_names_on_stderr_what_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: train\nqueue: research\ncommand: [x]\ngpus: 1\n")
    result = CliRunner().invoke(export, ["raycluster", str(file), "--ray-version", "2.55.0"])
    assert result.exit_code == 0, result.output
    assert yaml.safe_load(result.stdout)["spec"]["rayVersion"] == "2.55.0"
    assert f"{file}: queue 'research': a RayCluster names no queue" in result.stderr
