"""Many pods that mind where others are: what a change costs follows from what it changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kube_objects import as_pod, node, pod
from kube_turns import Site
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods import neighbours
from phalanx.kube.pods.neighbours import APART, Neighbours

HOST = "kubernetes.io/hostname"


def apart(app: str) -> dict[str, Any]:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def web(name: str, app: str, gpus: int = 1, **spec: Any) -> dict[str, Any]:
    written = pod(name, gpus, **spec)
    written["metadata"]["labels"]["app"] = app
    return written


def crowded(count: int, kinds: int) -> tuple[Site, list[Pod]]:
    """As many nodes, all full, and as many pods that each want to be apart from those of their kind."""
    there = [
        as_pod(web(f"t{i}", f"a{i % kinds}", 8, schedulerName="other"), node=f"n{i}", phase="Running")
        for i in range(count)
    ]
    waiting = [as_pod(web(f"w{i}", f"a{i % kinds}", affinity=apart(f"a{i % kinds}"))) for i in range(count)]
    return Site([node(f"n{i}", labels={HOST: f"n{i}"}) for i in range(count)], [*there, *waiting]), there


@pytest.mark.parametrize("kinds", [1, 2, 40])
def test_a_pod_that_leaves_is_compared_once_with_each_kind_of_pods_that_wait(
    kinds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: Counter[str] = Counter()
    means = neighbours.means

    def counted(*arguments: Any) -> bool:
        looks["means"] += 1
        return means(*arguments)

    site, there = crowded(80, kinds)
    monkeypatch.setattr(neighbours, "means", counted)
    site.say(there[0], gone=True)
    # One leaves and at most eight come, each beside what every kind says, and they are tried a few times.
    assert 0 < looks["means"] < 80 * (kinds + 1)
    assert site.journal.getvalue().count(b'"JobHeld"') < 40


def test_of_many_pods_that_are_apart_each_free_node_gets_one_at_once() -> None:
    site, there = crowded(60, 1)
    site.say(*there[:20], gone=True)
    bound = [where for _, _, places in site.asked.binds for where in places.values()]
    assert sorted(bound) == sorted(each.spec.node_name for each in there[:20])
    assert b'"JobHeld"' not in site.journal.getvalue()


def test_what_is_removed_again_leaves_all_as_it_was() -> None:
    site, there = crowded(4, 2)
    around = Neighbours(site.mirror.nodes, {})
    shy = as_pod(web("shy", "a0", affinity=apart("a0")))
    before = around.open_to([shy])
    with around.tentatively():
        number = around.add(there[0], site.mirror.nodes["n0"])
        assert around.open_to([shy]).refusals == {APART: 1}
        around.add(there[2], site.mirror.nodes["n2"])
        around.remove(number)
        assert around.open_to([shy]).nodes == ("n0", "n1", "n3")
    assert around.open_to([shy]) == before
