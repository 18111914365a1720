from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.cli.main import cli, run
from phalanx.cluster.formats.kai_queues import read_kai_queues
from phalanx.cluster.formats.native import read_cluster
from phalanx.cluster.formats.queue_tree import Imported
from phalanx.cluster.formats.volcano_queues import read_volcano_queues
from phalanx.cluster.queues import Queue, Quota
from phalanx.document import DocumentError

DATA = Path(__file__).parents[1] / "data" / "queues"
GB = 1024
NAMES = ("gpu", "cpu", "memory")
NO_LIMITS = "cpu: {limit: -1}, memory: {limit: -1}"


def volcano(*queues: str) -> Imported:
    head = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\n"
    return read_volcano_queues("---\n".join(head + queue + "\n" for queue in queues), "v.yaml")


def kai(*queues: str) -> Imported:
    head = "apiVersion: scheduling.run.ai/v2\nkind: Queue\n"
    return read_kai_queues("---\n".join(head + queue + "\n" for queue in queues), "k.yaml")


def by_path(imported: Imported) -> dict[str, Queue]:
    return {queue.path: queue for queue in imported.queues}


def test_every_field_of_a_volcano_queue_has_its_place_or_is_named() -> None:
    imported = read_volcano_queues((DATA / "volcano.yaml").read_text(), "volcano.yaml")
    assert by_path(imported) == {
        "research": Queue("research", deserved=Quota(32_000), limit=Quota(48_000, 512_000, 4096 * GB), weight=2),
        "prod": Queue("prod", guaranteed=Quota(16_000), reclaimable=False),
        "research/llm": Queue(
            "research/llm",
            guaranteed=Quota(8_000, None, 512 * GB),
            deserved=Quota(24_000, 192_500, 1024 * GB),
            limit=Quota(48_000),
            weight=3,
            priority=10,
        ),
        "research/vision": Queue("research/vision", deserved=Quota(8_000)),
    }
    assert imported.notes == (
        "queue prod: affinity (line 43): there is nothing like it here",
        "queue prod: it is closed: here it takes jobs",
        "queue research/llm: label cost-centre: 4711",
        "queue research/vision: dequeueStrategy fifo: its head holds up no job here, unless the policy is fifo",
    )


def test_every_field_of_a_kai_queue_has_its_place_or_is_named() -> None:
    imported = read_kai_queues((DATA / "kai.yaml").read_text(), "kai.yaml")
    hours = 3_600_000
    assert by_path(imported) == {
        "research": Queue(
            "research",
            deserved=Quota(32_000),
            limit=Quota(48_000),
            weight=2,
            priority=100,
            min_run_ms=4 * hours,
            min_run_reclaim_ms=15 * 60_000,
        ),
        "rest": Queue("rest", limit=Quota(None, 0, 0), priority=100, min_run_reclaim_ms=0),
        # A million megabytes of a million bytes are 953,674.3 mebibytes; 1.5 to 0.5 is 3 to 1.
        "research/llm": Queue(
            "research/llm",
            deserved=Quota(24_000, 192_500, 953_675),
            weight=3,
            priority=200,
            min_run_ms=4 * hours,
        ),
        "research/vision": Queue(
            "research/vision",
            deserved=Quota(7_500),
            limit=Quota(7_500, 0, 0),
            priority=100,
            min_run_ms=4 * hours,
            min_run_reclaim_ms=90_000,
        ),
    }
    assert imported.notes == (
        "queue research: displayName: Research",
        "queue research: quota of cpu without end: say what it deserves",
        "queue research: quota of memory without end: say what it deserves",
        "queue rest: cpu, memory not named in resources: limit 0, as in KAI; -1 is no limit",
        "queue research/vision: cpu, memory not named in resources: limit 0, as in KAI; -1 is no limit",
        "queue research/vision: limit of gpu is 0 or not given: its limit is its quota of 7.5",
    )


def test_what_the_api_server_prints_of_volcanos_queues_is_read_as_it_is() -> None:
    imported = read_volcano_queues((DATA / "volcano-get.yaml").read_text(), "get.yaml")
    assert by_path(imported) == {
        "default": Queue("default"),
        "research": Queue("research", deserved=Quota(8_000), limit=Quota(12_000, 10_000), weight=2, priority=10),
    }
    assert imported.notes == ("queue root: deserved (line 18): it deserves the whole cluster here",)


