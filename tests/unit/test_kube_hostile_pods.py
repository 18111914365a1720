"""Pods that users of a namespace can write to harm others: each is told what is wrong, and the next pod is bound."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_objects import as_pod, node, pod
from kube_turns import Site
from phalanx.kube.api.reflector import Changed
from phalanx.kube.gangs.groups import VOLCANO
from phalanx.kube.objects.group import PodGroup
from phalanx.kube.pods.words import WORDS_MAX

ZONE = "topology.kubernetes.io/zone"
REQUIRED, PREFERRED = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))
TERM = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"a": "b"}}}
NODE_TERM = {"matchExpressions": [{"key": "k", "operator": "In", "values": ["x"]}]}
LARGEST = str(2**63 - 1)


def annotated(name: str, value: str) -> list[dict[str, Any]]:
    written = pod("p")
    written["metadata"]["annotations"] = {name: value}
    return [written]


def asking(**requests: str) -> list[dict[str, Any]]:
    written = pod("p", 0)
    written["spec"]["containers"][0]["resources"] = {"requests": requests}
    return [written]


def worker() -> dict[str, Any]:
    written = pod("p")
    written["metadata"]["labels"] = {
        "leaderworkerset.sigs.k8s.io/name": "l",
        "leaderworkerset.sigs.k8s.io/group-index": "0",
    }
    written["metadata"]["annotations"] = {"leaderworkerset.sigs.k8s.io/size": "9" * 5000}
    return written


def of_two_vendors() -> list[dict[str, Any]]:
    """A gang that is spread, whose pods ask for GPUs of two kinds."""
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    members = [pod(name, topologySpreadConstraints=[spread]) for name in ("p", "q")]
    for each in members:
        each["metadata"]["annotations"] = {"phalanx.dev/gang": "2"}
        each["metadata"]["ownerReferences"] = [{"kind": "X", "name": "o", "uid": "o", "controller": True}]
        each["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/gpu": "1", "amd.com/gpu": "1"}}
    return members


CASES = {
    "a gang of more digits than Python reads": (annotated("phalanx.dev/gang", "9" * 5000), "expected true on pods"),
    "a gang of a negative number": (annotated("phalanx.dev/gang", "-3"), "expected true on pods of a Job"),
    "a gang of Arabic digits": (annotated("phalanx.dev/gang", "٣"), "expected true on pods of a Job"),
    "a gang of a megabyte": (annotated("phalanx.dev/gang", "x" * 1_000_000), "x…'"),
    "an address of a megabyte": (annotated("phalanx.dev/save", "x" * 1_000_000), "expected a port and a path"),
    "a size of more digits than Python reads": ([worker()], "leaderworkerset.sigs.k8s.io/size: expected a number"),
    "GPUs of two kinds": (of_two_vendors(), "it asks for GPUs of nvidia.com/gpu and amd.com/gpu"),
    "a negative request": (asking(cpu="-5"), "it asks for -5 of cpu; expected at least 0"),
    "an endless request": (asking(cpu="1e999999"), "no part of this cluster could ever hold it"),
    "the largest request": (asking(memory=LARGEST), "no part of this cluster could ever hold it"),
    "no quantity": (asking(cpu="½"), "expected a quantity such as 16, 500m or 64Gi"),
    "required node affinity without end": (
        [pod("p", affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [NODE_TERM] * 10_000}}})],
        "bytes long; expected up to 32,768",
    ),
    "preferred node affinity without end": (
        [pod("p", affinity={"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": NODE_TERM}] * 10_000}})],
        "bytes long; expected up to 32,768",
    ),
    "pod affinity without end": (
        [pod("p", affinity={"podAntiAffinity": {REQUIRED: [TERM] * 10_000}})],
        "bytes long; expected up to 32,768",
    ),
    "tolerations without end": (
        [pod("p", tolerations=[{"key": f"k{i}", "operator": "Exists"} for i in range(10_000)])],
        "bytes long; expected up to 32,768",
    ),
    "labels without end": (
        [pod("p", nodeSelector={f"k{i}": "v" for i in range(10_000)})],
        "bytes long; expected up to 32,768",
    ),
    "a selector that is none": (
        [
            pod(
                "p",
                affinity={
                    "podAffinity": {
                        REQUIRED: [
                            {"topologyKey": "", "labelSelector": None},
                            {
                                "topologyKey": ZONE,
                                "labelSelector": {"matchExpressions": [{"key": "", "operator": "?"}]},
                            },
                        ]
                    }
                },
            )
        ],
        "ruled out by its pod affinity",
    ),
    "a number that no label is compared with": (
        [
            pod(
                "p",
                affinity={
                    "nodeAffinity": {
                        REQUIRED: {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["9" * 6000]}]}
                            ]
                        }
                    }
                },
            )
        ],
        "ruled out by its node affinity",
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_a_pod_is_told_what_is_wrong_with_it_and_others_are_bound(case: str) -> None:
    written, line = CASES[case]
    site = Site([node("n0", labels={ZONE: "a"}), node("n1", labels={ZONE: "b"})], map(as_pod, written))
    site.say(as_pod(pod("good")))
    assert [list(places) for _, _, places in site.asked.binds] == [["good"]]
    assert line in site.asked.lines["p"]
    assert len(site.asked.lines["p"]) < 1000 or "megabyte" in case


@pytest.mark.parametrize("requests", [{"cpu": LARGEST, "memory": LARGEST, "nvidia.com/gpu": LARGEST}, {"cpu": "-5"}])
def test_what_pods_of_other_schedulers_ask_for_can_be_added_up(requests: dict[str, str]) -> None:
    written = [*asking(**requests), *asking(**requests)]
    for i, each in enumerate(written):
        each["metadata"]["name"] = f"t{i}"
        each["spec"]["schedulerName"] = "other"
    site = Site(2, [as_pod(each, node="n0") for each in written])
    site.say(as_pod(pod("good", 8)))
    assert next(places for _, _, places in site.asked.binds)["good"] in (["n1"] if len(requests) > 1 else ["n0", "n1"])


def test_a_pod_that_says_as_much_as_is_looked_through_is_scheduled() -> None:
    names = [f"n{i:04}" for i in range((WORDS_MAX - 400) // 8)]
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n0", *names[1:]]}
    term = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    site = Site(
        [node("n0", labels={"kubernetes.io/hostname": "n0"})],
        [as_pod(pod("p", affinity={"nodeAffinity": {REQUIRED: term}}))],
    )
    assert len(site.asked.binds) == 1


def never_on(value: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "k", "operator": "NotIn", "values": [value]}]}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}


def test_a_namespace_with_more_affinities_than_are_looked_at_waits_for_itself_alone() -> None:
    """Every node is told of each of them."""
    theirs = [as_pod(pod(f"p{i:03}", 16, namespace="other", affinity=never_on(f"v{i}"))) for i in range(300)]
    site = Site(1, theirs)
    assert "pending pods of namespace other have more than 128 different required node affinities" in "".join(
        site.asked.lines[name] for name in ("p128", "p299")
    )
    assert "could ever hold it" in site.asked.lines["p000"]
    site.say(as_pod(pod("good", 4, affinity=never_on("v1"))))
    assert [list(places) for _, _, places in site.asked.binds] == [["good"]]
    fits = as_pod(pod("fits", 4, namespace="other", affinity=never_on("last")))
    site.say(fits)
    assert "more than 128" in site.asked.lines["fits"]
    site.say(*theirs[:200], gone=True)
    assert [list(places) for _, _, places in site.asked.binds[1:]] == [["fits"]]


def test_a_namespace_with_more_host_ports_than_are_looked_at_waits_for_itself_alone() -> None:
    def listening(name: str, first: int, **fields: Any) -> dict[str, Any]:
        written = pod(name, **fields)
        ports = [{"containerPort": i, "hostPort": i, "protocol": "TCP"} for i in range(first, first + 100)]
        written["spec"]["containers"][0]["ports"] = ports
        return written

    site = Site(1, [as_pod(listening(f"p{i}", 1 + 100 * i, gpus=16, namespace="other")) for i in range(100)])
    assert "more than 128 different host ports" in site.asked.lines["p99"]
    assert len(site.mirror.particulars.ports()) == 128
    site.say(as_pod(listening("good", 9000)))
    assert [list(places) for _, _, places in site.asked.binds] == [["good"]]


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"subGroupPolicy": [{"name": f"p{i}"} for i in range(65)]}, "spec.subGroupPolicy beyond 64"),
        ({"minTaskMember": {f"t{i}": 0 for i in range(501)}}, "spec.minTaskMember beyond 500"),
    ],
)
def test_a_group_that_says_more_than_is_looked_through_for_each_pod_is_told_so(spec: Any, line: str) -> None:
    group = msgspec.convert({"metadata": {"name": "v", "namespace": "default"}, "spec": spec}, PodGroup)
    site = Site(1)
    site.mirror.take(Changed(VOLCANO, group))
    (member,) = annotated("scheduling.k8s.io/group-name", "v")
    site.say(as_pod(member), as_pod(pod("good")))
    assert [list(places) for _, _, places in site.asked.binds] == [["good"]]
    assert line in site.asked.lines["p"]


@pytest.mark.parametrize("job", ["other/train@12345678", "default/p@" + "x" * 5000, "default/p@", "nonsense"])
def test_a_bound_pod_that_says_it_is_of_a_job_that_is_not_its_own_is_known_all_the_same(job: str) -> None:
    """One that is not known would count as used and be kept from being evicted; users may write the annotation."""
    mine = as_pod(annotated("phalanx.dev/job", job)[0], uid="0123456789", node="n0", phase="Running")
    train = as_pod(pod("train", namespace="other"), uid="12345678ab", node="n0", phase="Running")
    train = msgspec.structs.replace(
        train, metadata=msgspec.structs.replace(train.metadata, annotations={"phalanx.dev/job": "other/train@12345678"})
    )
    site = Site(1, [mine, train])
    assert sorted(site.state.jobs) == ["default/p@01234567", "other/train@12345678"]
    site.say(as_pod(pod("urgent", 7, priority=100)))
    assert len(site.asked.evictions) == 1
