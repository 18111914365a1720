"""What is wrong in a cluster, on a real API server: it is told where it is, ends nothing else, and passes."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_cluster import MANIFESTS, KubeCluster, create, existing, wait_for
from kube_objects import group, node, pod
from kube_site import POD_PATH, events, gang, nodes_of, pods, reason, scheduling, verb
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError
from phalanx.kube.jobs.tracked import Step
from tcp_relay import Relay

pytestmark = pytest.mark.needs("kubernetes")

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
ROLE_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


class Webhook(HTTPServer):
    """An admission webhook that refuses what has some names, over TLS."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Review)
        self.refused: set[str] = set()
        self.certificate = folder / "webhook.crt"
        key = folder / "webhook.key"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=webhook"),
                *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", self.certificate),
            ],
            check=True,
            capture_output=True,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def configuration(self) -> dict[str, Any]:
        """Has the API server ask it whether a pod may be bound."""
        ca = subprocess.run(["base64", "-w0", self.certificate], check=True, capture_output=True).stdout.decode()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
        webhook = {
            "name": "binding.phalanx.test",
            "clientConfig": {"url": f"https://127.0.0.1:{self.server_port}/", "caBundle": ca},
            "rules": [rule],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 2,
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "refuse"},
            "webhooks": [webhook],
        }


class Review(BaseHTTPRequestHandler):
    """Answers one question of the API server."""

    server: Webhook

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        is_allowed = asked["name"] not in self.server.refused
        answer = {"uid": asked["uid"], "allowed": is_allowed, "status": {"message": "not on my watch"}}
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def answering(webhook: Webhook) -> Iterator[None]:
    """A webhook that answers meanwhile."""
    thread = threading.Thread(target=webhook.serve_forever)
    thread.start()
    try:
        yield
    finally:
        webhook.shutdown()
        thread.join()
        webhook.server_close()


