"""What a job can make of a pod, and what it cannot."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import a_job
from phalanx.backends.kubernetes.manifests import Gang, Owner, pod_manifest, secret_manifest
from phalanx.backends.kubernetes.nodes import Nodes, ReportedNode, ReportedStatus
from phalanx.backends.kubernetes.settings import Settings, SettingsError, read_settings
from phalanx.backends.kubernetes.tasks import gang_of, plans_of
from phalanx.backends.local.orders import OrderError, Yard
from phalanx.kube.objects.meta import Metadata
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import ActionId, Start
from phalanx.workload.job import Execution, Job, UnixIdentity

SETTINGS = Settings(namespace="jobs", image="base", host_paths=("/data",))
USER = UnixIdentity(1234, 1235)


def manifest(
    tmp_path: Path,
    execution: Execution | None = None,
    name: str = "a",
    identity: UnixIdentity | None = USER,
    settings: Settings = SETTINGS,
    slots: tuple[Slot, ...] = (Slot(0, "worker", "n0", (2, 3)),),
    allocatable: dict[str, Any] | None = None,
    **job: Any,
) -> dict[str, Any]:
    """The pod of the first task of a job."""
    made = replace(a_job(name, len(slots[0].devices), len(slots), **job), execution=execution or Execution(("true",)))
    yard = Yard(tmp_path, identity=lambda job: identity, secrets=lambda job: {"HF_TOKEN": "geheim"})
    nodes = Nodes(("n0",), tmp_path, "abc", 300)
    status = ReportedStatus(allocatable=allocatable or {})
    nodes.take_nodes([ReportedNode(metadata=Metadata(name="n0"), status=status)])
    return _pod(yard, made, slots, nodes, settings)


def _pod(yard: Yard, job: Job, slots: tuple[Slot, ...], nodes: Nodes, settings: Settings) -> dict[str, Any]:
    placement = Placement(slots)
    gang = gang_of(yard, Owner("abcdef123456", job.id, 1), job, placement)
    start = Start(ActionId(1, job.id, 1, 0), placement)
    return pod_manifest(gang, plans_of(gang, start, settings, nodes, 0)[0], settings)


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["spec"]["containers"]
    return dict(found)


def variables(pod: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(pod)["env"] if "value" in each}


def test_a_pod_has_no_rights_whatever_its_job_says(tmp_path: Path) -> None:
    pod = manifest(tmp_path, name="x", labels=(("privileged", "true"), ("serviceAccountName", "admin")))
    spec, security = pod["spec"], container(pod)["securityContext"]
    assert pod["metadata"]["namespace"] == "jobs"
    assert spec["serviceAccountName"] == "default"
    assert spec["automountServiceAccountToken"] is False
    assert not spec["hostNetwork"]
    assert not {"hostPID", "hostIPC", "nodeName", "nodeSelector"} & spec.keys()
    assert security == {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["securityContext"]["runAsUser"] == 1234
    assert spec["securityContext"]["runAsNonRoot"] is True


def test_no_job_runs_as_root(tmp_path: Path) -> None:
    with pytest.raises(OrderError, match="never run as root"):
        manifest(tmp_path, identity=UnixIdentity(0, 0))


@pytest.mark.parametrize("source", ["/", "/etc", "/data/../etc", "/database", "data", "/data:ro"])
def test_a_folder_of_a_node_is_mounted_only_where_the_operator_allows_it(tmp_path: Path, source: str) -> None:
    with pytest.raises(OrderError, match=r"^mount '"):
        manifest(tmp_path, Execution(("true",), mounts=((source, "/in"),)))


@pytest.mark.parametrize("target", ["/", "/proc", "/dev/shm", "/phalanx/tls", "//sys/x"])
def test_nothing_is_mounted_over_what_is_not_the_jobs(tmp_path: Path, target: str) -> None:
    with pytest.raises(OrderError, match="phalanx itself mounts"):
        manifest(tmp_path, Execution(("true",), mounts=(("/data/set", target),)))


def test_a_link_in_an_allowed_folder_leads_nowhere(tmp_path: Path) -> None:
    """The volume is what the operator named; its kubelet resolves the rest within that."""
    pod = manifest(tmp_path, Execution(("true",), mounts=(("/data/team/set", "/in"),)))
    (volume,) = [each for each in pod["spec"]["volumes"] if "hostPath" in each]
    (mount,) = [each for each in container(pod)["volumeMounts"] if each["name"] == volume["name"]]
    assert volume["hostPath"]["path"] == "/data"
    assert (mount["mountPath"], mount["subPath"]) == ("/in", "team/set")


def test_who_could_be_root_in_a_container_mounts_nothing_of_a_node(tmp_path: Path) -> None:
    with pytest.raises(OrderError, match="give its account a Unix user"):
        manifest(tmp_path, Execution(("true",), mounts=(("/data", "/in"),)), identity=None)


def test_kubernetes_puts_no_variables_into_what_a_job_says(tmp_path: Path) -> None:
    said = "echo $(PHALANX_JOB_ID) $(date)"
    pod = manifest(tmp_path, Execution(("sh", "-c", said), env=(("A", "$(HF_TOKEN)"),)))
    assert container(pod)["command"] == ["sh", "-c", said.replace("$(", "$$(")]
    assert variables(pod)["A"] == "$$(HF_TOKEN)"


@pytest.mark.parametrize("image", ["", "-v", "a b", "a\nb", "x" * 600])
def test_an_image_is_a_name(tmp_path: Path, image: str) -> None:
    with pytest.raises(OrderError, match="image"):
        manifest(tmp_path, Execution(("true",), image=image), settings=replace_settings(image=""))


def test_a_variable_has_a_name(tmp_path: Path) -> None:
    with pytest.raises(OrderError, match=r"env: 'A=B'"):
        manifest(tmp_path, Execution(("true",), env=(("A=B", "x"),)))


def test_secrets_are_in_no_pod(tmp_path: Path) -> None:
    pod = manifest(tmp_path, Execution(("true",), env=(("HF_TOKEN", "of the job file"),)))
    assert "geheim" not in str(pod)
    assert "of the job file" not in str(pod)
    (told,) = [each for each in container(pod)["env"] if each["name"] == "HF_TOKEN"]
    assert told["valueFrom"]["secretKeyRef"] == {"name": "phx-abcdef-a-1", "key": "HF_TOKEN"}
    gang = Gang(Owner("abcdef", "a", 1), a_job("a"), None, {"HF_TOKEN": "geheim"})
    assert secret_manifest(gang, SETTINGS)["stringData"] == {"HF_TOKEN": "geheim"}


def test_names_are_labels_of_dns_and_differ_where_jobs_do() -> None:
    names = {Owner("abcdef123456", job, 1).pod_name(0) for job in ("a", "A", "a_b", "a.b", "a-b", "é", "x" * 200)}
    assert len(names) == 7
    assert all(re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])", name) for name in names)


def test_a_gang_meets_at_the_name_of_its_first_pod(tmp_path: Path) -> None:
    slots = tuple(Slot(rank, "worker", "n0", (rank,)) for rank in range(2))
    pod = manifest(tmp_path, slots=slots)
    env = variables(pod)
    assert env["MASTER_ADDR"] == "task-0.phx-abcdef-a-1.jobs.svc"
    assert (env["RANK"], env["WORLD_SIZE"]) == ("0", "2")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("task-0", "phx-abcdef-a-1")


def test_gpus_are_asked_of_the_kubelet_where_it_gives_them_out(tmp_path: Path) -> None:
    pod = manifest(tmp_path, allocatable={"nvidia.com/gpu": "8"})
    assert container(pod)["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert variables(pod)["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert not {"NVIDIA_VISIBLE_DEVICES", "PHALANX_DEVICES"} & variables(pod).keys()


def test_gpus_are_named_to_the_runtime_where_no_plugin_gives_them_out(tmp_path: Path) -> None:
    env = variables(manifest(tmp_path))
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["CUDA_VISIBLE_DEVICES"]) == ("2,3", "0,1")


def test_a_task_without_gpus_sees_none_whatever_its_image_asks_for(tmp_path: Path) -> None:
    env = variables(manifest(tmp_path, slots=(Slot(0, "worker", "n0"),), allocatable={"nvidia.com/gpu": "8"}))
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["CUDA_VISIBLE_DEVICES"]) == ("void", "")


def test_nothing_of_the_servers_own_environment_reaches_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/of-the-server")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    assert not {"HOME", "PATH", "AWS_SECRET_ACCESS_KEY", "PHALANX_NOTICE_FILE"} & variables(manifest(tmp_path)).keys()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nmespace: x", "nmespace"),
        ("host_paths: [/]", "host_paths"),
        ("host_paths: [/data/../etc]", "host_paths"),
        ("user: 0", "user"),
        ("[1]", "object"),
        ("a: [", "parsing"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_the_file_and_the_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "kubernetes.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=rf"(?s){re.escape(str(path))}.*{said}"):
        read_settings({"PHALANX_KUBERNETES": str(path)})


def replace_settings(**changed: Any) -> Settings:
    return Settings(**{"namespace": "jobs", "image": "base", "host_paths": ("/data",), **changed})
