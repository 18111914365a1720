"""OpenPAI's job files, HiveD's annotation, and `phalanx import`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hived_pods import DESIGN
from phalanx.cli.main import cli, run
from phalanx.cluster.cell_cluster import Leaf, cluster_of
from phalanx.cluster.cells import Sku
from phalanx.cluster.formats.hived import read_hived
from phalanx.cluster.formats.native import read_cluster
from phalanx.document import DocumentError
from phalanx.workload.formats.hived_pod import native_job, read_manifest
from phalanx.workload.formats.native import read_job
from phalanx.workload.formats.openpai import PaiJob, hived_pods, native_jobs, read_openpai
from phalanx.workload.formats.written import job_file


def job(**changes: Any) -> dict[str, Any]:
    """A distributed job of two roles."""
    role = {
        "instances": 2,
        "completion": {"minFailedInstances": 1, "minSucceededInstances": 2},
        "dockerImage": "tf",
        "resourcePerInstance": {"gpu": 4, "cpu": 16, "memoryMB": 65536},
        "commands": ["cd /code", "python train.py --batch <% $parameters.batch %>"],
    }
    ps = role | {
        "instances": 1,
        "resourcePerInstance": {"gpu": 0, "cpu": 2, "memoryMB": 4096},
        "commands": ["python ps.py"],
    }
    ps["completion"] = {"minFailedInstances": 1, "minSucceededInstances": -1}
    return {
        "protocolVersion": 2,
        "name": "resnet",
        "type": "job",
        "prerequisites": [{"protocolVersion": 2, "name": "tf", "type": "dockerimage", "uri": "openpai/tf:1"}],
        "parameters": {"batch": 32},
        "jobRetryCount": 1,
        "taskRoles": {"worker": role, "ps": ps},
        "defaults": {"virtualCluster": "vc1"},
        "extras": {"hivedScheduler": {"jobPriorityClass": "prod", "taskRoles": {"worker": {"skuType": "V100"}}}},
    } | changes


def read(changes: dict[str, Any] | None = None) -> PaiJob:
    return read_openpai(yaml.safe_dump(job(**(changes or {})), sort_keys=False), "job.yaml")


def test_a_job_is_one_gang_of_its_roles() -> None:
    spec = job()
    del spec["extras"]["hivedScheduler"]["taskRoles"]
    (native,) = native_jobs(read_openpai(yaml.safe_dump(spec, sort_keys=False), "job.yaml"))
    assert (native.name, native.queue, native.priority, native.retry_limit) == ("resnet", "vc1", 100, 1)
    assert [(role.name, role.replicas_min, role.task.gpus) for role in native.gang.roles] == [
        ("worker", 2, 4),
        ("ps", 1, 0),
    ]
    assert native.execution.image == "openpai/tf:1"
    assert "worker)\ncd /code\npython train.py --batch 32\n;;" in native.execution.command[2]


@pytest.mark.parametrize(("word", "priority"), [("crit", 120), ("prod", 100), ("test", 10), ("oppo", -1), (None, 10)])
def test_priority_classes_are_openpais(word: str | None, priority: int) -> None:
    extras = {"hivedScheduler": {"jobPriorityClass": word} if word else {}}
    assert read({"extras": extras}).priority == priority
    assert read({"extras": {}}).priority == 10


def test_a_job_without_gang_allocation_starts_instance_by_instance() -> None:
    jobs = native_jobs(read({"extras": {"gangAllocation": False}}))
    assert [(each.name, each.array.indices if each.array else None) for each in jobs] == [
        ("resnet-worker", (0, 1)),
        ("resnet-ps", None),
    ]


def test_named_groups_start_together_and_other_roles_alone() -> None:
    cells = {"worker": {"affinityGroupName": "g"}}
    jobs = native_jobs(read({"extras": {"hivedScheduler": {"taskRoles": cells}}}))
    assert [each.name for each in jobs] == ["resnet-g", "resnet-ps"]


def test_pods_ask_for_as_many_leaves_as_their_resources_come_to() -> None:
    skus = {"V100": Sku("V100", 1, 4000, 8192)}
    pods = list(hived_pods(read({"extras": {"hivedScheduler": {"jobPriorityClass": "oppo"}}}), skus))
    assert [(pod["name"], pod["leafCellNumber"], pod["priority"]) for pod in pods] == [
        ("resnet-worker-0", 8, -1),  # 65,536 MB are eight leaves, four GPUs are four
        ("resnet-worker-1", 8, -1),
        ("resnet-ps-0", 1, -1),
    ]
    assert pods[0]["affinityGroup"]["members"] == [
        {"podNumber": 2, "leafCellNumber": 8},
        {"podNumber": 1, "leafCellNumber": 1},
    ]
    alone = list(hived_pods(read({"extras": {"gangAllocation": False}}), {}))
    assert "affinityGroup" not in alone[0]


def test_a_completion_policy_other_than_the_default_is_kept_as_a_label() -> None:
    spec = job(extras={})
    spec["taskRoles"]["worker"]["completion"] = {"minFailedInstances": -1, "minSucceededInstances": 1}
    (native,) = native_jobs(read_openpai(yaml.safe_dump(spec, sort_keys=False), "job.yaml"))
    assert native.labels == (("openpai/completion.worker", "-1 failed or 1 succeeded"),)


def test_a_deployment_puts_commands_around_those_of_a_role() -> None:
    around = {"name": "prod", "taskRoles": {"ps": {"preCommands": ["before"], "postCommands": ["after"]}}}
    found = read({"deployments": [around], "defaults": {"deployment": "prod"}})
    assert found.roles[1].commands == ("before", "python ps.py", "after")
    assert found.virtual_cluster == "default"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"taskRoles": {}}, "at least one task role"),
        ({"name": "with space"}, "expected a name"),
        ({"surprise": 1}, "unknown key"),
        ({"extras": {"hivedScheduler": {"jobPriorityClass": "vip"}}}, "one of crit, prod, test, oppo"),
        ({"extras": {"hivedScheduler": {"taskRoles": {"wrker": {}}}}}, "no task role 'wrker', did you mean"),
        ({"extras": {"hivedScheduler": {"taskRoles": {"ps": {"skuType": "a", "pinnedCellId": "b"}}}}}, "got both"),
        ({"secrets": {"../x": "y"}}, r"secrets\.\.\./x': expected a secret's name"),
        ({"prerequisites": []}, "no prerequisite of type dockerimage is named 'tf'"),
        ({"defaults": {"deployment": "x"}, "deployments": []}, "no deployment 'x'"),
        (
            {
                "extras": {
                    "hivedScheduler": {
                        "taskRoles": {
                            "worker": {"affinityGroupName": "g", "skuType": "a"},
                            "ps": {"affinityGroupName": "g", "skuType": "b"},
                        }
                    }
                }
            },
            "must have the same skuType",
        ),
    ],
)
def test_a_job_file_that_makes_no_sense_is_refused_with_its_place(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        read(changes)


def test_what_is_written_reads_as_the_same_job() -> None:
    cells = {"worker": {"skuType": "V100", "lazyPreemptionEnable": True}, "ps": {"skuType": "V100"}}
    for extras in ({"hivedScheduler": {"taskRoles": cells}}, {"gangAllocation": False}):
        for native in native_jobs(read({"extras": extras})):
            text = yaml.safe_dump(job_file(native), sort_keys=False)
            assert read_job(text, "written.yaml", gpu_types=("V100",)) == native


def test_import_prints_native_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job(extras={"gangAllocation": False}), sort_keys=False))
    assert run(cli, ["import", "openpai", str(path)]) == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [document["name"] for document in documents] == ["resnet-worker", "resnet-ps"]
    assert run(cli, ["import", "openpai", str(path), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == documents
    assert run(cli, ["import", "openpai", str(path), "-o", "name"]) == 0
    assert capsys.readouterr().out == "resnet-worker\nresnet-ps\n"


def test_import_prints_a_hived_configuration_as_a_cluster_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["import", "hived", str(DESIGN)]) == 0
    cluster = read_cluster(capsys.readouterr().out, "cluster.yaml")
    assert cluster.nodes == cluster_of(read_hived(DESIGN.read_text(), "design.yaml")).cluster.nodes


def test_import_refuses_what_it_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: x\n")
    assert run(cli, ["import", "pbs", str(path)]) == 3
    assert "there is: openpai, hived" in capsys.readouterr().err
    assert run(cli, ["import", "openpai", str(path)]) == 1
    assert "job.yaml:1: the key 'taskRoles' is missing" in capsys.readouterr().err


def test_a_pod_with_the_annotation_is_the_job_of_its_group() -> None:
    annotation = {
        "virtualCluster": "vc1",
        "priority": 100,
        "gpuType": "K80",
        "gpuNumber": 2,
        "lazyPreemptionEnable": True,
        "affinityGroup": {
            "name": "ns/g",
            "members": [{"podNumber": 3, "gpuNumber": 2}, {"podNumber": 1, "gpuNumber": 4}],
        },
    }
    annotations = {"hivedscheduler.microsoft.com/pod-scheduling-spec": yaml.safe_dump(annotation)}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": annotations}, "spec": {}}
    native = native_job(*read_manifest(yaml.safe_dump(manifest), "pod.yaml"))
    assert (native.name, native.queue, native.priority) == ("ns/g", "vc1", 100)
    assert [(role.replicas_min, role.task.gpus, role.task.gpu_types) for role in native.gang.roles] == [
        (3, 2, ("K80",)),
        (1, 4, ("K80",)),
    ]
    with pytest.raises(DocumentError, match="the key 'annotations' is missing"):
        read_manifest(yaml.safe_dump({"kind": "Pod", "metadata": {"name": "p"}}), "pod.yaml")


def test_pods_of_one_file_are_the_jobs_of_their_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def manifest(name: str, group: str) -> str:
        members = [{"podNumber": 2, "leafCellNumber": 4}]
        spec = {"virtualCluster": "v", "leafCellNumber": 4, "affinityGroup": {"name": group, "members": members}}
        annotations = {"hivedscheduler.microsoft.com/pod-scheduling-spec": json.dumps(spec)}
        return yaml.safe_dump({"kind": "Pod", "metadata": {"name": name, "annotations": annotations}})

    path = tmp_path / "pods.yaml"
    path.write_text("---\n".join([manifest("a-0", "a"), manifest("a-1", "a"), manifest("b-0", "b")]))
    assert run(cli, ["import", "hived", str(path), "-o", "name"]) == 0
    assert capsys.readouterr().out == "a\nb\n"


def test_leaves_are_devices_of_the_cluster() -> None:
    found = cluster_of(read_hived(DESIGN.read_text(), "design.yaml"))
    assert found.cluster.gpus == sum(len(leaves) for leaves in found.leaves.values())
    assert found.cluster.levels == ("pod", "rack", "node", "socket", "switch", "pair")
    assert found.device_of(Leaf("3-DGX1-P100-NODE", "1.0.0.0", 7)) == ("1.0.0.0", 3)
    assert found.device_of(Leaf("CT1-NODE", "1.0.0.2", 9)) == ("1.0.0.2", 1)
    assert found.device_of(Leaf("3-DGX1-P100-NODE", "1.0.0.2", 5)) == ("1.0.0.2.DGX1-P100", 5)
    racks = {node.path for node in found.cluster.nodes if node.name.startswith("0.0.3.")}
    assert racks == {("4-DGX2-V100-NODE-7", "4-DGX2-V100-NODE-7-0"), ("4-DGX2-V100-NODE-7", "4-DGX2-V100-NODE-7-1")}
