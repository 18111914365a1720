"""The lease: of several replicas the one that holds it schedules.

A holder renews it several times within its duration. One that could not, as it was paused or cut off, stops to write
before the lease can be another's, and ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError, ConflictError, NotFoundError
from phalanx.kube.objects.meta import Stored, Wire

RENEWALS = 6
"""How often the lease is renewed within its duration."""

HELD_SHARE = 2 / 3
"""The share of its duration after which a holder that could not renew it no longer writes."""


class LostError(ApiError):
    """Another replica may hold the lease by now."""


class LeaseSpec(Wire, frozen=True):
    """Which replica holds a lease, since when, and for how long."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class LeaseObject(Stored, frozen=True):
    """A Lease of the API."""

    spec: LeaseSpec = LeaseSpec()


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Which lease it is, by namespace and name, which replica this is, and how long the lease holds."""

    namespace: str
    name: str
    identity: str
    duration_s: int = 15


class Lease:
    """One replica's hold on the lease. `holds` may be asked by any thread."""

    def __init__(self, client: Client, settings: LeaseSettings) -> None:
        self._client = client
        self._settings = settings
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{settings.namespace}/leases"
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._held_until = 0.0
        self._seen: tuple[str, float] = ("", 0.0)

    @property
    def retry_s(self) -> float:
        """How long to wait between two tries."""
        return self._settings.duration_s / RENEWALS

    def holds(self) -> bool:
        """Whether no other replica can have the lease."""
        return time.monotonic() < self._held_until

    def try_take(self) -> bool:
        """Takes the lease if it is free, was not renewed for its duration, or is this replica's already."""
        now = time.monotonic()
        try:
            try:
                found = self._client.get(f"{self._path}/{self._settings.name}", LeaseObject)
            except NotFoundError:
                self._create()
            else:
                if not self._may_take(found, now):
                    return False
                self._update(found, self._settings.identity)
        except ConflictError:
            # Another replica was first.
            return False
        self._held_until = now + HELD_SHARE * self._settings.duration_s
        return True

    def keep(self, lost: Callable[[LostError], None]) -> None:
        """Renews the lease from now on; `lost` is told once if that fails for too long."""
        self._thread = threading.Thread(target=self._keep, args=(lost,), name="lease", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Gives the lease up, so that another replica need not wait for its end."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        if not self.holds():
            return
        self._held_until = 0.0
        try:
            self._update(self._client.get(f"{self._path}/{self._settings.name}", LeaseObject), "")
        except ApiError:
            return

    def _keep(self, lost: Callable[[LostError], None]) -> None:
        why = "it was paused for too long"
        while not self._closed.wait(self.retry_s):
            try:
                if self.holds() and self.try_take():
                    continue
            except ApiError as error:
                why = str(error)
            if not self.holds():
                lost(LostError(0, f"the lease {self._settings.namespace}/{self._settings.name} is lost: {why}"))
                return

    def _may_take(self, found: LeaseObject, now: float) -> bool:
        spec = found.spec
        if spec.holder_identity in ("", self._settings.identity):
            return True
        if self._seen[0] != found.metadata.resource_version:
            # How old a renewal is, only one's own clock can tell: the holder's may differ.
            self._seen = found.metadata.resource_version, now
        return now - self._seen[1] > (spec.lease_duration_seconds or self._settings.duration_s)

    def _create(self) -> None:
        body = self._body({"name": self._settings.name, "namespace": self._settings.namespace}, LeaseSpec())
        self._client.post(self._path, body)

    def _update(self, found: LeaseObject, holder: str) -> None:
        metadata = {
            "name": found.metadata.name,
            "namespace": found.metadata.namespace,
            # One that was written since is not overwritten.
            "resourceVersion": found.metadata.resource_version,
        }
        body = msgspec.json.encode(self._body(metadata, found.spec, holder))
        self._client.ask("PUT", f"{self._path}/{self._settings.name}", body)

    def _body(self, metadata: dict[str, str], before: LeaseSpec, holder: str | None = None) -> dict[str, object]:
        now, identity = _written(datetime.now(UTC)), self._settings.identity if holder is None else holder
        changes = identity != before.holder_identity
        spec = {
            "holderIdentity": identity,
            "leaseDurationSeconds": self._settings.duration_s,
            "acquireTime": now if changes else before.acquire_time or now,
            "renewTime": now,
            "leaseTransitions": before.lease_transitions + int(changes and bool(identity)),
        }
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def _written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
