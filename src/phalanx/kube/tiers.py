"""Tiers: HyperNodes of Volcano as labels of the nodes that belong to them, so that they are levels of our tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from phalanx.kube.gangs.groups import TIER_LABEL
from phalanx.kube.objects.hyper_node import HyperNode, Member
from phalanx.kube.objects.meta import Labels
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.pods.labels import selects


def tier_labels(hyper_nodes: Iterable[HyperNode], asked: Iterable[str] = ()) -> tuple[str, ...]:
    """The labels of all tiers that there are, or that are `asked` for, outermost first."""
    tiers = {each.spec.tier for each in hyper_nodes}
    tiers.update(tier for tier in map(_tier, asked) if tier is not None)
    return tuple(f"{TIER_LABEL}{tier}" for tier in sorted(tiers, reverse=True))


def labels_by_node(
    hyper_nodes: Iterable[HyperNode], nodes: Mapping[str, KubeNode], tiers: Iterable[str]
) -> dict[str, Labels]:
    """The HyperNode that each node belongs to, of some tiers given by their labels, outermost first: the one of the
    highest tier up to that; of several of one tier, the first by name.
    """
    found: dict[str, dict[int, str]] = {}
    inside: dict[str, list[str]] = {}
    for each in sorted(hyper_nodes, key=lambda each: (each.spec.tier, each.metadata.name)):
        name = each.metadata.name
        members = (node for member in each.spec.members or () for node in _of(member, nodes, inside))
        inside[name] = list(dict.fromkeys(members))
        for node in inside[name]:
            found.setdefault(node, {}).setdefault(each.spec.tier, name)
    wanted = [tier for tier in map(_tier, tiers) if tier is not None]
    return {node: _up_to(of_node, wanted) for node, of_node in found.items()}


def _tier(label: str) -> int | None:
    said = label.removeprefix(TIER_LABEL)
    return int(said) if said != label and said.isdecimal() and said.isascii() else None


def _up_to(of_node: Mapping[int, str], wanted: Iterable[int]) -> Labels:
    labels = {}
    for tier in wanted:
        highest = max((each for each in of_node if each <= tier), default=None)
        if highest is not None:
            labels[f"{TIER_LABEL}{tier}"] = of_node[highest]
    return labels


def labelled(node: KubeNode, labels: Labels | None) -> KubeNode:
    """A node with more labels."""
    if not labels:
        return node
    metadata = msgspec.structs.replace(node.metadata, labels={**(node.metadata.labels or {}), **labels})
    return msgspec.structs.replace(node, metadata=metadata)


def _of(member: Member, nodes: Mapping[str, KubeNode], inside: Mapping[str, list[str]]) -> list[str]:
    """The nodes of a member. HyperNodes of lower tiers come before those that they belong to."""
    if member.type == "HyperNode":
        return [node for name in inside if _matches(member, name, {}) for node in inside[name]]
    return [name for name, node in nodes.items() if _matches(member, name, node.metadata.labels or {})]


def _matches(member: Member, name: str, labels: Labels) -> bool:
    selector = member.selector
    if selector.exact_match is not None:
        return selector.exact_match.name == name
    if selector.regex_match is not None:
        try:
            return re.search(selector.regex_match.pattern, name) is not None
        except re.error:
            # A pattern that is none matches nothing.
            return False
    return selects(selector.label_match, labels)
