"""Whether a pod may go to a node beside the pods that are there: cases of kube-scheduler's rules, worked by hand."""

from __future__ import annotations

from typing import Any

from kube_objects import as_node, as_pod, node, pod
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.neighbours import APART, NEAR, SPREAD, Neighbours

ZONE = "zone"
NODES = {name: as_node(node(name, labels={ZONE: zone})) for name, zone in (("a0", "a"), ("a1", "a"), ("b0", "b"))}
NODES["bare"] = as_node(node("bare"))


def a_pod(labels: dict[str, str] | None = None, namespace: str = "default", **spec: Any) -> Pod:
    written = pod("p", namespace=namespace, **spec)
    written["metadata"]["labels"] = labels or {}
    return as_pod(written)


def allowed(each: Pod, *placed: tuple[Pod, str], namespaces: dict[str, dict[str, str]] | None = None) -> dict[str, str]:
    """What keeps a pod off each node."""
    around = Neighbours(NODES, namespaces or {})
    for other, where in placed:
        around.add(other, NODES[where])
    return {name: around.refusal(each, where) for name, where in NODES.items()}


def required(kind: str, **term: Any) -> dict[str, Any]:
    selector = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": ZONE}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{**selector, **term}]}}


def spread(**constraint: Any) -> list[dict[str, Any]]:
    selector = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": ZONE, "maxSkew": 1}
    return [{**selector, "whenUnsatisfiable": "DoNotSchedule", **constraint}]


X = a_pod({"app": "x"})


def test_the_first_of_pods_that_are_near_one_another_goes_to_any_node_with_the_label() -> None:
    first = a_pod({"app": "x"}, affinity=required("podAffinity"))
    assert allowed(first) == {"a0": "", "a1": "", "b0": "", "bare": NEAR}
    assert allowed(first, (X, "b0")) == {"a0": NEAR, "a1": NEAR, "b0": "", "bare": NEAR}


def test_a_pod_that_is_not_one_of_those_it_is_near_waits_for_them() -> None:
    assert set(allowed(a_pod(affinity=required("podAffinity"))).values()) == {NEAR}


def test_a_node_without_the_label_is_apart_from_all() -> None:
    shy = a_pod(affinity=required("podAntiAffinity"))
    assert allowed(shy, (X, "a0")) == {"a0": APART, "a1": APART, "b0": "", "bare": ""}


def test_a_term_means_pods_of_its_own_namespace_unless_it_says_otherwise() -> None:
    elsewhere = a_pod({"app": "x"}, "other")
    team = {"other": {"team": "blue"}, "default": {}}
    by_label = {"namespaceSelector": {"matchLabels": {"team": "blue"}}}
    for term, keeps_off in (({}, ""), ({"namespaces": ["other"]}, APART), ({"namespaceSelector": {}}, APART)):
        shy = a_pod(affinity=required("podAntiAffinity", **term))
        assert allowed(shy, (elsewhere, "a0"))["a1"] == keeps_off
    shy = a_pod(affinity=required("podAntiAffinity", **by_label))
    assert allowed(shy, (elsewhere, "a0"), namespaces=team)["a1"] == APART
    assert allowed(shy, (elsewhere, "a0"), namespaces={})["a1"] == ""


def test_label_keys_narrow_a_term_to_pods_of_the_same_value() -> None:
    shy = a_pod({"rev": "2"}, affinity=required("podAntiAffinity", matchLabelKeys=["rev"]))
    assert allowed(shy, (a_pod({"app": "x", "rev": "1"}), "a0"))["a0"] == ""
    assert allowed(shy, (a_pod({"app": "x", "rev": "2"}), "a0"))["a0"] == APART
    others = a_pod({"rev": "2"}, affinity=required("podAntiAffinity", mismatchLabelKeys=["rev"]))
    assert allowed(others, (a_pod({"app": "x", "rev": "2"}), "a0"))["a0"] == ""
    assert allowed(others, (a_pod({"app": "x", "rev": "1"}), "a0"))["a0"] == APART


def test_a_spread_counts_pods_by_domain_and_needs_the_label() -> None:
    even = a_pod({"app": "x"}, topologySpreadConstraints=spread())
    assert allowed(even, (X, "a0")) == {"a0": SPREAD, "a1": SPREAD, "b0": "", "bare": SPREAD}
    assert allowed(even, (X, "a0"), (X, "b0"))["a1"] == ""


def test_with_fewer_domains_than_wanted_the_least_is_none() -> None:
    even = a_pod({"app": "x"}, topologySpreadConstraints=spread(minDomains=3))
    assert allowed(even, (X, "a0"), (X, "b0"))["a1"] == SPREAD
    assert allowed(even)["a1"] == ""


def test_a_domain_to_which_a_pod_may_not_go_does_not_make_it_wait() -> None:
    picky = a_pod({"app": "x"}, topologySpreadConstraints=spread(), nodeSelector={ZONE: "a"})
    assert allowed(picky, (X, "a0"))["a1"] == ""
    all_count = a_pod(
        {"app": "x"}, topologySpreadConstraints=spread(nodeAffinityPolicy="Ignore"), nodeSelector={ZONE: "a"}
    )
    assert allowed(all_count, (X, "a0"))["a1"] == SPREAD


def test_a_pod_that_leaves_does_not_count_for_a_spread() -> None:
    leaving = as_pod(
        {
            **pod("gone"),
            "metadata": {
                "name": "gone",
                "namespace": "default",
                "labels": {"app": "x"},
                "deletionTimestamp": "2026-11-18T00:00:00Z",
            },
        }
    )
    even = a_pod({"app": "x"}, topologySpreadConstraints=spread())
    assert allowed(even, (leaving, "a0"))["a1"] == ""
