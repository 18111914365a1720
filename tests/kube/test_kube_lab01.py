"""Lab 1 on a real API server: its scripts and manifests do what its text says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import kube_cluster
from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import POD_PATH, events, nodes_of, pods, reason
from phalanx.kube.api.client import Client

pytestmark = [pytest.mark.needs("kubernetes"), pytest.mark.needs("kubectl")]

LAB = Path(__file__).parents[2] / "labs" / "lab01-volcano"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"


class Shell:
    """Runs commands in the folder of the lab, as a reader would."""

    def __init__(self, cluster: KubeCluster, home: Path) -> None:
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._env = {"PATH": programs, "HOME": str(home), "LAB_HOME": str(home), "KUBECONFIG": str(cluster.kubeconfig)}

    def __call__(self, *command: str, check: bool = True, text: str | None = None) -> str:
        done = subprocess.run(
            command, cwd=LAB, env=self._env, check=False, capture_output=True, text=True, timeout=300, input=text
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """One without custom resources: the lab brings those of Volcano."""
    with kube_cluster.running(tmp_path_factory.mktemp("kube"), has_custom=False) as running:
        yield running


@pytest.fixture
def shell(api: Client, cluster: KubeCluster, tmp_path: Path) -> Iterator[Shell]:
    """A shell with the lab installed."""
    run = Shell(cluster, tmp_path)
    create(api, node("n0", labels={"rack": "r0"}), node("n1", labels={"rack": "r0"}))
    said = run("./install_volcano.sh")
    assert "scheduling https://" in said, "the scheduler is ready when the script returns"
    yield run
    assert "has ended" in run("./install_volcano.sh", "--stop")


def phases(api: Client) -> dict[str, str]:
    found = api.get(JOBS, dict[str, Any])["items"]
    return {each["metadata"]["name"]: each.get("status", {}).get("state", {}).get("phase", "") for each in found}


def test_of_two_gangs_one_runs_whole_and_the_other_after_it(shell: Shell, api: Client) -> None:
    assert "runs already" in shell("./install_volcano.sh", check=False)
    shell("kubectl", "apply", "-f", "gang_scheduling_demo.yaml")
    wait_for("one job runs", lambda: sorted(phases(api).values()) == ["Pending", "Running"])
    first = next(name for name, phase in phases(api).items() if phase == "Running")
    wait_for("the other has its pods", lambda: len(pods(api)) == 6)
    assert sorted(nodes_of(api)) == [f"{first}-worker-{i}" for i in range(3)]
    other = next(name for name in pods(api) if not name.startswith(first))
    wait_for("they say why", lambda: "GPU" in reason(api, other))
    for name in nodes_of(api):
        api.patch(f"{POD_PATH}/{name}/status", {"status": {"phase": "Succeeded"}})
    wait_for("the other runs", lambda: sorted(phases(api).values()) == ["Completed", "Running"])


def test_queues_are_made_listed_and_closed(shell: Shell, api: Client) -> None:
    manage = (sys.executable, "queue_management.py")
    shell(*manage, "create", "research", "--weight", "3", "--capability", "nvidia.com/gpu=4")
    shell(*manage, "create", "product", "--deserved", "nvidia.com/gpu=12")
    demo = (LAB / "gang_scheduling_demo.yaml").read_text()
    shell("kubectl", "apply", "-f", "-", text=demo.replace("minAvailable: 3", "minAvailable: 3\n  queue: product"))
    wait_for("one job runs", lambda: sorted(phases(api).values()) == ["Pending", "Running"])
    wait_for("the other has its pods", lambda: len(pods(api)) == 6)
    listed = [line.split() for line in shell(*manage, "list").splitlines()]
    assert listed[1:] == [["product", "1", "-", "Open", "12", "3"], ["research", "3", "4", "Open", "0", "0"]]
    shell(*manage, "close", "product")
    waiting = next(name for name in pods(api) if name not in nodes_of(api))
    wait_for("they say so", lambda: reason(api, waiting) == "its queue product is closed")
    shell(*manage, "open", "product")
    wait_for("they wait for GPUs again", lambda: "closed" not in reason(api, waiting))
    shell(*manage, "delete", "research")
    assert "409" in shell(*manage, "create", "product", check=False)


def test_a_job_that_must_share_a_switch_lies_in_one_rack(shell: Shell, api: Client) -> None:
    create(api, node("n2", labels={"rack": "r1"}), node("n3", labels={"rack": "r1"}))
    busy = [pod(f"busy-{name}", 8, schedulerName="default-scheduler", nodeName=name) for name in ("n0", "n2")]
    create(api, *busy)
    shell("kubectl", "apply", "-f", "topology_aware_placement.yaml")
    wait_for("its pods say why they wait", lambda: "near-worker-0" in pods(api) and bool(reason(api, "near-worker-0")))
    api.delete(f"{POD_PATH}/busy-n2", {"gracePeriodSeconds": 0})
    wait_for("it is bound", lambda: len(nodes_of(api)) == 3)
    assert {name: where for name, where in nodes_of(api).items() if name != "busy-n0"} == {
        "near-worker-0": "n2",
        "near-worker-1": "n3",
    }


def test_a_template_that_is_none_harms_no_other_job(shell: Shell, api: Client) -> None:
    """The definitions that the lab brings let one through; those of Volcano do not."""
    demo = (LAB / "gang_scheduling_demo.yaml").read_text().split("---")[0]
    broken = yaml.safe_load(demo.replace("gang-a", "broken"))
    broken["spec"]["tasks"][0]["template"] = {"metadata": "none", "spec": {"containers": [3]}}
    create(api, broken)
    wait_for("an event says so", lambda: any("broken" in each for each in events(api, "broken")))
    create(api, yaml.safe_load(demo))
    wait_for("the other runs", lambda: phases(api).get("gang-a") == "Running")


def test_a_group_that_is_none_harms_no_other(shell: Shell, api: Client) -> None:
    """Nor do the definitions of Volcano let this one through."""
    odd = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "odd"},
        "spec": {"minMember": 1, "networkTopology": {"highestTierAllowed": "many"}},
    }
    member = pod("odd-0", 1, schedulerName="volcano")
    member["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "odd"}
    create(api, odd, member, pod("fine", 1, schedulerName="volcano"))
    wait_for("the other is bound", lambda: "fine" in nodes_of(api))
    wait_for("its pod says what it waits for", lambda: "PodGroup default/odd" in reason(api, "odd-0"))
