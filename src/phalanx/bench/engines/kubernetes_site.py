"""A Kubernetes of one's own for benchmarks: an API server, and nodes of kwok whose pods end as they are asked to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec

from phalanx.backends.kubernetes.settings import VARIABLE, Settings
from phalanx.bench.engines.silent_logs import SilentLogs
from phalanx.bench.kubernetes.control_plane import ControlPlane, programs
from phalanx.bench.kubernetes.kwok import LISTS_IN_PAGES, NodesOfKwok, nodes_of_kwok

READY_S = 300.0
BY_ADDRESS = "--kubelet-preferred-address-types=InternalIP"
"""Has the API server read logs at the addresses of nodes, whose names are in no DNS."""

STAGES = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-runs}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Pending]}
  next:
    statusTemplate: |
      phase: Running
      containerStatuses:
      - name: task
        image: none
        imageID: ""
        ready: true
        restartCount: 0
        state: {running: {startedAt: {{ Now | Quote }}}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ends}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Running]}
  delay:
    durationMilliseconds: 0
    durationFrom: {expressionFrom: '.spec.containers[0].command[1] + "s"'}
  next:
    statusTemplate: |
      phase: Succeeded
      containerStatuses:
      - name: task
        image: none
        imageID: ""
        ready: false
        restartCount: 0
        state: {terminated: {exitCode: 0, reason: Completed, finishedAt: {{ Now | Quote }}}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-goes}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector: {matchExpressions: [{key: .metadata.deletionTimestamp, operator: Exists}]}
  next: {finalizers: {empty: true}, delete: true}
"""
"""A pod runs at once, for as long as its command `sleep SECONDS` says."""


class Kubernetes:
    """etcd, an API server and kwok, until `stop`. Nothing is run: a pod's phases are all there is of it."""

    def __init__(self, folder: Path, nodes: int, gpus: int) -> None:
        self._folder, self._nodes, self._gpus = folder, nodes, gpus
        self._plane = ControlPlane(folder, programs(), options=(LISTS_IN_PAGES, BY_ADDRESS))
        self._open = ExitStack()
        settings = folder / "settings.yaml"
        self.environment: Mapping[str, str] = {
            **os.environ,
            "KUBECONFIG": str(self._plane.kubeconfig),
            VARIABLE: str(settings),
        }

    def start(self) -> None:
        """Returns when the nodes are there, and a namespace for the server."""
        self._open.callback(self._plane.stop)
        self._plane.start()
        api = self._open.enter_context(self._plane.client())
        settings = Settings(image="none")
        Path(self.environment[VARIABLE]).write_bytes(msgspec.yaml.encode({"image": settings.image}))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": settings.namespace}}
        api.post("/api/v1/namespaces", namespace)
        logs = SilentLogs(api, self._plane.root / "certificates")
        self._open.callback(logs.close)
        wanted = NodesOfKwok(self._nodes, self._gpus, STAGES, logs.port)
        self._open.enter_context(nodes_of_kwok(self._plane, api, wanted, READY_S))

    def stop(self) -> None:
        """Ends all of it."""
        self._open.close()
