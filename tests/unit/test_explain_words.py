"""Reasons and changes in words: one clear line each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job, of_roles, racked
from phalanx.cluster.cluster import CLUSTER, Cluster, Health, Node, StorageTier, Taint, flat
from phalanx.cluster.maintenance import Maintenance
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.state.records import JobState
from phalanx.engine.why.change import Change, ChangeKind, Other
from phalanx.engine.why.evidence import Budget, Held, QuotaShort
from phalanx.engine.why.explain import Explanation, redacted
from phalanx.engine.why.why import why
from phalanx.protocol.event import AttemptEnded, ClusterChanged, NodeHealthChanged, Outcome
from phalanx.protocol.reason import Reason
from phalanx.simulate.forecasts.forecast import Forecast, Span
from phalanx.words.change import offer, sooner
from phalanx.words.deadline import deadline_words
from phalanx.words.evidence import evidence
from phalanx.words.phrases import moment
from phalanx.words.predicate import predicate_words
from phalanx.words.reason import REASON_WORDS, because, because_in
from phalanx.words.start import expected
from phalanx.workload.formats.native import read_job
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Job, NodePreference


def halves() -> World:
    """Four nodes of 8 GPUs, each with 4 free, and a job of 16 that waits."""
    world = World(flat(4, 8))
    world.run(*(a_job(name, 4) for name in "abcdefgh"))
    for name in "bdfh":
        world.end(name)
    world.submit(a_job("j", 8, 2))
    return world


def test_sixteen_are_free_and_my_sixteen_gpu_job_waits_is_answered_in_one_line() -> None:
    line = because(why(halves().state, "j"))
    assert line == (
        "16 GPUs are free, but too few of them lie together: at most 4 on one node (each of 4 nodes), and one task "
        "needs 8 (of 4 nodes: 4 without enough free GPUs)"
    )


def waits_beside(*roles: Role, cpus: int = 0) -> Explanation:
    """Why a gang waits on a node of 8 GPUs with H100s and one with A100s, on which others hold 1 and all."""
    nodes = (Node("h", (), 8, gpu_type="H100", cpus_milli=16_000), Node("a", (), 8, gpu_type="A100-80"))
    world = World(Cluster(nodes), "fifo:skip=true")
    world.run(a_job("x", 8, task={"gpu_types": ("A100-80",)}), a_job("y", 1, task={"cpus_milli": 1_000 * cpus}))
    world.submit(of_roles("j", *roles))
    return why(world.state, "j")


def test_cpus_that_lack_for_all_tasks_but_for_no_single_one_are_what_is_told() -> None:
    told = waits_beside(Role("worker", 3, 3, Task(1, cpus_milli=4_000, gpu_types=("H100",))), cpus=8)
    assert told.reason is Reason.AMOUNT
    assert because(told).startswith("GPUs are free, but too few CPUs beside them for all its tasks (of 2 nodes")
    assert sooner(told) == "it would start now with 2.666 CPUs a task instead of 4"


def test_roles_that_together_need_more_gpus_than_are_free_are_told_so() -> None:
    told = waits_beside(Role("worker", 2, 2, Task(3)), Role("eval", 1, 1, Task(4)))
    assert told.reason is Reason.GPUS
    assert because(told) == "it needs 10 GPUs and 7 are free (of 2 nodes: 1 without enough free GPUs)"


def test_a_role_whose_gpus_are_taken_is_named_with_its_counts() -> None:
    worker, evaluator = Task(4, gpu_types=("H100",)), Task(2, gpu_types=("A100-80",))
    told = waits_beside(Role("worker", 1, 1, worker), Role("eval", 1, 1, evaluator))
    assert told.reason is Reason.GPUS
    assert because(told) == (
        "its role eval needs 2 GPUs and 0 are free (of 2 nodes: 1 of another GPU type, 1 without enough free GPUs)"
    )
    assert told.free == ()


def test_a_role_whose_nodes_are_sick_is_named() -> None:
    world = World(Cluster((Node("h", (), 8, gpu_type="H100"), Node("a", (), 8, gpu_type="A100-80"))))
    world.turn(NodeHealthChanged("a", Health.FAILED))
    worker, evaluator = Task(4, gpu_types=("H100",)), Task(2, gpu_types=("A100-80",))
    world.submit(of_roles("j", Role("worker", 1, 1, worker), Role("eval", 1, 1, evaluator)))
    assert because(why(world.state, "j")) == (
        "too many of the nodes its role eval could use are not healthy (of 2 nodes: 1 of another GPU type, 1 failed)"
    )


def test_a_role_without_gpus_that_lacks_cpus_is_named_and_offered_fewer() -> None:
    world = World(Cluster((Node("n0", (), 8, cpus_milli=16_000),)))
    world.run(a_job("x", 1, task={"cpus_milli": 8_000}))
    world.submit(of_roles("j", Role("worker", 2, 2, Task(1)), Role("ps", 1, 1, Task(0, cpus_milli=12_000))))
    told = why(world.state, "j")
    assert because(told) == (
        "GPUs are free, but not the CPUs, memory or NICs that its role ps needs (of 1 node: 1 without enough free CPUs)"
    )
    assert sooner(told) == "it would start now with 8 CPUs a task of ps instead of 12"


def test_who_uses_up_the_quota_is_asked_to_end_however_many_others_have_less_to_lose() -> None:
    queues = (Queue("a", limit=Quota(8_000)), Queue("b"))
    world = World(replace(flat(8, 8), queues=queues), "fifo:skip=true")
    world.run(a_job("a1", 4, queue="a"), a_job("a2", 4, queue="a"))
    world.turn(after_ms=100_000)
    world.run(*(a_job(f"b{i}", 1, queue="b") for i in range(40)))
    world.submit(a_job("j", 4, queue="a"))
    assert sooner(why(world.state, "j")) == "it would start now if job a1 of queue a (4 GPUs) ended"


def test_few_are_asked_to_end_on_a_node_that_is_nearly_empty_rather_than_many_who_have_less_to_lose() -> None:
    world = World(flat(2, 8), "fifo:skip=true")
    world.run(a_job("on-n0", 2), *(a_job(f"gone{i}", 1) for i in range(6)))
    world.turn(after_ms=100_000)
    world.run(*(a_job(f"on-n1-{i}", 1) for i in range(8)))
    for i in range(6):
        world.end(f"gone{i}")
    world.submit(a_job("j", 8, preemptible=False))
    (end,) = [change for change in why(world.state, "j").changes if change.kind is ChangeKind.END]
    assert [each.job for each in end.ends] == ["on-n0"]


def test_what_would_start_it_is_one_line_and_the_rest_below() -> None:
    answer = why(halves().state, "j")
    assert sooner(answer) == "it would start now with 4 GPUs a task instead of 8 (8 in all)"
    assert evidence(answer, 0) == {
        "other_ways": "if jobs a, c of queue default (8 GPUs) ended",
        "held_by": "default: 16 GPUs in 4 jobs",
        "free_gpus": "4 nodes with 4",
        "position": "1 of 1 pending",
    }


def test_a_rack_that_has_most_is_named() -> None:
    world = World(racked(2, 1))
    world.run(a_job("a", 7), a_job("b", 7))
    world.submit(a_job("j", 1, 2, "rack"))
    line = because(why(world.state, "j"))
    assert line.startswith("2 GPUs are free, but no one domain has room for all 2: the rack with most, r0, has 1")


def test_two_causes_are_told_one_after_the_other() -> None:
    world = World(flat(1, 8))
    world.run(a_job("a", 6))
    world.submit(a_job("h", 4), a_job("j", 3))
    answer = why(world.state, "j")
    assert because(answer) == "it is behind job h, which does not fit and may not be passed"
    assert sooner(answer) == "it would start now if job a of queue default (6 GPUs) ended"
    then = "if the policy let it pass those before it, it would still wait: too few GPUs are free"
    assert evidence(answer, 0)["then"] == then


def test_jobs_that_may_not_be_known_are_told_by_their_queue() -> None:
    world = World(flat(1, 8))
    world.run(a_job("a", 6, queue="x"))
    world.submit(a_job("h", 4, queue="x"), a_job("j", 3, queue="y"))
    answer = redacted(why(world.state, "j"), ("y",))
    assert because(answer) == "it is behind a job of queue x, which does not fit and may not be passed"
    assert sooner(answer) == "it would start now if 1 job of queue x (6 GPUs) ended"


def test_one_gpu_is_told_as_one() -> None:
    world = World(flat(1, 1))
    world.run(a_job("a", 1))
    world.submit(a_job("b", 1))
    assert because(why(world.state, "b")).startswith("it needs 1 GPU and 0 are free")


def test_a_job_that_runs_is_told_as_it_is() -> None:
    world = World(flat(1, 8))
    world.run(a_job("a", 6))
    assert because(why(world.state, "a")) == "it is running"
    assert sooner(why(world.state, "a")) == ""


def test_sick_nodes_are_named() -> None:
    world = World(flat(2, 8))
    world.health("n0", Health.DRAINING)
    world.submit(a_job("j", 8, 2))
    answer = why(world.state, "j")
    assert evidence(answer, 0)["not_healthy"] == "n0 (draining)"
    assert "if n0 were healthy" in evidence(answer, 0)["other_ways"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change(ChangeKind.RELEASE), "if it were released"),
        (Change(ChangeKind.BEGIN), "without its begin time"),
        (Change(ChangeKind.RETRY), "if it were tried again at once"),
        (Change(ChangeKind.DEPENDENCY, names=("a", "b")), "if it did not wait for jobs a, b"),
        (Change(ChangeKind.ARRAY_LIMIT, 3, 2), "with 3 members of its array at a time instead of 2"),
        (Change(ChangeKind.DURATION, 90_000), "if it took at most 1m 30s"),
        (Change(ChangeKind.CPUS, 8_000, 16_000), "with 8 CPUs a task instead of 16"),
        (Change(ChangeKind.MEMORY, 4_096, 8_192), "with 4 GB of memory a task instead of 8"),
        (Change(ChangeKind.CPUS, 1_000, 16_000), "with 1 CPU a task instead of 16"),
        (Change(ChangeKind.CPUS, 3_333, 5_000), "with 3.333 CPUs a task instead of 5"),
        (Change(ChangeKind.MEMORY, 3_413, 8_192), "with 3.333 GB of memory a task instead of 8"),
        (Change(ChangeKind.NICS, 1, 2), "with 1 NIC a task instead of 2"),
        (Change(ChangeKind.AMOUNTS), "without CPUs, memory and NICs"),
        (Change(ChangeKind.TOPOLOGY, names=("",), names_was=("rack",)), "without the rack rule"),
        (
            Change(ChangeKind.TOPOLOGY, names=("pod",), names_was=("rack",)),
            "with all in one pod instead of one rack",
        ),
        (Change(ChangeKind.SELECTOR, names=("zone=x",)), "without the node selector zone=x"),
        (Change(ChangeKind.TOLERATION, names=("pool=x",)), "if it tolerated the taint pool=x"),
        (Change(ChangeKind.GPU_TYPE, names=("A100",), names_was=("H100",)), "on A100 instead of H100"),
        (Change(ChangeKind.GPU_TYPE, names_was=("H100",)), "on GPUs of any type instead of H100"),
        (Change(ChangeKind.GPU_MEMORY, 40_000, 80_000), "on GPUs of 40 GB instead of 80 GB"),
        (Change(ChangeKind.REPLICAS, 3, 4, role="w", gpus=24), "with 24 GPUs (3 of w instead of 4)"),
        (Change(ChangeKind.SHARE, 500, 1000, names=("fraction",)), "with 0.5 of a GPU"),
        (Change(ChangeKind.SHARE, 40, 50, names=("mps",)), "with 40 % of a GPU"),
        (Change(ChangeKind.PASS), "if the policy let it pass those before it"),
        (Change(ChangeKind.PREEMPTIBLE), "if it were preemptible"),
        (Change(ChangeKind.LIMIT, names=("a",)), "if queue a had no limit"),
        (Change(ChangeKind.LIMIT, names=("a/y", "a")), "if queues a/y, a had no limit"),
        (Change(ChangeKind.GUARANTEE, names=("b",)), "if queue b lent what is guaranteed"),
        (Change(ChangeKind.QUOTA, names=("a",)), "if the policy let queue a have more"),
        (
            Change(ChangeKind.BUDGET, 14_400_000, 7_200_000, names=("a",)),
            "if the budget of queue a were more than 4.0 GPU-hours, not 2.0",
        ),
        (Change(ChangeKind.MIN_RUN, 90_000, names=("b",)), "if jobs of queue b had run for their min_run: in 1m 30s"),
        (Change(ChangeKind.REPAIR, names=("n0", "n1")), "if n0, n1 were healthy"),
    ],
    ids=lambda value: value.kind.value if isinstance(value, Change) else "",
)
def test_every_kind_of_change_has_its_words(change: Change, words: str) -> None:
    assert offer(change) == words


@pytest.mark.parametrize("kind", ChangeKind)
def test_no_kind_of_change_is_without_words(kind: ChangeKind) -> None:
    assert offer(Change(kind, names=("x",), names_was=("y",), ends=(Other("a", "q", 1),)))


@pytest.mark.parametrize("reason", Reason)
def test_no_reason_is_without_words(reason: Reason) -> None:
    assert because(Explanation("j", JobState.WAITING, reason))


@pytest.mark.parametrize(
    ("short", "words"),
    [
        (
            QuotaShort("a", "a", 0, 4_000, 2_000, by_limit=True, limit=8_000, used=6_000),
            "it needs 4 GPUs, and 2 are left of the limit of queue a (6 of 8 used)",
        ),
        (
            QuotaShort("a", "a", 0, 1_000, 0, by_limit=True, limit=8_000, used=6_000, kept=2_000),
            "it needs 1 GPU, and 0 are left of the limit of queue a (6 of 8 used, 2 guaranteed to others)",
        ),
        (
            QuotaShort("a", "a", 0, 3_000, 1_000, by_limit=True),
            "it needs 3 GPUs, and 1 is left of the limit of queue a",
        ),
        (
            QuotaShort("a", "", 1, 4_000, 0, limit=64_000, used=64_000),
            "it needs 4 CPUs, and 0 are left of what its queue has or may borrow (64 of 64 in the cluster used)",
        ),
        (
            QuotaShort("a/b", "a", 0, 8_000, 2_000, by_limit=True, limit=6_000, used=4_000, most=6_000),
            (
                "it needs 8 GPUs, and queue a/b could never have more than 6: the limit of queue a is 6; "
                "it can never start as it is"
            ),
        ),
        (
            QuotaShort("a", "a", 0, 8_000, 2_000, by_limit=True, limit=6_000, used=4_000, most=6_000),
            "it needs 8 GPUs, and queue a could never have more than 6: its limit is 6; it can never start as it is",
        ),
        (
            QuotaShort("a", "", 0, 8_000, 2_000, limit=8_000, used=4_000, most=5_000),
            (
                "it needs 8 GPUs, and queue a could never have more than 5: the cluster has 8, of which 3 guaranteed "
                "to others; it can never start as it is"
            ),
        ),
        (QuotaShort("a", "a", 0, 1, 0, by_budget=True), "queue a has used up its budget of GPU-hours"),
    ],
)
def test_a_quota_is_told_with_its_arithmetic(short: QuotaShort, words: str) -> None:
    assert because(replace(Explanation("j", JobState.WAITING, Reason.QUOTA), quota=short)) == words


def research() -> World:
    """16 GPUs; research has 6 of its limit of 8, guaranteed 2 of them; others hold the rest of n0 and 4 on n1."""
    queues = (
        Queue("research", limit=Quota(8_000)),
        Queue("research/llm", guaranteed=Quota(2_000)),
        Queue("research/vision"),
        Queue("prod"),
    )
    world = World(replace(flat(2, 8), queues=queues), "fifo:skip=true")
    world.run(
        a_job("v", 4, queue="research/vision", duration_ms=3_600_000),
        a_job("l", 1, queue="research/llm"),
        a_job("p", 4, queue="prod", duration_ms=1_800_000),
    )
    return world


def test_of_a_quota_it_is_told_what_is_used_and_left_and_who_uses_it() -> None:
    world = research()
    world.submit(a_job("j", 4, queue="research/vision"))
    answer = why(world.state, "j")
    assert answer.quota == QuotaShort(
        "research/vision",
        "research",
        0,
        4_000,
        2_000,
        by_limit=True,
        limit=8_000,
        used=5_000,
        kept=1_000,
        held=(Held("research/vision", 4, 1), Held("research/llm", 1, 1)),
        holders=(Other("v", "research/vision", 4, 3_600_000, 1), Other("l", "research/llm", 1, None, 1)),
    )
    assert because(answer) == (
        "it needs 4 GPUs, and 2 are left of the limit of queue research (5 of 8 used, 1 guaranteed to others)"
    )
    told = evidence(answer, 0)
    assert told["held_by"] == "research/vision: 4 GPUs in 1 job, research/llm: 1 GPU in 1 job"
    assert told["next_to_end"] == "4 GPUs of research/vision in 1h 0m"
    hidden = redacted(answer, ("research/vision",)).quota
    assert hidden is not None
    assert hidden.holders == (Other("v", "research/vision", 4, 3_600_000, 1), Other("", "research/llm", 1, None, 0))


def test_of_what_is_borrowed_all_who_hold_anything_are_told() -> None:
    world = World(replace(flat(2, 8), queues=(Queue("a", guaranteed=Quota(4_000)), Queue("b"))), "fifo:skip=true")
    world.run(a_job("b1", 8, queue="b"), a_job("a1", 1, queue="a"))
    world.submit(a_job("j", 6, queue="b"))
    quota = why(world.state, "j").quota
    assert quota is not None
    assert (quota.at, quota.limit, quota.used, quota.kept, quota.left) == ("", 16_000, 9_000, 3_000, 4_000)
    assert [each.queue for each in quota.held] == ["b", "a"]


def test_what_a_lowered_limit_never_lets_start_is_told_so() -> None:
    world = research()
    world.submit(a_job("six", 6, queue="research/vision"))
    queues = (
        replace(world.state.cluster.queues[0], limit=Quota(6_000)),
        *world.state.cluster.queues[1:],
    )
    world.turn(ClusterChanged(replace(world.state.cluster, queues=queues)))
    answer = why(world.state, "six")
    assert answer.reason is Reason.QUOTA
    assert because(answer) == (
        "it needs 6 GPUs, and queue research/vision could never have more than 4: the limit of queue research is 6, "
        "of which 2 guaranteed to others; it can never start as it is"
    )


@pytest.mark.parametrize(
    ("spent_s", "budget_s", "words", "more"),
    [
        (61, 18, "1.0 of 0.3 GPU-minutes", "more than 1.0 GPU-minutes, not 0.3"),
        (3, 1, "3.0 of 1.0 GPU-seconds", "more than 3.0 GPU-seconds, not 1.0"),
        (1_000_000, 18, "277.8 of 0.005 GPU-hours", "more than 277.8 GPU-hours, not 0.005"),
        (61, 0, "1.0 of 0.0 GPU-minutes", "more than 1.0 GPU-minutes, not 0.0"),
    ],
)
def test_small_budgets_are_told_in_units_that_say_something(spent_s: int, budget_s: int, words: str, more: str) -> None:
    answer = Explanation("j", JobState.WAITING, Reason.BUDGET, budgets=(Budget("a", 1000 * spent_s, 1000 * budget_s),))
    assert because(answer) == f"queue a has used up its budget: {words}"
    change = Change(ChangeKind.BUDGET, 1000 * spent_s, 1000 * budget_s, names=("a",))
    assert offer(change) == f"if the budget of queue a were {more}"


def test_a_budget_of_nothing_is_told_as_that() -> None:
    answer = Explanation("j", JobState.WAITING, Reason.BUDGET, budgets=(Budget("a", 0, 0),))
    assert because(answer) == "queue a has a budget of 0 GPU-hours"
    change = Change(ChangeKind.BUDGET, names=("a",))
    assert offer(change) == "if the budget of queue a were more than 0.0 GPU-hours"


def test_who_holds_what_a_job_waits_for_is_told_in_that_and_not_in_gpus() -> None:
    nodes = tuple(replace(node, cpus_milli=16_000) for node in flat(2, 4).nodes)
    world = World(Cluster(nodes, queues=(Queue("a", limit=Quota(None, 12_000)), Queue("b"))), "fifo:skip=true")

    def with_cpus(name: str, gpus: int, queue: str, cpus_milli: int) -> Job:
        return a_job(name, gpus, queue=queue, task={"cpus_milli": cpus_milli}, duration_ms=60_000)

    world.run(with_cpus("a1", 1, "a", 8_000), with_cpus("b1", 1, "b", 14_000))
    world.submit(with_cpus("short of quota", 1, "a", 5_000), with_cpus("short", 1, "b", 9_000))
    lines = evidence(why(world.state, "short of quota"), 0, world.state.usage)
    assert lines["held_by"] == "a: 8 CPUs in 1 job"
    assert "GPU" not in lines["next_to_end"]
    assert world.reason("short") is Reason.AMOUNT
    lines = evidence(why(world.state, "short"), 0, world.state.usage)
    assert lines["held_by"] == "a: 1 job, b: 1 job"
    assert "GPU" not in lines["next_to_end"]


def test_of_a_job_that_does_not_say_how_long_it_takes_no_end_is_told_and_none_counts_for_a_deadline() -> None:
    """Under this policy decisions go by how long jobs like it have run: ten of a second."""
    world = World(flat(1, 1), "phalanx")
    for number in range(10):
        world.run(a_job(f"short{number}", 1))
        world.end(f"short{number}", after_ms=1_000)
    world.run(a_job("runs", 1))
    world.submit(a_job("waits", 1, duration_ms=1_000, deadline_ms=world.now + 1_500))
    explanation = why(world.state, "waits")
    assert [holder.expected_end_ms for holder in explanation.holders] == [None]
    assert "next_to_end" not in evidence(explanation, world.state.now)
    assert "can meet its deadline" in deadline_words(world.state, "waits")


def test_where_nothing_starts_it_nothing_is_offered_but_what_it_waits_for_then_is_told() -> None:
    world = World(replace(flat(1, 8), queues=(Queue("a", limit=Quota(4_000)), Queue("b"))), "fifo:skip=true")
    world.run(a_job("a1", 4, queue="a", preemptible=False), a_job("b1", 4, queue="b", preemptible=False))
    world.submit(a_job("j", 1, queue="a"))
    answer = why(world.state, "j")
    assert answer.changes == ()
    assert sooner(answer) == ""
    assert evidence(answer, 0)["then"] == "if queue a had no limit, it would still wait: too few GPUs are free"


def test_maintenance_that_has_closed_nodes_is_told_with_its_end() -> None:
    kernel = Maintenance("kernel", ("n0",), 60_000, 3_660_000)
    world = World(replace(flat(2, 4), maintenance=(kernel,)))
    world.submit(a_job("j", 4, 2), after_ms=60_000)
    answer = why(world.state, "j")
    assert because(answer) == "nodes that it needs are closed for maintenance (kernel) (of 2 nodes: 1 draining)"
    assert sooner(answer) == "it would start now with 4 GPUs (1 of worker instead of 2)"
    assert evidence(answer, world.now)["maintenance"] == "kernel is over in 1h 0m"


def test_who_may_not_be_stopped_is_told_that_the_policy_bounds_it() -> None:
    queues = (Queue("a", deserved=Quota(4_000)), Queue("b", deserved=Quota(4_000)))
    world = World(replace(flat(1, 8), queues=queues), "kai")
    world.submit(a_job("j", 6, queue="a", preemptible=False))
    answer = why(world.state, "j")
    assert because(answer) == "it needs 6 GPUs, and 4 are left of what the policy lets it have"
    assert sooner(answer) == "it would start now if it were preemptible"


def test_a_spent_budget_is_told_with_its_figures() -> None:
    world = World(replace(flat(1, 8), queues=(Queue("a", budget_gpu_ms=2 * 3_600_000),)), "fifo:skip=true")
    world.run(a_job("first", 4, queue="a"))
    world.submit(a_job("j", 1, queue="a"), after_ms=3_600_000)
    answer = why(world.state, "j")
    assert because(answer) == "queue a has used up its budget: 4.0 of 2.0 GPU-hours"
    assert sooner(answer) == "it would start now if the budget of queue a were more than 4.0 GPU-hours, not 2.0"


def test_who_waits_for_the_least_run_of_others_is_told_so_and_for_how_long() -> None:
    queues = (Queue("a", deserved=Quota(4_000)), Queue("b", min_run_ms=60_000))
    world = World(replace(flat(1, 8), queues=queues))
    world.run(a_job("b1", 8, queue="b"))
    world.submit(a_job("a1", 4, queue="a"), after_ms=20_000)
    answer = why(world.state, "a1")
    assert because(answer).endswith("; jobs of queue b would give way, but have not yet run for its min_run")
    assert sooner(answer) == "it would start now if jobs of queue b had run for their min_run: in 40s"
    assert evidence(answer, world.now)["min_run"] == "8 GPUs of b in 40s"
    assert redacted(answer, ()).spared[0].job == ""


def test_for_whom_something_is_reserved_is_told_by_name_or_by_queue() -> None:
    world = World(flat(1, 4), "fifo:skip=true")
    world.run(a_job("small", 2, duration_ms=90_000))
    world.submit(a_job("large", 4, duration_ms=50_000, max_wait_ms=60_000))
    world.turn(after_ms=60_000)
    world.submit(a_job("j", 2, duration_ms=500_000))
    answer = why(world.state, "j")
    assert because(answer) == "it would fit, but not end before what it takes is reserved for job large"
    assert evidence(answer, world.now)["reserved_for"] == "job large of queue default (4 GPUs) in 30s"
    hidden = redacted(answer, ())
    assert because(hidden).endswith("is reserved for a job of queue default")
    assert evidence(hidden, world.now)["reserved_for"] == "a job of queue default (4 GPUs) in 30s"


def test_what_is_left_of_a_limit_is_said_to_be_kept_however_short_a_job_is() -> None:
    world = World(replace(flat(1, 8), queues=(Queue("a", limit=Quota(4_000)), Queue("b"))), "fifo:skip=true")
    world.run(a_job("long", 2, queue="a", duration_ms=9_000_000), a_job("brief", 2, queue="a"))
    world.submit(a_job("late", 4, queue="a", max_wait_ms=60_000))
    world.turn(after_ms=70_000)
    world.end("brief")
    world.submit(a_job("j", 2, queue="a", duration_ms=1_000))
    answer = why(world.state, "j")
    assert because(answer) == "it would fit, but what is left of the limit of queue a is kept for job late"
    assert because(redacted(answer, ())).endswith("of queue a is kept for a job of queue a")


def test_a_job_that_ran_and_failed_has_not_failed_to_start() -> None:
    world = World(flat(1, 4))
    world.run(a_job("j", 1, retry_limit=2))
    world.turn(AttemptEnded("j", 1, Outcome.FAILED, "exit code 1"), after_ms=5_000)
    assert because(why(world.state, "j")) == "it ran and failed; it is tried again after a pause"


@pytest.mark.parametrize(
    ("span", "now_ms", "words"),
    [
        (Span(60_000, 90_000, 120_000), 0, "in 1m 0s to 2m 0s in 8 of 10 cases (19 runs)"),
        (Span(60_000, 90_000, 120_000), 30_000, "in 30s to 1m 30s in 8 of 10 cases, told 30s ago (19 runs)"),
        (Span(60_000, 60_000, 60_000), 0, "in 1m 0s"),
        (Span(60_000, None, None), 0, "not before in 1m 0s; how late is beyond the 1h 0m looked ahead"),
        (Span(60_000, None, None), 60_000, "any moment; how late is beyond the 1h 0m looked ahead, told 1m 0s ago"),
        (Span(60_000, 90_000, None, open=True), 0, "not before in 1m 0s, in half of 19 runs by 1m 30s"),
        (Span(None, None, None), 0, "not within 1h 0m"),
    ],
)
def test_an_expected_start_is_an_interval_with_its_age(span: Span, now_ms: int, words: str) -> None:
    assert expected(Forecast(0, 3_600_000, 19, {"j": span}), "j", now_ms) == words
    assert expected(Forecast(0, 3_600_000, 19, {}), "j", now_ms) == ""


def test_who_has_waited_too_long_and_what_its_place_adds_up_from_are_told() -> None:
    world = World(flat(1, 4), "multifactor:age=100,fairshare=0,size=0,queue=0,priority=50,max_age=2h")
    world.run(a_job("runs", 4))
    world.submit(a_job("late", 4, max_wait_ms=1_800_000, priority=100))
    world.turn(after_ms=3_600_000)
    lines = evidence(why(world.state, "late"), world.now)
    assert lines["overdue"].startswith("it has waited 30m 0s longer than its max_wait")
    assert lines["priority"] == "55 (age 0.5 x 100 = 50, priority 0.1 x 50 = 5)"


def constrained() -> Cluster:
    """Two nodes with little of everything; the first has a taint."""
    few = Node("n0", (), 8, "H100", cpus_milli=8000, memory_mb=8000, nics=1, storage_gb=(("nvme", 100),))
    nodes = (replace(few, taints=(Taint("spot"),)), replace(few, name="n1"))
    return Cluster(nodes, storage=(StorageTier("tape", CLUSTER, capacity_gb=1),))


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (Task(1, cpus_limit_milli=9000), "2 that allow too few CPUs"),
        (Task(1, memory_limit_mb=9000), "2 that allow too little memory"),
        (Task(1, cpus_milli=9000), "2 with too few CPUs"),
        (Task(1, nics=2), "2 with too few NICs"),
        (Task(1, storage_gb=(("nvme", 200),)), "2 with too little nvme storage"),
        (Task(1, storage_gb=(("tape", 2),)), "2 without enough free tape storage"),
        (Task(1, gpu_types=("A100",)), "2 of another GPU type"),
    ],
)
def test_every_constraint_has_words_of_its_own(task: Task, words: str) -> None:
    world = World(constrained())
    world.submit(Job("j", Gang((Role(task=task),))))
    assert because(why(world.state, "j")) == f"no part of this cluster could ever hold it (of 2 nodes: {words})"


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (Task(16), "a task asks for 16 GPUs, and the most a node has is 8"),
        (Task(16, gpu_types=("H100",)), "a task asks for 16 GPUs, and the most a node with H100 has is 8"),
        (Task(1, cpus_milli=9500), "a task asks for 9.5 CPUs, and the most a node has is 8"),
        (Task(1, memory_mb=10240), "a task asks for 10 GB of memory, and the most a node has is 7.8125"),
        (Task(1, nics=2), "a task asks for 2 NICs, and the most a node has is 1"),
        (Task(1, gpu_types=("A100",)), "a task asks for A100, and the cluster has H100"),
    ],
)
def test_who_never_fits_is_told_what_is_asked_and_the_most_there_is(task: Task, words: str) -> None:
    world = World(constrained())
    world.submit(Job("j", Gang((Role(task=task),))))
    told = because_in(world.state, why(world.state, "j"))
    assert told.startswith(f"no part of this cluster could ever hold it: {words} (of 2 nodes: 2 ")


def test_a_cluster_without_gpus_says_so_to_who_asks_for_a_type() -> None:
    world = World(Cluster((Node("n0", cpus_milli=8000),)))
    world.submit(Job("j", Gang((Role(task=Task(1, gpu_types=("H100",))),))))
    assert "a task asks for H100, and the cluster has no GPUs" in because_in(world.state, why(world.state, "j"))


def test_nodes_that_a_job_prefers_are_named_with_how_much_of_it_lies_there() -> None:
    world = World(racked(1, 3, 4))
    liked = tuple(NodePreference("phalanx/node", f"n{i}", i) for i in (1, 2))
    pending = replace(a_job("p", 4, 4), preferences=liked)
    world.submit(replace(a_job("j", 4, 3), preferences=liked))
    world.turn()
    world.submit(pending)
    world.turn()
    told = [evidence(why(world.state, job), 0)["prefers"] for job in ("j", "p")]
    assert told == ["n2, n1; 2 of its 3 tasks lie there", "n2, n1"]
    world.submit(replace(a_job("k", 1), preferences=(NodePreference("phalanx/node", "n1", -5),)))
    assert "prefers" not in evidence(why(world.state, "k"), 0), "a node that is liked less is not preferred"


def test_labels_and_taints_are_named_in_words() -> None:
    world = World(constrained())
    world.submit(Job("j", Gang((Role(task=Task(1)),)), node_selector=(("storage.class", "fast"),)))
    assert because(why(world.state, "j")).endswith("(of 2 nodes: 2 without the label storage.class=fast)")
    world.submit(Job("x", Gang((Role(task=Task(1)),)), node_selector=(("phalanx/node", "!n0,n1"),)))
    assert because(why(world.state, "x")).endswith("2 that it excludes by phalanx/node=n0,n1)")
    world.submit(a_job("k", 1, 9))
    assert because(why(world.state, "k")).endswith("(of 2 nodes: 1 with the taint spot, which it does not tolerate)")


def test_no_predicate_of_the_placer_is_shown_by_its_own_name() -> None:
    amounts = World(constrained()).state.capacity.amounts
    names = [name for amount in amounts for name in (amount.name, f"node_{amount.name}")]
    assert not any("ruled out by" in predicate_words(name) for name in [*names, "outside", "selector a=b", "taint a"])


def test_every_reason_has_a_few_words() -> None:
    assert list(REASON_WORDS) == list(Reason)


@pytest.mark.parametrize("memory_mb", [1, 7, 1_023, 1_024, 3_413, 349_525, 1_048_575])
def test_an_amount_that_is_offered_is_what_a_job_file_has_to_say_to_get_it(memory_mb: int) -> None:
    words = offer(Change(ChangeKind.MEMORY, memory_mb, 2 * memory_mb))
    said = words.removeprefix("with ").partition(" ")[0]
    job = read_job(f"command: train\nmemory_gb: {said}\n", "job.yaml")
    assert job.gang.roles[0].task.memory_mb == memory_mb


@pytest.mark.parametrize(
    ("left_ms", "words"),
    [(0, "in 0s"), (247, "in under 1s"), (12_345, "in 12s"), (59_700, "in 1m 0s"), (5_400_000, "in 1h 30m")],
)
def test_a_moment_to_come_is_told_to_the_second(left_ms: int, words: str) -> None:
    assert moment(1_000 + left_ms, 1_000) == words