@pytest.mark.parametrize("system", ["volcano", "kai"])
def test_what_is_printed_is_read_back_as_the_same_queues(system: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = DATA / f"{system}.yaml"
    assert run(cli, ["import", system, str(path)]) == 0
    out, err = capsys.readouterr()
    read = {"volcano": read_volcano_queues, "kai": read_kai_queues}[system](path.read_text(), path.name)
    nodes = "nodes: [{count: 16, gpus: 8, cpus: 64, memory_gb: 1024}]\n"
    assert sorted(read_cluster(nodes + out, "cluster.yaml").queues, key=lambda queue: queue.path) == sorted(
        read.queues, key=lambda queue: queue.path
    )
    assert err.splitlines() == [f"phalanx: {path}: {note}" for note in read.notes]


def test_a_kai_queue_without_end_keeps_what_it_has() -> None:
    imported = kai(f"metadata: {{name: a}}\nspec: {{resources: {{gpu: {{quota: -1, limit: -1}}, {NO_LIMITS}}}}}")
    assert imported.queues == (Queue("a", priority=100, reclaimable=False),)
    assert imported.notes == ("queue a: quota of gpu without end: say what it deserves",)


def test_a_kai_queue_without_a_weight_gets_nothing_beyond_its_quota() -> None:
    gpu = "gpu: {quota: 2, limit: -1, overQuotaWeight: 0}"
    imported = kai(f"metadata: {{name: a}}\nspec: {{resources: {{{gpu}, {NO_LIMITS}}}}}")
    assert imported.queues == (Queue("a", deserved=Quota(2000), limit=Quota(2000), priority=100),)
    assert imported.notes[0] == "queue a: overQuotaWeight of gpu is 0 or not given: its limit is its quota of 2"


def test_weights_that_differ_by_resource_are_kept() -> None:
    amounts = (
        f"{name}: {{limit: -1, overQuotaWeight: {weight}}}" for name, weight in zip(NAMES, (2, 3, 2), strict=True)
    )
    spec = f"spec: {{resources: {{{', '.join(amounts)}}}}}"
    imported = kai(f"metadata: {{name: a}}\n{spec}")
    assert imported.queues == (Queue("a", weight=2, cpu_weight=3, priority=100),)
    assert not imported.notes


def test_weights_of_all_resources_and_neighbours_keep_their_proportions_in_whole_numbers() -> None:
    def spec(gpu: float, cpu: float) -> str:
        weights = zip(NAMES, (gpu, cpu, gpu), strict=True)
        amounts = (f"{name}: {{limit: -1, overQuotaWeight: {weight}}}" for name, weight in weights)
        return f"spec: {{resources: {{{', '.join(amounts)}}}}}"

    one, other = f"metadata: {{name: a}}\n{spec(1, 0.5)}", f"metadata: {{name: b}}\n{spec(0.25, 0.25)}"
    assert {queue.path: queue.weights for queue in kai(one, other).queues} == {"a": (4, 2, 4), "b": (1, 1, 1)}


def test_queues_without_a_specification_are_queues() -> None:
    assert volcano("metadata: {name: default}").queues == (Queue("default"),)
    assert kai("metadata: {name: default}").queues == (Queue("default", limit=Quota(0, 0, 0), priority=100),)


def test_a_kai_queue_that_names_no_resources_gets_none_and_that_is_told() -> None:
    imported = kai("metadata: {name: a}\nspec: {priority: 50}")
    assert imported.queues == (Queue("a", limit=Quota(0, 0, 0), priority=50),)
    assert imported.notes == ("queue a: gpu, cpu, memory not named in resources: limit 0, as in KAI; -1 is no limit",)


def test_no_cpus_or_memory_are_no_limit_in_volcano_but_no_gpus_are_none() -> None:
    imported = volcano("metadata: {name: a}\nspec: {capability: {cpu: 0, memory: 0, nvidia.com/gpu: 0}}")
    assert imported.queues == (Queue("a", limit=Quota(0)),)
    assert imported.notes == (
        "queue a: capability of cpu is 0: it has no limit, as in Volcano",
        "queue a: capability of memory is 0: it has no limit, as in Volcano",
    )


@pytest.mark.parametrize(
    ("written", "permille", "milli", "mb"),
    [
        ("{nvidia.com/gpu: 1, cpu: 1, memory: 1Gi}", 1000, 1000, 1024),
        ("{amd.com/gpu: '1e1', cpu: 250m, memory: 1G}", 10_000, 250, 954),
        ("{cpu: 1.5, memory: 1048576}", None, 1500, 1),
        ("{cpu: 2k, memory: 1Ki}", None, 2_000_000, 1),
    ],
)
def test_quantities_are_read_as_kubernetes_means_them(written: str, permille: int | None, milli: int, mb: int) -> None:
    (queue,) = volcano(f"metadata: {{name: a}}\nspec: {{capability: {written}}}").queues
    assert queue.limit == Quota(permille, milli, mb)


@pytest.mark.parametrize(
    ("queues", "told"),
    [
        (
            ["metadata: {name: a}\nspec: {wieght: 3}"],
            "v.yaml:4: key 'spec.wieght': unknown key, did you mean 'weight'?",
        ),
        (["metadata: {name: a}\nspec: {weight: 0}"], "expected a whole number from 1 to 65535, got 0"),
        (["metadata: {}"], "the key 'name' is missing"),
        (["metadata: {name: a}", "metadata: {name: a}"], "v.yaml:5: the queue 'a' is given twice, first on line 1"),
        (["metadata: {name: a}\nspec: {parent: b}"], "the queue 'a' lies in 'b', which is not in this file"),
        (
            ["metadata: {name: a}\nspec: {parent: b}", "metadata: {name: b}\nspec: {parent: a}"],
            "the queue 'a' lies in itself: a in b in a",
        ),
        (
            [
                "metadata: {name: a}\nspec: {deserved: {nvidia.com/gpu: 4}}",
                "metadata: {name: b}\nspec: {parent: a, deserved: {nvidia.com/gpu: 6}}",
            ],
            "v.yaml:6: queue a/b deserves 6 GPUs, but queue a has 4",
        ),
        (
            ["metadata: {name: a}\nspec: {deserved: {huawei.com/Ascend910: 4}}"],
            "there are no quotas of huawei.com/Ascend910 here, only of cpu, memory, nvidia.com/gpu",
        ),
        (
            ["metadata: {name: a}\nspec: {deserved: {nvidia.com/gpu: 4, amd.com/gpu: 4}}"],
            "there are no quotas by kind of GPU here",
        ),
        (["metadata: {name: a}\nspec: {deserved: {cpu: 4X}}"], "expected a quantity such as 16, 500m or 64Gi, got 4X"),
        (["metadata: {name: root}\nspec: {capability: {cpu: 4}}"], "the root is the whole cluster; remove the key"),
        (["metadata: {name: a}\nspec: {dequeueStrategy: lifo}"], "expected one of traverse, fifo, got lifo"),
        (["metadata: {name: root}\nspec: {parent: a}"], "the root is the whole cluster; remove the key"),
        (
            ["metadata: {name: root}\nspec: {guarantee: {resource: {cpu: 4}}}"],
            "v.yaml:4: key 'spec.guarantee': the root is the whole cluster; remove the key",
        ),
        (["metadata: {name: a, owner: me}"], "unknown key"),
    ],
)
def test_a_wrong_volcano_queue_is_refused_at_its_place(queues: list[str], told: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        volcano(*queues)
    assert told in str(refusal.value)


@pytest.mark.parametrize(
    ("queue", "told"),
    [
        ("metadata: {name: a}\nspec: {resources: {gpu: {quota: -2}}}", "expected a number from -1 to"),
        (
            "metadata: {name: a}\nspec: {resources: {gpu: {quota: -0.5}}}",
            "expected an amount, or -1 for no end, got -0.5",
        ),
        (
            "metadata: {name: a}\nspec: {resources: {gpu: {quota: 8, limit: 4}}}",
            "queue a deserves 8 GPUs, more than its",
        ),
        ("metadata: {name: a}\nspec: {resources: {tpu: {quota: 8}}}", "key 'spec.resources.tpu': unknown key"),
        ("metadata: {name: a}\nspec: {reclaimMinRuntime: soon}", "expected a duration"),
    ],
)
def test_a_wrong_kai_queue_is_refused_at_its_place(queue: str, told: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        kai(queue)
    assert told in str(refusal.value)


def test_objects_of_other_kinds_are_refused() -> None:
    other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
    with pytest.raises(DocumentError, match=r"v.yaml:2: expected a Queue of .*volcano.sh, got a ConfigMap of v1"):
        read_volcano_queues("\n" + other, "v.yaml")
    with pytest.raises(DocumentError, match=r"expected at least one Queue of .*, got none"):
        read_kai_queues("---\n# nothing\n---\n", "k.yaml")


def test_names_are_those_of_the_queues_at_the_top(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["import", "kai", str(DATA / "kai.yaml"), "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["research", "rest"]
