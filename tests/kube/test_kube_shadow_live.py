"""`phalanx kube shadow` beside another scheduler, on a real API server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kube_cluster import KubeCluster, create, existing, wait_for
from kube_objects import group, node, pod
from kube_site import ENV, POD_PATH, pods, scheduling
from phalanx.bench.kubernetes import beside
from phalanx.bench.kubernetes.beside import Arrival, play, predicted, recording
from phalanx.cli.main import cli
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError
from phalanx.kube.pods.demand import demand_of
from phalanx.kube.shadow.history import history_of
from phalanx.kube.shadow.recording import entries_in
from phalanx.kube.shadow.report import report_of

pytestmark = pytest.mark.needs("kubernetes")

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def may_read(*resources: tuple[str, str]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Rights of the user `weak`, by API group and resource."""
    rules = [{"apiGroups": [api], "resources": [name], "verbs": ["list", "watch"]} for api, name in resources]
    version, named = {"apiVersion": "rbac.authorization.k8s.io/v1"}, {"metadata": {"name": "weak-reader"}}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "weak"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "weak-reader"}
    return (
        (f"{RBAC}/clusterroles", {**version, **named, "kind": "ClusterRole", "rules": rules}),
        (
            f"{RBAC}/clusterrolebindings",
            {**version, **named, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
        ),
    )


def bind(api: Client, name: str, to: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": to},
    }
    api.post(f"{POD_PATH}/{name}/binding", body)


@contextmanager
def binding_one_by_one(api: Client) -> Iterator[None]:
    """A scheduler that knows no gangs: the oldest pod goes where it fits."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.03):
            found = pods(api)
            used: Counter[str] = Counter()
            for each in found.values():
                if not each.is_over:
                    used[each.spec.node_name] += demand_of(each).gpus
            waiting = [each for each in found.values() if not each.spec.node_name]
            for each in sorted(waiting, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name)):
                to = next((name for name in ("n0", "n1") if used[name] + demand_of(each).gpus <= 8), "")
                if to:
                    bind(api, each.metadata.name, to)
                    used[to] += demand_of(each).gpus

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_what_it_reports_is_so_when_phalanx_schedules_the_same_arrivals(
    api: Client, cluster: KubeCluster, tmp_path: Path
) -> None:
    """A gang that finds half of its room takes that, and keeps what came after it waiting."""
    arrivals = [Arrival("w0", 0.0, 1, 8, 2.5), Arrival("w1", 0.3, 2, 8, 1.5), Arrival("w2", 0.6, 1, 8, 0.5)]
    create(api, node("n0"), node("n1"))
    with recording(api, tmp_path), binding_one_by_one(api):
        theirs = play(api, "another", arrivals, 60)
    report = report_of(history_of(entries_in(tmp_path)), "phalanx")
    said = predicted(report)
    assert {gang.job.partition("@")[0].rpartition("/")[2]: gang.gpus for gang in report.gangs}["w1"] == 16
    for path in (beside.PODS, beside.GROUPS):
        beside.clear(api, path)
    with scheduling(cluster):
        ours = play(api, "phalanx", arrivals, 60)
    assert theirs.keys() == said.keys() == ours.keys()
    assert theirs["w2"] > 3, "the other scheduler had it wait for the gang"
    assert said["w2"] < theirs["w2"] - 2
    # On a machine with much else to do a bind takes its time.
    assert said == {name: pytest.approx(wait, abs=1.2) for name, wait in ours.items()}
    other_verbs_read(tmp_path)


def other_verbs_read(folder: Path) -> None:
    """What a shadow wrote of three gangs that have ended is read by the verbs that look ahead."""

    def run(*arguments: str) -> Any:
        done = CliRunner().invoke(cli, [*arguments, "-o", "json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    run("kube", "shadow", str(folder), "--report")
    state, nodes = str(folder / "state.jsonl"), str(folder / "cluster.yaml")
    (sized,) = run("capacity", "--cluster", nodes, "--trace", state, "--target", "p95 queued < 1h")
    assert (sized["reached"], sized["answer"]["nodes"]) == (True, 2), "the gang of two takes both nodes"
    assert sized["answer"]["gpu_hours"]["mean"] > 0
    futures = run("what-if", "--add-nodes", "1", "--state", state)
    assert [futures[each]["jobs"] for each in ("as_it_is", "what_if")] == [0, 0], "all have ended"
    wanted = folder / "wanted.yaml"
    wanted.write_text("version: 1\nname: wanted\ncommand: [x]\ngang: [{gpus: 8, replicas: 2}]\n")
    for where in (("--cluster", nodes), ("--state", state)):
        (planned,) = run("plan", str(wanted), *where)
        assert (planned["state"], sorted(planned["nodes"])) == ("starting", ["n0", "n1"]), "both are free again"


def test_with_half_of_its_rights_it_says_what_is_missing_and_goes_on(
    api: Client, cluster: KubeCluster, tmp_path: Path
) -> None:
    create(api, node("n0"), node("n1"), group("g", 2), pod("g-0", 8, "g"), pod("late", 8))
    bind(api, "g-0", "n0")
    config, folder = tmp_path / "weak", tmp_path / "recorded"
    cluster.write_kubeconfig(config, "weak")
    command = [sys.executable, "-m", "phalanx", "kube", "shadow", str(folder), "--kubeconfig", str(config)]
    refused = subprocess.run(command, capture_output=True, timeout=60, env=ENV)
    assert refused.returncode == 1
    assert b"need list and watch on nodes and pods" in refused.stderr
    with existing(api, *may_read(("", "nodes"), ("", "pods"))):
        wait_for("it may", lambda: may_list(cluster))
        process = subprocess.Popen([*command, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV)
        try:
            assert process.stderr is not None
            told = []
            while "recording https://" not in (line := process.stderr.readline().decode()):
                assert line, told
                told.append(line)
            bind(api, "late", "n1")
            recorded = folder / "recording.jsonl"
            wait_for("it was recorded", lambda: b'"nodeName":"n1"' in recorded.read_bytes())
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate()
    assert any("not recorded: scheduling.x-k8s.io" in line and "403" in line for line in told)
    report = json.loads(out)
    assert any("scheduling.x-k8s.io" in line for line in report["missing"])
    assert [gang["job"].partition("@")[0] for gang in report["gangs"]] == ["default/late"]
    # Without its group g-0 is a pod alone, which ran before.
    assert report["not_counted"] == 1


def may_list(cluster: KubeCluster) -> bool:
    with Client(replace(cluster.access(), token=lambda: "weak")) as client:
        try:
            client.ask("GET", "/api/v1/nodes?limit=1")
            client.ask("GET", "/api/v1/pods?limit=1")
        except ApiError:
            return False
    return True


def test_other_verbs_read_what_a_snapshot_wrote(api: Client, cluster: KubeCluster, tmp_path: Path) -> None:
    ended = pod("ended", 4)
    create(api, node("n0"), ended, pod("runs", 8), pod("waits", 8))
    bind(api, "ended", "n0")
    state = {"name": "main", "ready": False, "restartCount": 0, "image": "none", "imageID": ""}
    began = pods(api)["ended"].metadata.creation_timestamp
    state["state"] = {"terminated": {"exitCode": 0, "finishedAt": began}}  # type: ignore[assignment]
    api.patch(f"{POD_PATH}/ended/status", {"status": {"phase": "Succeeded", "containerStatuses": [state]}})
    bind(api, "runs", "n0")

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    folder = tmp_path / "snapshot"
    shown = json.loads(run("kube", "snapshot", str(folder), "--kubeconfig", str(cluster.kubeconfig), "-o", "json"))
    (row,) = shown
    assert row["job"].startswith("default/waits@")
    assert (row["reason"], row["gpus"]) == ("gpus", 8)
    state_file, cluster_file = folder / "state.jsonl", folder / "cluster.yaml"
    assert "GPU" in run("why", row["job"], "--state", str(state_file))
    compared = run("compare", "--cluster", str(cluster_file), "--trace", str(state_file), "--policy", "fifo")
    assert "fifo" in compared
    again = json.loads(run("kube", "snapshot", str(folder), "--recorded", "-o", "json"))
    assert again == shown
