"""Nodes."""

from __future__ import annotations

from phalanx.kube.objects.meta import Condition, Resources, Stored, Wire


class NodeTaint(Wire, frozen=True):
    """What keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Wire, frozen=True):
    """What its operator says of a node."""

    unschedulable: bool = False
    taints: list[NodeTaint] | None = None


class NodeStatus(Wire, frozen=True):
    """What a node has, and how it is."""

    allocatable: Resources | None = None
    conditions: list[Condition] | None = None


class KubeNode(Stored, frozen=True):
    """A node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
