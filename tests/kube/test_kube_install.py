"""What `phalanx kube install --print` prints, applied to a real API server: with these rights it schedules."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import ENV, create_priority, gang, nodes_of, pods
from phalanx.bench.kubernetes.control_plane import free_ports
from phalanx.cli.main import cli
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ConflictError, NotFoundError
from phalanx.kube.install.manifests import Manifest, Site, extending, looking_on, scheduling

pytestmark = pytest.mark.needs("kubernetes")

SITE = Site(name="installed", namespace="installed")


def path_of(manifest: Manifest) -> str:
    version, kind, namespace = manifest["apiVersion"], manifest["kind"], manifest["metadata"].get("namespace")
    prefix = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    return f"{prefix}/namespaces/{namespace}/{kind.lower()}s" if namespace else f"{prefix}/{kind.lower()}s"


@pytest.fixture
def installed(api: Client) -> Iterator[None]:
    """The manifests are applied, as kubectl does it."""
    manifests = scheduling(SITE)
    for each in manifests:
        with suppress(ConflictError):
            api.post(path_of(each), each, fieldValidation="Strict")
    yield
    for each in manifests[1:]:
        with suppress(NotFoundError):
            api.delete(f"{path_of(each)}/{each['metadata']['name']}")


def token_of(api: Client, site: Site) -> str:
    path = f"/api/v1/namespaces/{site.namespace}/serviceaccounts/{site.name}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(msgspec.json.decode(api.post(path, body))["status"]["token"])


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.usefixtures("installed")
def test_with_the_rights_that_are_printed_it_leads_binds_preempts_and_is_refused_nothing(
    api: Client, cluster: KubeCluster, tmp_path: Path
) -> None:
    create_priority(api, "urgent", 1000)
    create(api, node("n0"), node("n1"), *gang("g", 2))
    config = tmp_path / "config"
    cluster.write_kubeconfig(config, token_of(api, SITE))
    deployment = next(each for each in scheduling(SITE) if each["kind"] == "Deployment")
    _, *arguments = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    arguments[arguments.index("--listen") + 1] = "127.0.0.1:0"
    command = [sys.executable, "-m", "phalanx", *arguments, "--kubeconfig", str(config)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=ENV)
    try:
        assert process.stderr is not None
        found = re.search(r"metrics and probes at (\S+)", process.stderr.readline().decode())
        assert found is not None
        url = f"http://{found[1]}"
        wait_for("it is ready", lambda: get(f"{url}/readyz")[0] == 200 and "_leader 1.0" in get(f"{url}/metrics")[1])
        wait_for("the gang is bound", lambda: len(nodes_of(api)) == 2)
        create(api, pod("late", 8), pod("urgent", 8, priorityClassName="urgent", priority=1000))
        wait_for("it preempts", lambda: nodes_of(api).get("urgent", "") != "" and "g-0" not in pods(api))
        assert get(f"{url}/healthz") == (200, "ok\n")
        assert get(f"{url}/secrets")[0] == 404
        metrics = get(f"{url}/metrics")[1]
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert 'phalanx_kube_gangs{step="pending"}' in metrics
    assert 'method="POST"' in metrics
    codes = set(re.findall(r'phalanx_kube_api_requests_total\{code="(\d+)"', metrics))
    assert not codes & {"401", "403"}, "nothing is refused"


def test_the_account_of_a_shadow_may_read_and_no_more(api: Client, cluster: KubeCluster, tmp_path: Path) -> None:
    site = Site(name="onlooker", namespace="installed")
    for each in looking_on(site):
        with suppress(ConflictError):
            api.post(path_of(each), each, fieldValidation="Strict")
    create(api, node("n0"), pod("a", 16))
    config = tmp_path / "config"
    cluster.write_kubeconfig(config, token_of(api, site))
    command = [sys.executable, "-m", "phalanx.cli.kubectl", "plan", "--kubeconfig", str(config), "-o", "json"]
    done = subprocess.run(command, check=False, capture_output=True, timeout=60, env=ENV)
    assert done.returncode == 0, done.stderr
    assert b"not recorded" not in done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["job"].partition("@")[0], row["gpus"]) == ("default/a", 16)
    assert row["reason"] != "starts now"
    rules: list[dict[str, Any]] = next(each for each in looking_on(site) if each["kind"] == "ClusterRole")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list", "watch"}


def asked(address: str, uid: str) -> Any:
    """What the extender answers where kube-scheduler asks it for a node for a pod."""
    body = {"Pod": {"metadata": {"name": "a", "namespace": "default", "uid": uid}}, "NodeNames": ["n0"]}
    body["Pod"]["spec"] = pod("a", 8, schedulerName="default-scheduler")["spec"]  # type: ignore[index]
    with urllib.request.urlopen(f"http://{address}/filter", json.dumps(body).encode(), timeout=10) as answer:
        return json.loads(answer.read())


def test_of_two_extenders_with_the_rights_that_are_printed_the_holder_of_the_lease_is_asked(
    api: Client, cluster: KubeCluster, tmp_path: Path
) -> None:
    site = Site(name="extender", namespace="installed", arguments=("--lease-duration", "3"))
    manifests = extending(site)
    for each in manifests:
        with suppress(ConflictError):
            api.post(path_of(each), each, fieldValidation="Strict")
    create(api, node("n0"), pod("a", 8, schedulerName="default-scheduler"))
    uid = pods(api)["a"].metadata.uid
    config = tmp_path / "config"
    cluster.write_kubeconfig(config, token_of(api, site))
    deployment = next(each for each in manifests if each["kind"] == "Deployment")
    _, *arguments = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    where = arguments.index("--listen") + 1
    processes = []
    try:
        for address in addresses:
            command = [*arguments[:where], address, *arguments[where + 1 :], "--kubeconfig", str(config)]
            processes.append(subprocess.Popen([sys.executable, "-m", "phalanx", *command], env=ENV))
            wait_for("it listens", lambda address=address: is_up(address))  # type: ignore[misc]
            if len(processes) == 1:
                wait_for("the first is ready", lambda: get(f"http://{addresses[0]}/readyz")[0] == 200)
        first, second = addresses
        wait_for("the pod is given its node", lambda: asked(first, uid)["NodeNames"] == ["n0"])
        assert get(f"http://{second}/readyz") == (503, "not yet\n")
        assert get(f"http://{second}/healthz") == (200, "ok\n")
        assert asked(second, uid)["NodeNames"] == []
        processes[0].terminate()
        assert processes[0].wait(30) == 0
        wait_for("the second is ready", lambda: get(f"http://{second}/readyz")[0] == 200)
        wait_for("it gives the same node", lambda: asked(second, uid)["NodeNames"] == ["n0"])
    finally:
        for process in processes:
            process.terminate()
            process.wait(30)
        for each in manifests[1:]:
            with suppress(NotFoundError):
                api.delete(f"{path_of(each)}/{each['metadata']['name']}")


def is_up(address: str) -> bool:
    try:
        return get(f"http://{address}/healthz")[0] == 200
    except OSError:
        return False


def test_the_verb_prints_the_extender_as_it_prints_the_scheduler() -> None:
    def printed(*options: str) -> list[Any]:
        done = CliRunner().invoke(cli, ["kube", "install", "--print", "--image", "x", *options], catch_exceptions=False)
        return list(yaml.safe_load_all(done.output)) if done.exit_code == 0 else [done.output]

    assert printed("--extender") == extending(Site(image="x"))
    assert printed() == scheduling(Site(image="x"))
    command = printed("--extender", "--scheduler-name", "gpu")[6]["spec"]["template"]["spec"]["containers"][0][
        "command"
    ]
    assert command[-2:] == ["--scheduler-name", "gpu"]
    assert "expected --shadow or --extender, got both" in printed("--extender", "--shadow")[0]
