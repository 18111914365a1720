"""A node provider for Ray's own autoscaler (v1): a site's commands list, start and stop its nodes.

In the cluster file of Ray:

    provider:
      type: external
      module: phalanx.backends.ray.scaling.provider.PhalanxNodeProvider
      list: [/site/nodes]              # prints a JSON list of {id, type, ip, kind, status}
      start: [/site/start]             # is called with a type and a number of nodes
      stop: [/site/stop]               # is called with the ids of nodes
      busy: [phalanx, nodes, -o, json] # of which nodes phalanx uses; the default
      disable_node_updaters: true
      disable_launch_config_check: true
      foreground_node_launch: true

A node that phalanx uses is never stopped, whatever Ray thinks of it; while phalanx does not answer, nothing is scaled.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from ray.autoscaler.batching_node_provider import BatchingNodeProvider, NodeData, ScaleRequest

BUSY = ("phalanx", "nodes", "-o", "json")
PATIENCE_S = 60.0


class PhalanxNodeProvider(BatchingNodeProvider):  # type: ignore[misc]
    """Scales by the commands of a site. `busy` is what phalanx uses, as it was asked before this update."""

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        self._busy: frozenset[str] = frozenset()
        self._stopped: frozenset[str] = frozenset()

    def get_node_data(self) -> dict[str, NodeData]:
        """The nodes that there are, without those that were told to stop."""
        listed = json.loads(_said(self.provider_config["list"]))
        self._stopped &= frozenset(node["id"] for node in listed)
        return {node["id"]: _data(node) for node in listed if node["id"] not in self._stopped}

    def safe_to_scale(self) -> bool:
        """Whether phalanx says which nodes it uses: without that none may be stopped."""
        try:
            told = json.loads(_said(self.provider_config.get("busy", BUSY)))
        except (OSError, subprocess.SubprocessError, ValueError):
            return False
        self._busy = frozenset(node["name"] for node in told if node["gpus_used"] or node["jobs"])
        return True

    def submit_scale_request(self, scale_request: ScaleRequest) -> None:
        """Stops nodes that phalanx does not use, and starts those that are missing."""
        leaving = sorted(node for node in scale_request.workers_to_delete if node not in self._busy)
        present = self.cur_num_workers()
        if leaving:
            _said([*self.provider_config["stop"], *leaving])
            self._stopped |= frozenset(leaving)
        for type_, wanted in sorted(scale_request.desired_num_workers.items()):
            to_go = sum(1 for node in scale_request.workers_to_delete if self.node_data_dict[node].type == type_)
            missing = wanted + to_go - present[type_]
            if missing > 0:
                _said([*self.provider_config["start"], type_, str(missing)])


def _data(node: dict[str, Any]) -> NodeData:
    return NodeData(
        kind=node.get("kind", "worker"), type=node["type"], ip=node.get("ip"), status=node.get("status", "up-to-date")
    )


def _said(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
