"""The job file: what people write, and what becomes of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phalanx.document import DocumentError
from phalanx.workload.formats.native import KEYS, read_job
from phalanx.workload.gang import Role, Task, Topology
from phalanx.workload.job import After, Array, Checkpointing, Dependency, Execution, Job, Kind, NodePreference
from phalanx.workload.parallel import ParallelPlan, Traffic
from phalanx.workload.scale import Metric, Scale
from phalanx.workload.share import fraction_ask, mig_ask, mps_ask, turn_ask
from phalanx.workload.toleration import Toleration

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "job-file.md").read_text(encoding="utf-8")

DESIGN_EXAMPLE = """
version: 1
name: llama-70b
kind: training              # training | service | interactive
queue: research/llm
priority: 100
command: [python, train.py]
image: registry/llama:1
gang:
  - {role: worker, replicas: 4, gpus: 8, gpu_type: H100, cpus: 32, memory_gb: 512}
parallel: {tp: 4, pp: 2, dp: 4}
topology: {required: rack, preferred: node}
duration: 4h
after: [{job: 4820, on: success}]
array: 0-31%4
preemptible: true
checkpoint: {interval: auto, cost: 2s}
retry: {limit: 3}
"""


def job(text: str) -> Job:
    return read_job(text, "job.yaml")


def error_of(text: str) -> str:
    with pytest.raises(DocumentError) as caught:
        read_job(text, "job.yaml", job_id="7")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_example_of_the_design_is_read_whole() -> None:
    task = Task(
        gpus=8,
        gpu_types=("H100",),
        cpus_milli=32_000,
        cpus_limit_milli=32_000,
        memory_mb=524_288,
        memory_limit_mb=524_288,
    )
    read = read_job(DESIGN_EXAMPLE, "job.yaml", job_id="4821")
    assert read.gang.roles == (Role("worker", 4, 4, task),)
    assert read.gang.topology == Topology("rack", "node")
    assert (read.id, read.name, read.kind, read.queue) == ("4821", "llama-70b", Kind.TRAINING, "research/llm")
    assert read.priority == 100
    assert read.execution == Execution(("python", "train.py"), "registry/llama:1")
    assert read.parallel == ParallelPlan(4, 2, 4)
    assert read.traffic is None
    assert read.duration_ms == 14_400_000
    assert read.after == (Dependency("4820", After.SUCCESS),)
    assert read.array == Array(tuple(range(32)), 4)
    assert read.checkpoint == Checkpointing(0, 2000, saves=True)
    assert read.retry_limit == 3


def test_a_job_may_be_one_task_and_nothing_else() -> None:
    read = job("gpus: 2\ngpu_type: h100\ncpus: 0.5\nmemory_gb: 1.5\n")
    assert read.gang.roles == (
        Role(
            task=Task(
                gpus=2,
                gpu_types=("H100",),
                cpus_milli=500,
                cpus_limit_milli=500,
                memory_mb=1536,
                memory_limit_mb=1536,
            )
        ),
    )
    assert (read.queue, read.kind, read.priority, read.preemptible) == ("default", Kind.TRAINING, 0, True)


def test_a_job_may_ask_for_no_gpu() -> None:
    assert job("command: echo hello").gang.gpus_max == 0


def test_an_elastic_gang_has_a_least_and_a_most() -> None:
    gang = job("gang: [{replicas: {min: 2, max: 8}, gpus: 4}]").gang
    assert (gang.gpus_min, gang.gpus_max, gang.elastic) == (8, 32, True)


def test_a_role_may_be_a_gang_of_its_own() -> None:
    gang = job("gang: [{role: replica, replicas: 16, topology: {required: rack}, gang: [{replicas: 4, gpus: 8}]}]").gang
    role = gang.roles[0]
    assert (role.topology.required, role.gpus_each, gang.gpus_max) == ("rack", 32, 512)
    assert role.members[0].replicas_max == 4


def test_requests_and_limits_are_kept_apart() -> None:
    task = job("gpus: 0\ncpus: {request: 4, limit: 8}\nmemory_gb: {limit: 2}").gang.roles[0].task
    assert (task.cpus_milli, task.cpus_limit_milli) == (4000, 8000)
    assert (task.memory_mb, task.memory_limit_mb) == (2048, 2048)


def test_several_gpu_types_will_do_and_aliases_become_names() -> None:
    assert job("gpus: 1\ngpu_type: [nvidia-a100-80gb, H100, h100]").gang.roles[0].task.gpu_types == (
        "A100-80",
        "H100",
    )


def test_a_site_has_gpu_types_of_its_own() -> None:
    read = read_job("gpus: 1\ngpu_type: Chip9", "job.yaml", gpu_types=["Chip9"])
    assert read.gang.roles[0].task.gpu_types == ("Chip9",)


@pytest.mark.parametrize(
    ("share", "ask"),
    [
        ("{fraction: 0.5}", fraction_ask(500)),
        ("{fraction: 0.25, memory_gb: 10}", fraction_ask(250, 10_240)),
        ("{mig: 1g.10gb}", mig_ask("1g.10gb")),
        ("{mps: 30}", mps_ask(30)),
        ("{turns: 2}", turn_ask(2)),
    ],
)
def test_a_task_may_ask_for_a_share_of_a_gpu(share: str, ask: object) -> None:
    assert job(f"gpus: 1\nshare: {share}").gang.roles[0].task.share == ask


def test_a_share_is_only_for_the_tasks_with_a_gpu() -> None:
    roles = job("share: {mps: 50}\ngang: [{role: a, gpus: 1}, {role: b, cpus: 1}]").gang.roles
    assert [role.task.share for role in roles] == [mps_ask(50), None]


def test_an_elastic_gang_with_a_plan_is_never_smaller_than_whole_replicas_of_the_model() -> None:
    read = job("gang: [{replicas: {min: 3, max: 9}, gpus: 8}]\nparallel: {tp: 8, pp: 2, dp: 4}")
    assert (read.gang.roles[0].replicas_min, read.gang.roles[0].replicas_max) == (4, 9)


def test_sizes_of_the_model_tell_its_traffic() -> None:
    read = job("gpus: 8\nparallel: {tp: 8, params_billions: 7.5, hidden_dim: 1024, layers: 12}")
    assert read.traffic == Traffic(num_params_billions=7.5, hidden_dim=1024, layers=12)


def test_a_command_may_be_a_list_or_a_line_of_words() -> None:
    words = ("python", "train.py", "--name", "two words", "3")
    assert job("command: [python, train.py, --name, two words, 3]").execution.command == words
    assert job("command: python train.py --name 'two words' 3").execution.command == words
    assert job("command: |\n  python train.py \\\n    --name 'two words' 3\n").execution.command == words


def test_what_surrounds_the_command_is_handed_on() -> None:
    execution = job(
        "command: [a]\nimage: i:1\nworkdir: /w\nenv: {B: 1, A: 'yes'}\n"
        "mounts: [/data:/mnt, {source: /x, target: /y}]\nsecrets: [s]\n"
    ).execution
    assert execution.env == (("B", "1"), ("A", "yes"))
    assert execution.mounts == (("/data", "/mnt"), ("/x", "/y"))
    assert (execution.image, execution.workdir, execution.secrets) == ("i:1", "/w", ("s",))


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", "..", ".hidden", "a=b", "two words", "-x", "naïve"])
def test_a_secret_is_named_by_no_path(name: str) -> None:
    with pytest.raises(DocumentError, match=r"secrets\[1\]': expected a secret's name of letters, digits.*got"):
        job(f"gpus: 1\nsecrets: [WANDB_KEY, '{name}']")


def test_labels_selectors_and_tolerations_are_read() -> None:
    read = job(
        "gpus: 1\nlabels: {b: 1, a: 2}\nnode_selector: {zone: z}\n"
        "tolerations: [spot, 'team=llm:NoExecute', {key: k, value: v}, {operator: Exists}]\n"
    )
    assert read.labels == (("a", "2"), ("b", "1"))
    assert read.node_selector == (("zone", "z"),)
    assert read.tolerations == (
        Toleration("spot"),
        Toleration("team", "llm", "NoExecute"),
        Toleration("k", "v"),
        Toleration(),
    )


def test_preferences_are_labels_with_weights() -> None:
    job = read_job("command: x\nprefer: {phalanx/node=n1: 60, pool=: -100}\n", "job.yaml")
    assert job.preferences == (NodePreference("phalanx/node", "n1", 60), NodePreference("pool", "", -100))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("{pool: 3}", "'pool=fast: 10'"),
        ("{=fast: 3}", "'pool=fast: 10'"),
        ("{a=b: 101}", "from -100 to 100"),
        ("[a]", "mapping"),
    ],
)
def test_a_preference_that_makes_no_sense_is_refused_with_its_place(wrong: str, told: str) -> None:
    with pytest.raises(DocumentError, match=r"^job\.yaml:2") as refused:
        read_job(f"command: x\nprefer: {wrong}\n", "job.yaml")
    assert told in str(refused.value)


def test_a_role_has_a_selector_and_tolerations_beside_those_of_the_job() -> None:
    read = job(
        "node_selector: {zone: z}\ngang:\n- {role: master, cpus: 4, node_selector: {pool: cpu}}\n"
        "- {role: worker, gpus: 8, tolerations: ['gpu=yes:NoSchedule']}\n"
    )
    master, worker = (role.task for role in read.gang.roles)
    assert (read.node_selector, master.node_selector, worker.node_selector) == (
        (("zone", "z"),),
        (("pool", "cpu"),),
        (),
    )
    assert (master.tolerations, worker.tolerations) == ((), (Toleration("gpu", "yes", "NoSchedule"),))


def test_times_count_from_the_moment_of_submission() -> None:
    read = read_job(
        "gpus: 1\nbegin: +1h\ndeadline: 1970-01-02T00:00Z\nmax_run: 2d\nmax_wait: 1h\ngrace: 0", "f", now_ms=5
    )
    assert (read.begin_ms, read.deadline_ms) == (3_600_005, 86_400_000)
    assert (read.max_run_ms, read.max_wait_ms, read.grace_ms) == (172_800_000, 3_600_000, 0)


def test_dependencies_may_be_bare_ids() -> None:
    assert job("gpus: 1\nafter: [4820, 4821.7, {job: prepare, on: end}]").after == (
        Dependency("4820"),
        Dependency("4821.7"),
        Dependency("prepare", After.END),
    )


def test_an_interactive_job_is_not_preempted_unless_it_says_so() -> None:
    assert not job("gpus: 1\nkind: interactive").preemptible
    assert job("gpus: 1\nkind: interactive\npreemptible: true").preemptible


def test_a_service_keeps_what_it_needs_to_start_unless_it_says_otherwise() -> None:
    gang = "gang: [{replicas: {min: 2, max: 6}, gpus: 1}]\nkind: service\n"
    assert job(gang).min_available == 2
    assert job(gang + "min_available: 5").min_available == 5
    assert job("gpus: 1").min_available == 0


def test_a_service_runs_with_as_few_replicas_as_are_never_taken_away() -> None:
    role = job("gang: [{replicas: 8, gpus: 1}]\nkind: service\nmin_available: 2").gang.roles[0]
    assert (role.replicas_min, role.replicas_max) == (2, 8)
    role = job("gang: [{replicas: 8, gpus: 1}]\nkind: service").gang.roles[0]
    assert (role.replicas_min, role.replicas_max) == (8, 8)


def test_json_is_read_too() -> None:
    assert job('{"name": "j", "gang": [{"gpus": 8, "replicas": 2}]}').gang.gpus_max == 16


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: x", "1: expected at least one of the keys command, gang or gpus"),
        ("version: 2\ngpus: 1", "1: key 'version': expected 1, got 2"),
        ("gpus: 1\ngpuz: 2", "2: key 'gpuz': unknown key, did you mean 'gpus'?"),
        ("gpus: -3", "1: key 'gpus': expected a whole number from 0 to 1024, got -3"),
        ("gpus: true", "1: key 'gpus': expected a whole number from 0 to 1024, got true"),
        ("gpus: 1\nkind: batch", "2: key 'kind': expected one of training, service, interactive, got batch"),
        ("gpus: 1\nqueue: a//b", "2: key 'queue': expected a queue as names with '/' between"),
        ("gpus: 1\npriority: 9999999", "2: key 'priority': expected a whole number from -1000000 to 1000000"),
        ("gpus: 1\ngpu_type: H1000", "2: key 'gpu_type': unknown GPU type 'H1000', did you mean H100"),
        ("gpu_type: H100\ncpus: 1", "1: key 'gpu_type': the task asks for no GPUs"),
        ("gpus: 1\ngang: [{gpus: 1}]", "1: key 'gpus': give it in the roles of 'gang'"),
        ("gang: []", "1: key 'gang': expected a list of 1 to 64 items, got 0"),
        ("gang: [{gpus: 1}, {gpus: 2}]", "1: key 'gang[1]': the role 'worker' is given twice"),
        ("gang: [{replicas: 0}]", "'gang[0].replicas': expected a whole number from 1 to 100000, got 0"),
        ("gang: [{replicas: {min: 3, max: 2}}]", "'gang[0].replicas.max': expected a whole number from 3 to 100000"),
        ("gang: [{replicas: {min: 3}}]", "key 'gang[0].replicas': the key 'max' is missing"),
        ("gang: [{gpus: 1, gang: [{gpus: 1}]}]", "'gang[0].gpus': a role with a gang of its own has no task"),
        ("gang: [{replicas: 100000, gang: [{replicas: 9}]}]", "expected at most 100000 tasks, got 900000"),
        ("gang: [{gang: [{gang: [{gang: [{gang: [{gpus: 1}]}]}]}]}]", "expected at most 4 gangs inside one another"),
        ("cpus: {request: 4, limit: 2}", "'cpus.limit': expected a limit of at least the request, which is 4, got 2"),
        ("cpus: {}", "key 'cpus': expected a number, or a mapping with request and limit"),
        ("cpus: .nan", "key 'cpus': expected a number from 0 to 100000, got .nan"),
        ("memory_gb: .inf", "key 'memory_gb': expected a number from 0 to 1000000, got .inf"),
        ("gpus: 8\nshare: {fraction: 0.5}", "1: key 'gpus': expected gpus: 1 beside 'share'"),
        ("gpus: 0\nshare: {fraction: 0.5}", "2: key 'share': no task asks for a GPU to share"),
        ("gpus: 1\nshare: {}", "expected exactly one of fraction, mig, mps, turns, got none"),
        ("gpus: 1\nshare: {mps: 3, turns: 2}", "expected exactly one of fraction, mig, mps, turns, got mps and turns"),
        ("gpus: 1\nshare: {mig: big}", "'share.mig': expected the name of a MIG profile such as 1g.10gb"),
        (
            "gpus: 1\nshare: {mig: 9g.99gb}",
            "2: key 'share.mig': no GPU type has the MIG profile '9g.99gb', did you mean",
        ),
        ("gpus: 1\nshare: {mig: 1g.10gb, memory_gb: 3}", "'share.memory_gb': 'mig' already says how much memory"),
        ("gpus: 1\nshare: {fraction: 1.5}", "'share.fraction': expected a number from 0.001 to 1, got 1.5"),
        ("gpus: 1\nshare: {fraction: 0.5, memory_gb: 0}", "'share.memory_gb': expected a size above 0"),
        (
            "gang: [{role: a, replicas: 3, gpus: 8}, {role: b}]\nparallel: {tp: 4, pp: 2, dp: 4}",
            "2: key 'parallel': tp 4 × pp 2 × dp 4 = 32 GPUs, but the gang has 3 × 8 + 1 × 0 = 24",
        ),
        (
            "gang: [{replicas: {min: 2, max: 4}, gpus: 2}]\nparallel: {tp: 2}",
            "tp 2 × pp 1 × dp 1 = 2 GPUs, but the gang has 4 × 2 = 8 and at least 4",
        ),
        (
            "gang: [{replicas: {min: 2, max: 3}, gpus: 6}]\nparallel: {tp: 5, dp: 3}",
            "2: key 'parallel': no size of the gang from 12 to 18 GPUs is a multiple of tp 5 × pp 1 = 5",
        ),
        ("gpus: 1\nduration: soon", "2: key 'duration': expected a duration such as 90s, 1h30m, 2d"),
        ("gpus: 1\nmax_run: 0", "2: key 'max_run': expected a duration above 0, got 0"),
        ("gpus: 1\nbegin: 2030-01-01T00:00", "2: key 'begin': expected a time with its zone"),
        ("gpus: 1\nbegin: +2h\ndeadline: +1h", "3: key 'deadline': expected a time after 'begin', which is +2h"),
        ("gpus: 1\nafter: [7]", "2: key 'after[0]': the job 7 cannot wait for itself"),
        ("gpus: 1\nafter: [{job: 3, on: done}]", "'after[0].on': expected one of success, failure, end, start"),
        ("gpus: 1\nafter: [{on: end}]", "key 'after[0]': the key 'job' is missing"),
        ("gpus: 1\narray: 3-1", "2: key 'array': expected a range that goes up"),
        ("gpus: 1\nmin_available: 1", "2: key 'min_available': only a service has it, and this is a training job"),
        ("gpus: 1\nkind: service\nmin_available: 2", "'min_available': expected a whole number from 0 to 1, got 2"),
        ("gpus: 1\ncheckpoint: {interval: 0}", "'checkpoint.interval': expected a duration above 0"),
        ("gpus: 1\nretry: {limit: -1}", "'retry.limit': expected a whole number from 0 to 1000000, got -1"),
        ("gpus: 1\nretry: 3", "key 'retry': expected a mapping with keys such as limit, got 3"),
        ("command: []", "key 'command': expected a list of 1 to 10000 items, got 0"),
        ("command: ''", "key 'command': expected one line of words"),
        ("command: |\n  a\n  b", "key 'command': expected one line of words, or a list"),
        ("command: a 'b", "key 'command': expected words as a shell reads them, got one with no closing quotation"),
        ("command: [a, ]\nenv: {'A=B': c}", "key 'env': expected names of variables without '=', got 'A=B'"),
        ("command: [a]\nmounts: [/a]", "key 'mounts[0]': expected source:target"),
        (
            "gpus: 1\ntolerations: [{value: x}]",
            "the key 'key' is missing; to tolerate everything write operator: Exists",
        ),
        ("gpus: 1\ntolerations: [{key: k, operator: Exists, value: x}]", "expected no value beside operator Exists"),
        ("gpus: 1\ntolerations: ['a:Never']", "expected key=value:effect with an effect of NoSchedule"),
        (
            "gang: [{node_selector: {a: b}, gang: [{gpus: 1}]}]",
            "a role with a gang of its own has no task, give it in the roles of that gang",
        ),
        ("gpus: 1\nlabels: {'': x}", "expected a key of 1 to 253 printable characters"),
        ("gpus: 1\ntopology: {required: a b}", "'topology.required': expected a name"),
        ("x" * 2_000_000, "1: expected at most 1048576 characters, got 2000000"),
    ],
)
def test_a_wrong_job_file_gives_one_clear_error(text: str, expected: str) -> None:
    message = error_of(text)
    assert message.startswith("job.yaml:")
    assert expected in message


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("job-*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_a_job(path: Path) -> None:
    assert read_job(path.read_text(encoding="utf-8"), path.name).name


def test_the_page_lists_exactly_the_keys_that_are_read() -> None:
    assert keys_of(PAGE) == {section: list(keys) for section, keys in KEYS.items()}


def test_the_example_of_the_page_is_a_job() -> None:
    for example in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        assert job(example).name == "llama-70b"


def keys_of(page: str) -> dict[str, list[str]]:
    """The keys in the tables of a page, by the heading above."""
    keys: dict[str, list[str]] = {}
    section = ""
    for line in page.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ").replace("`", "")
        elif row := re.match(r"\| `(\w+)` \|", line):
            keys.setdefault(section, []).append(row[1])
    return keys


SERVICE = "kind: service\ngpus: 1\n"


def test_a_service_that_follows_its_load_starts_with_its_least_replicas() -> None:
    read = job(SERVICE + "scale: {metric: requests_per_s, target: 20, min: 2, max: 8, cool_down: 2m}")
    assert read.scale == Scale(Metric.REQUESTS_PER_S, 20.0, 2, 8, 120_000)
    assert (read.gang.roles[0].replicas_min, read.gang.roles[0].replicas_max, read.min_available) == (2, 2, 2)


def test_a_service_that_may_have_no_replica_starts_with_one() -> None:
    read = job(SERVICE + 'scale: {metric: {query: "sum(up)"}, target: 5, min: 0, max: 3}')
    assert read.scale == Scale(Metric.QUERY, 5.0, 0, 3, 300_000, "sum(up)")
    assert (read.gang.roles[0].replicas_max, read.min_available) == (1, 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpus: 1\nscale: {metric: queue_length, target: 1, max: 2}", "only a service"),
        (SERVICE + "scale: {metric: queue_length, target: 0, max: 2}", "above 0"),
        (SERVICE + "scale: {metric: queue_length, target: -1, max: 2}", "a number from 0"),
        (SERVICE + "scale: {metric: gpu_busy, target: 60, max: 2}", "a number from 0 to 1"),
        (SERVICE + "scale: {metric: queue_length, target: 1, min: 3, max: 2}", "from 3 to"),
        (SERVICE + "scale: {metric: queue_length, target: 1, min: 0, max: 2}", "could wake the service"),
        (SERVICE + "scale: {metric: request_per_s, target: 1, max: 2}", "one of requests_per_s"),
        (SERVICE + "scale: {metric: {query: ' '}, target: 1, max: 2}", "a Prometheus query"),
        (SERVICE + "scale: {metric: queue_length, max: 2}", "'target' is missing"),
        (SERVICE + "scale: {metric: queue_length, target: 1}", "'max' is missing"),
        (SERVICE + "min_available: 1\nscale: {metric: queue_length, target: 1, max: 2}", "never taken away"),
        (
            "kind: service\ngang: [{replicas: 2, gpus: 1}]\nscale: {metric: queue_length, target: 1, max: 2}",
            "leave out 'replicas'",
        ),
        (
            "kind: service\ngang: [{role: a}, {role: b}]\nscale: {metric: queue_length, target: 1, max: 2}",
            "one role of single tasks",
        ),
    ],
)
def test_a_scale_that_cannot_be_meant_is_refused(text: str, words: str) -> None:
    with pytest.raises(DocumentError, match=re.escape(words)):
        job(text)
