"""Events: what is said of an object where its users look for it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError
from phalanx.kube.objects.meta import Metadata

COMPONENT = "phalanx"
MESSAGE_MAX = 1000


def post_event(client: Client, of: dict[str, str], metadata: Metadata, kind: str, reason: str, message: str) -> None:
    """Writes an event on an object, whose apiVersion and kind are `of`. One that cannot be written is left."""
    now = written(datetime.now(UTC))
    # Events on objects of no namespace are in the default one.
    name, namespace = metadata.name, metadata.namespace or "default"
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{time.time_ns():x}", "namespace": namespace},
        "involvedObject": {**of, "name": name, "namespace": metadata.namespace, "uid": metadata.uid},
        "type": kind,
        "reason": reason,
        "message": message[:MESSAGE_MAX],
        "source": {"component": COMPONENT},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        client.post(f"/api/v1/namespaces/{namespace}/events", event)
    except ApiError:
        return


def written(moment: datetime) -> str:
    """A moment as Kubernetes has it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