def said_to_a_bind(api: Client, name: str) -> str:
    """What the server says to a bind that is only tried."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n0"},
    }
    try:
        api.post(f"{POD_PATH}/{name}/binding", body, dryRun="All")
    except ApiError as error:
        return str(error)
    return ""


def test_a_gang_of_which_a_webhook_refuses_one_pod_is_undone_and_bound_once_it_allows_it(
    api: Client, cluster: KubeCluster, tmp_path: Path
) -> None:
    webhook = Webhook(tmp_path)
    webhook.refused.add("g-1")
    create(api, node("n0"), node("n1"), *gang("g", 2))
    with answering(webhook), existing(api, (WEBHOOKS, webhook.configuration)):
        wait_for("the webhook is asked", lambda: "not on my watch" in said_to_a_bind(api, "g-1"))

        def is_bound_once_it_is_whole() -> bool:
            # The owner of a gang makes its pods anew.
            if "g-0" not in pods(api):
                create(api, pod("g-0", 8, "g"))
            return len(nodes_of(api)) == 2

        with scheduling(cluster):
            wait_for("an event says so", lambda: any("not on my watch" in each for each in events(api, "g-1")))
            webhook.refused.clear()
            wait_for("the gang is bound whole", is_bound_once_it_is_whole, 60)


def test_a_webhook_that_does_not_answer_holds_a_gang_up_and_no_more(
    api: Client, cluster: KubeCluster, tmp_path: Path
) -> None:
    """It refuses every bind, so nothing is bound in part."""
    webhook = Webhook(tmp_path)
    configuration = webhook.configuration
    webhook.server_close()
    create(api, node("n0"), *gang("g", 2, 1))
    with existing(api, (WEBHOOKS, configuration)):
        wait_for("the webhook is missed", lambda: "failed calling webhook" in said_to_a_bind(api, "g-1"))
        with scheduling(cluster):
            wait_for("the pod says so", lambda: "failed calling webhook" in reason(api, "g-1"))
            assert (sorted(pods(api)), nodes_of(api)) == (["g-0", "g-1"], {})
            api.delete(f"{WEBHOOKS}/refuse")
            wait_for("the gang is bound", lambda: len(nodes_of(api)) == 2, 60)


def test_a_gang_of_which_another_scheduler_takes_a_pod_meanwhile_is_undone(api: Client, cluster: KubeCluster) -> None:
    """The pod that the other bound stays: it is not ours to end. With one in place of the rest the gang is whole."""
    create(api, *(node(f"n{i}") for i in range(3)))
    with scheduling(cluster) as run:
        bind = run.binder.bind

        def bind_late(*arguments: Any) -> None:
            run.binder.bind = bind  # type: ignore[method-assign]
            bind_elsewhere(api, "g-1", {node for _, node in arguments[2]})
            bind(*arguments)

        run.binder.bind = bind_late  # type: ignore[method-assign, assignment]
        create(api, *gang("g", 2))
        wait_for("its other pod is deleted", lambda: list(pods(api)) == ["g-1"])
        create(api, pod("g-0", 8, "g"))
        wait_for("the gang is whole", lambda: len(nodes_of(api)) == 2)


def bind_elsewhere(api: Client, name: str, planned: set[str]) -> None:
    """Binds a pod to a node that was not planned for it."""
    target = {"apiVersion": "v1", "kind": "Node", "name": ({"n0", "n1", "n2"} - planned).pop()}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    api.post(f"{POD_PATH}/{name}/binding", body)


def test_a_bind_that_was_done_by_a_request_whose_answer_was_lost_counts(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"))
    with scheduling(cluster) as run:
        bind = run.binder.bind

        def bind_twice(job: str, attempt: int, places: Any) -> None:
            each, where = places[0]
            target = {"apiVersion": "v1", "kind": "Node", "name": where}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": each.metadata.name}, "target": target}
            api.post(f"{POD_PATH}/{each.metadata.name}/binding", body)
            bind(job, attempt, places)

        run.binder.bind = bind_twice  # type: ignore[method-assign, assignment]
        create(api, *gang("g", 2))
        wait_for("the gang is bound", lambda: len(nodes_of(api)) == 2)
        jobs = run.scheduler.roster.tracked
        wait_for("and known as bound", lambda: [each.step for each in list(jobs.values())] == [Step.BOUND])
        uids = {name: each.metadata.uid for name, each in pods(api).items()}
        create(api, pod("next", 8))
        wait_for("the next finds no room", lambda: bool(reason(api, "next")))
    assert uids == {name: each.metadata.uid for name, each in pods(api).items() if name != "next"}


MALFORMED = {
    "gang-word": {"phalanx.dev/gang": "all"},
    "gang-negative": {"phalanx.dev/gang": "-2"},
    "gang-digits": {"phalanx.dev/gang": "٢"},
    "gang-long": {"phalanx.dev/gang": "9" * 5000},
    "save": {"phalanx.dev/save": "http://elsewhere/save"},
    "save-port": {"phalanx.dev/save": ":99999/save"},
    "within": {"phalanx.dev/save": ":80/", "phalanx.dev/save-within": "soon"},
}


def test_a_malformed_annotation_is_told_by_an_event_on_its_pod_and_harms_no_other(
    api: Client, cluster: KubeCluster
) -> None:
    create(api, node("n0"))
    with scheduling(cluster):
        for name, annotations in MALFORMED.items():
            written = pod(name, 1)
            written["metadata"]["annotations"] = annotations
            create(api, written)
        create(api, pod("fine", 1))
        wait_for("the other is bound", lambda: "fine" in nodes_of(api))
        for name, annotations in MALFORMED.items():
            said = f"annotation {list(annotations)[-1]}: expected"
            wait_for(f"{name} is told", lambda name=name, said=said: any(said in each for each in events(api, name)))  # type: ignore[misc]
        assert list(nodes_of(api)) == ["fine"]


def test_pods_whose_group_never_comes_wait_and_hold_nothing(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), pod("g-0", 8, "never"), pod("g-1", 8, "never"))
    with scheduling(cluster):
        wait_for("an event says so", lambda: any("is not there yet" in each for each in events(api, "g-1")))
        create(api, pod("other", 8))
        wait_for("another has the node", lambda: nodes_of(api) == {"other": "n0"})
        for name in ("g-0", "g-1"):
            api.delete(f"{POD_PATH}/{name}", {"gracePeriodSeconds": 0})
        wait_for("they can be deleted", lambda: list(pods(api)) == ["other"])


def test_hundreds_of_pods_at_once_are_whole_gangs_that_run_or_are_told_why(api: Client, cluster: KubeCluster) -> None:
    """25 gangs of 8, of which 4 find room. The members of all come in turns."""
    create(api, *(node(f"n{i}") for i in range(4)), *(group(f"g{i}", 8) for i in range(25)))
    members = [pod(f"g{i}-{rank}", 1, f"g{i}") for rank in range(8) for i in range(25)]
    with scheduling(cluster):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda each: create(api, each), members))
        wait_for("all nodes are full", lambda: len(nodes_of(api)) == 32, 180)
        wait_for("all others are told", lambda: sum(bool(each) for each in reasons(api)) == 168, 180)
    sizes = Counter(name.partition("-")[0] for name in nodes_of(api))
    assert list(sizes.values()) == [8] * 4


def reasons(api: Client) -> list[str]:
    """What each pending pod waits for."""
    return [
        next((each.message for each in found.status.conditions or () if each.type == "PodScheduled"), "")
        for found in pods(api).values()
        if not found.spec.node_name
    ]


def role_of_weak(*left_out: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """What the manifest allows, but for some resources, for the user `weak`."""
    manifest = yaml.safe_load_all(MANIFESTS[0].read_text())
    role = next(each for each in manifest if each["kind"] == "ClusterRole")
    rules = [
        {**rule, "resources": kept}
        for rule in role["rules"]
        if (kept := [each for each in rule["resources"] if each not in left_out])
    ]
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "weak"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "weak"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "weak"}],
    }
    return (ROLES, {**role, "metadata": {"name": "weak"}, "rules": rules}), (ROLE_BINDINGS, binding)


def test_an_account_that_may_not_bind_says_so_and_goes_on_once_it_may(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), *gang("g", 2, 1))
    weak = Client(replace(cluster.access(), token=lambda: "weak"))
    with existing(api, *role_of_weak("pods/binding")):
        wait_for("it may read", lambda: can(cluster, "/api/v1/pods"))
        with scheduling(cluster, client=weak):
            wait_for("the pod says what is denied", lambda: 'User "weak" cannot create' in reason(api, "g-1"))
            assert (sorted(pods(api)), nodes_of(api)) == (["g-0", "g-1"], {})
            (path, whole), _ = role_of_weak()
            api.patch(f"{path}/weak", {"rules": whole["rules"]}, "merge-patch")
            wait_for("the gang is bound", lambda: len(nodes_of(api)) == 2, 60)


def can(cluster: KubeCluster, path: str) -> bool:
    """Whether the user `weak` may read something by now: the server learns of roles a moment later."""
    with Client(replace(cluster.access(), token=lambda: "weak")) as weak:
        try:
            weak.ask("GET", path)
        except ApiError:
            return False
        return True


def test_a_token_that_is_revoked_ends_the_verb_with_what_the_server_says(
    api: Client, cluster: KubeCluster, tmp_path: Path
) -> None:
    """The token is read anew for each request. A connection that stands is not asked again, so all are broken."""
    token, config = tmp_path / "token", tmp_path / "config"
    token.write_text("scheduler")
    cluster.write_kubeconfig(config, "")
    written = yaml.safe_load(config.read_text())
    written["users"] = [{"name": "test", "user": {"tokenFile": str(token)}}]
    create(api, node("n0"), pod("a", 1))
    with Relay(cluster.port) as relay:
        written["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{relay.port}"
        config.write_text(yaml.safe_dump(written))
        _revoke(api, cluster, config, token, relay)


def _revoke(api: Client, cluster: KubeCluster, config: Path, token: Path, relay: Relay) -> None:
    with verb(cluster, "--kubeconfig", str(config)) as process:
        wait_for("it schedules", lambda: "a" in nodes_of(api), 60)
        token.write_text("revoked")
        relay.cut()
        assert process.wait(60) == 1
        assert process.stderr is not None
        assert b"401: Unauthorized" in process.stderr.read()
