"""Where pods are made: one namespace of one API server, for one phalanx server."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from phalanx.backends.kubernetes.manifests import Manifest
from phalanx.backends.kubernetes.pod import SERVER, TaskPod, read_pod
from phalanx.backends.kubernetes.settings import Settings
from phalanx.errors import PhalanxError
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError, ConflictError, ForbiddenError, NotFoundError
from phalanx.kube.api.reflector import Page
from phalanx.kube.objects.meta import Stored

LEASE = "phalanx-server"
HANDS = 8
"""How many requests for one gang are under way at a time."""

PLURALS = {"Pod": "pods", "Service": "services", "Secret": "secrets"}

T = TypeVar("T")


class NamespaceError(PhalanxError):
    """A namespace that jobs cannot be run in now."""


class NamespaceTakenError(NamespaceError):
    """Another phalanx server makes pods there."""


@dataclass(frozen=True, slots=True)
class Site:
    """One namespace. `server` tells what this server made apart from what others did."""

    client: Client
    settings: Settings
    server: str

    @property
    def selector(self) -> str:
        """By what all that this server made is found."""
        return f"{SERVER}={self.server}"

    def path(self, plural: str, name: str = "") -> str:
        """Where objects of a kind are, or one of them is."""
        path = f"/api/v1/namespaces/{quote(self.settings.namespace)}/{plural}"
        return f"{path}/{quote(name, safe='')}" if name else path

    def create(self, manifest: Manifest) -> bytes:
        """Creates an object; one of this server that is there already counts as well."""
        plural, name = PLURALS[manifest["kind"]], manifest["metadata"]["name"]
        try:
            return self.client.post(self.path(plural), manifest)
        except ConflictError as conflict:
            found = self.client.ask("GET", self.path(plural, name))
            there = read_pod(found)
            if (there.metadata.labels or {}).get(SERVER) != self.server:
                what = f"{manifest['kind'].lower()} {name} is there already, and not of this server"
                raise ConflictError(409, what) from conflict
            if there.spec.node_name or there.metadata.deletion_timestamp is not None:
                raise ConflictError(409, f"a pod {name} of before is not gone yet") from conflict
            return found

    def bind(self, name: str, node: str) -> None:
        """Gives a pod its node; one that has it already keeps it."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        try:
            self.client.post(f"{self.path('pods', name)}/binding", body)
        except ConflictError:
            pod = self.pod(name)
            if pod is None or pod.spec.node_name != node:
                raise

    def pod(self, name: str) -> TaskPod | None:
        """A pod of this server as it is now; None if there is none."""
        try:
            pod = read_pod(self.client.ask("GET", self.path("pods", name)))
        except NotFoundError:
            return None
        return pod if (pod.metadata.labels or {}).get(SERVER) == self.server else None

    def pods(self) -> list[TaskPod]:
        """All pods of this server."""
        query = urlencode({"labelSelector": self.selector})
        page = msgspec.json.decode(self.client.ask("GET", f"{self.path('pods')}?{query}"), type=Page)
        return [read_pod(bytes(item)) for item in page.items or ()]

    def delete_pod(self, name: str, uid: str, grace_s: int) -> None:
        """Has a pod end within its grace; with 0 it is forgotten at once, whatever runs."""
        options = {"gracePeriodSeconds": grace_s, "preconditions": {"uid": uid}}
        try:
            self.client.delete(self.path("pods", name), options)
        except (NotFoundError, ConflictError):
            # It is gone, or another has its name.
            return

    def delete(self, plural: str, name: str) -> None:
        """Deletes what may be gone already."""
        try:
            self.client.delete(self.path(plural, name))
        except NotFoundError:
            return

    def made(self, plural: str) -> Iterator[Stored]:
        """All objects of a kind that this server made."""
        query = urlencode({"labelSelector": self.selector})
        page = msgspec.json.decode(self.client.ask("GET", f"{self.path(plural)}?{query}"), type=Page)
        return (msgspec.json.decode(item, type=Stored) for item in page.items or ())

    def claim(self) -> None:
        """Takes the namespace for this server, for good; raises where another has it."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(self.settings.namespace)}/leases"
        spec = {"holderIdentity": self.server}
        wanted = {"metadata": {"name": LEASE, "annotations": {"phalanx.dev/host": os.uname().nodename}}, "spec": spec}
        try:
            held = self.client.get(f"{path}/{LEASE}", dict[str, Any])
        except NotFoundError:
            try:
                held = msgspec.json.decode(self.client.post(path, wanted))
            except ConflictError:
                held = self.client.get(f"{path}/{LEASE}", dict[str, Any])
            except NotFoundError as error:
                name = self.settings.namespace
                raise NamespaceError(f"namespace {name}: there is none; `kubectl create namespace {name}`") from error
        holder = held.get("spec", {}).get("holderIdentity", "")
        if holder != self.server:
            where = held["metadata"].get("annotations", {}).get("phalanx.dev/host", "an unknown host")
            raise NamespaceTakenError(
                f"namespace {self.settings.namespace}: the phalanx server {holder} of {where} runs its jobs there, and "
                f"this one is {self.server}; name another namespace, or, if that server is no more, "
                f"`kubectl delete lease {LEASE} -n {self.settings.namespace}`"
            )


def for_all(work: Callable[[T], None], items: Iterable[T]) -> None:
    """Does something with each, some at a time. The first error is raised once all are through."""
    wanted = list(items)
    if len(wanted) < 2:
        for each in wanted:
            work(each)
        return
    with ThreadPoolExecutor(min(HANDS, len(wanted)), "kubernetes requests") as hands:
        asked = [hands.submit(work, each) for each in wanted]
    for done in asked:
        done.result()


def passes(error: ApiError) -> bool:
    """Whether a refusal is one of the moment: a quota, a name or a node that is not there now."""
    if isinstance(error, ForbiddenError):
        return "exceeded quota" in str(error) or "being terminated" in str(error)
    return error.status in (404, 409, 429) or error.status >= 500


def server_name(folder: Path) -> str:
    """What tells this server from others on the cluster: drawn once, and kept."""
    path = folder / "kubernetes-name"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        draft = path.with_suffix(".new")
        draft.write_text(secrets.token_hex(6))
        os.replace(draft, path)
        return path.read_text().strip()
