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

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import ENV, create_priority, gang, nodes_of, pods
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ConflictError, NotFoundError
from phalanx.kube.install.manifests import Manifest, Site, looking_on, scheduling

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
