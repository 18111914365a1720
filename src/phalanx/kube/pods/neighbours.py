"""Neighbours: whether a pod may go to a node beside the pods that are there, as kube-scheduler has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod, PodAffinityTerm
from phalanx.kube.pods.spread import Spread
from phalanx.kube.pods.terms import Namespaces, apart_terms, means, near_terms, spreads
from phalanx.kube.pods.volumes import Volumes, claims_of

NEAR, APART, SPARED, SPREAD = (
    "its pod affinity",
    "its pod anti-affinity",
    "the pod anti-affinity of pods there",
    "its topology spread",
)
"""What keeps a pod off a node."""


NO_VOLUMES = Volumes()

KINDS_MAX, WRITTEN_MAX = 5_000, 100_000
"""Pods that say different things, and versions of pods, for which something is kept."""


class Open(NamedTuple):
    """The nodes to which some pods may go, and how many are ruled out by what. What says the same has one `name`."""

    nodes: tuple[str, ...]
    refusals: Mapping[str, int]
    name: str


class Neighbours:
    """The pods on nodes, as far as others mind them, and the volumes that they have.

    What a pod minds is counted once for all that say the same, and counted on as pods come and go: with thousands of
    pods that mind others, a change costs what it changes.
    """

    def __init__(self, nodes: Mapping[str, KubeNode], namespaces: Namespaces, volumes: Volumes = NO_VOLUMES) -> None:
        self._nodes = nodes
        self._namespaces = namespaces
        self._volumes = volumes
        self._placed: dict[int, tuple[Pod, KubeNode]] = {}
        self._shy: dict[int, tuple[Pod, KubeNode]] = {}
        self._next = 0
        self._rules: dict[bytes, _Rules] = {}
        self._written: dict[tuple[str, str], bytes] = {}
        self._open: dict[tuple[bytes, ...], tuple[tuple[int, ...], Open]] = {}

    def add(self, pod: Pod, node: KubeNode) -> int:
        """Has a pod be on a node from now on. The number is by which it is removed."""
        number, self._next = self._next, self._next + 1
        self._placed[number] = pod, node
        if apart_terms(pod):
            self._shy[number] = pod, node
        for rules in self._rules.values():
            rules.note(pod, node)
        return number

    def remove(self, number: int) -> None:
        """Has a pod be there no more."""
        pod, node = self._placed.pop(number)
        self._shy.pop(number, None)
        for rules in self._rules.values():
            rules.note(pod, node, -1)

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        """What is added meanwhile is removed in the end."""
        first = self._next
        try:
            yield
        finally:
            for number in range(first, self._next):
                if number in self._placed:
                    self.remove(number)

    def forget(self) -> None:
        """Gives up what was counted for pods of which there may be none any more. It is counted anew where asked."""
        if len(self._rules) > KINDS_MAX or len(self._written) > WRITTEN_MAX:
            self._rules.clear()
            self._open.clear()
            self._written.clear()

    def refusal(self, pod: Pod, node: KubeNode) -> str:
        """What keeps a pod off a node; empty if nothing does."""
        return self._rules_of(pod).refusal(node) or self._volumes.refusal(pod, node)

    def open_to(self, pods: Iterable[Pod]) -> Open:
        """The nodes to which all pods may go, each by itself."""
        kinds: dict[bytes, Pod] = {}
        with_claims = []
        for pod in pods:
            kinds.setdefault(self._key_of(pod), pod)
            if any(claims_of(pod)):
                with_claims.append(pod)
        if with_claims:
            name = ",".join(sorted(pod.metadata.uid for pod in with_claims))
            return self._look(list(kinds.values()), with_claims, (*sorted(kinds), name.encode()))
        key = tuple(sorted(kinds))
        versions = tuple(self._rules_of(pod).version for pod in kinds.values())
        known = self._open.get(key)
        if known is None or known[0] != versions:
            known = self._open[key] = versions, self._look(list(kinds.values()), (), key)
        return known[1]

    def _look(self, kinds: Sequence[Pod], with_claims: Iterable[Pod], key: Iterable[bytes]) -> Open:
        all_rules = [self._rules_of(pod) for pod in kinds]
        found, refusals = [], Counter[str]()
        for name, node in self._nodes.items():
            refusal = next(filter(None, (rules.refusal(node) for rules in all_rules)), "")
            refusal = refusal or next(filter(None, (self._volumes.refusal(pod, node) for pod in with_claims)), "")
            if refusal:
                refusals[refusal] += 1
            else:
                found.append(name)
        return Open(tuple(found), refusals, blake2b(b"\0".join(key), digest_size=6).hexdigest())

    def is_first(self, pod: Pod) -> bool:
        """Whether there is no pod yet that a pod must be near."""
        return self._rules_of(pod).is_first

    def crowd(self, pod: Pod, node: KubeNode) -> tuple[int, ...]:
        """How many pods there are already in each of the domains over which a pod is spread."""
        return tuple(each.count(node) for each in self._rules_of(pod).spreads)

    def _key_of(self, pod: Pod) -> bytes:
        version = pod.metadata.uid, pod.metadata.resource_version
        key = self._written.get(version)
        if key is None:
            key = self._written[version] = _written(pod)
        return key

    def _rules_of(self, pod: Pod) -> _Rules:
        key = self._key_of(pod)
        rules = self._rules.get(key)
        if rules is None:
            rules = self._rules[key] = _Rules(pod, self._nodes.values(), self._namespaces)
            for other, node in (self._placed if minds(pod) else self._shy).values():
                rules.note(other, node)
        return rules


class _Rules:
    """What a pod, and any that says the same, minds of other pods. `version` is another when that has changed."""

    def __init__(self, pod: Pod, nodes: Iterable[KubeNode], namespaces: Namespaces) -> None:
        self.version = 0
        self._pod = pod
        self._namespaces = namespaces
        self._near, self._apart = near_terms(pod), apart_terms(pod)
        constraints = spreads(pod)
        keys = tuple(each.topology_key for each in constraints)
        self.spreads = tuple(Spread(pod, each, keys, nodes) for each in constraints)
        self._may_be_first = all(means(term, pod, pod, namespaces) for term in self._near)
        self._beside: Counter[tuple[str, str]] = Counter()
        self._avoided: Counter[tuple[str, str]] = Counter()
        self._spared: Counter[tuple[str, str]] = Counter()

    def note(self, other: Pod, node: KubeNode, count: int = 1) -> None:
        """Takes note of another pod on a node, or with -1 that it is there no more."""
        if self._near and all(means(term, self._pod, other, self._namespaces) for term in self._near):
            self._change(self._beside, self._near, node, count)
        for term in self._apart:
            if means(term, self._pod, other, self._namespaces):
                self._change(self._avoided, (term,), node, count)
        for term in apart_terms(other):
            if means(term, other, self._pod, self._namespaces):
                self._change(self._spared, (term,), node, count)
        for spread in self.spreads:
            self.version += spread.note(other, node, count)

    def _change(
        self, counts: Counter[tuple[str, str]], terms: Iterable[PodAffinityTerm], node: KubeNode, count: int
    ) -> None:
        for pair in _domains(terms, node):
            counts[pair] += count
            if not counts[pair]:
                del counts[pair]
            self.version += 1

    @property
    def is_first(self) -> bool:
        """Whether none of the pods is there that it must be near, of which it is one itself."""
        return self._may_be_first and not self._beside

    def refusal(self, node: KubeNode) -> str:
        """What keeps the pod off a node."""
        labels = (node.metadata.labels or {}).items()
        if self._near and not self._is_near(node):
            return NEAR
        if self._avoided and any(pair in self._avoided for pair in labels):
            return APART
        if self._spared and any(pair in self._spared for pair in labels):
            return SPARED
        return "" if all(spread.allows(node) for spread in self.spreads) else SPREAD

    def _is_near(self, node: KubeNode) -> bool:
        pairs = _domains(self._near, node)
        if len(pairs) < len(self._near):
            return False
        if not self._beside:
            # The first of some pods that want to be near one another may go anywhere.
            return self._may_be_first
        return all(pair in self._beside for pair in pairs)


def minds(pod: Pod) -> bool:
    """Whether it matters to a pod where other pods are."""
    return bool(near_terms(pod) or apart_terms(pod) or spreads(pod))


def _domains(terms: Iterable[PodAffinityTerm], node: KubeNode) -> list[tuple[str, str]]:
    labels = node.metadata.labels or {}
    return [(term.topology_key, labels[term.topology_key]) for term in terms if term.topology_key in labels]


def _written(pod: Pod) -> bytes:
    """Equal for pods that mind, and are minded, alike."""
    spec = pod.spec
    says = (spec.affinity, spec.topology_spread_constraints, spec.node_selector, spec.tolerations)
    return msgspec.json.encode((pod.metadata.namespace, pod.metadata.labels, *says), order="deterministic")
