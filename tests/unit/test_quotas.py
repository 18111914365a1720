from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.formats.native import read_cluster
from phalanx.cluster.queues import Queue, Quota, QuotaConflict, loose_limits, settled
from phalanx.engine.fold.check import check
from phalanx.engine.quota.quotas import Quotas
from phalanx.engine.state.errors import NeverFitsError
from phalanx.planning import plan
from phalanx.policy.view import Usage
from phalanx.protocol.event import JobSubmitted
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Job

GPU = 1000
PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "queues.md").read_text(encoding="utf-8")


def gpus(count: int) -> Quota:
    return Quota(GPU * count)


def of(count: int) -> Usage:
    return Usage(GPU * count)


def shared(*queues: Queue, total: int = 16) -> Quotas:
    return Quotas(Cluster((Node("n0", (), total, cpus_milli=64_000),), queues=queues))


def two_labs(**of_b: object) -> Quotas:
    """16 GPUs: lab a deserves 8 of which 4 are guaranteed to it, lab b deserves 8."""
    return shared(
        Queue("a", guaranteed=gpus(4), deserved=gpus(8)),
        Queue("b", deserved=gpus(8), **of_b),  # type: ignore[arg-type]
    )


def test_a_queue_borrows_what_others_deserve_but_do_not_use() -> None:
    quotas = two_labs()
    assert quotas.shortfall("b", of(12)) is None
    quotas.use("b", of(12), 1)
    assert quotas.accounts["b"].borrows


def test_what_is_guaranteed_is_never_lent() -> None:
    short = two_labs().shortfall("b", of(13))
    assert short is not None
    assert (short.at, short.asked, short.left, short.by_limit) == ("", 13 * GPU, 12 * GPU, False)


def test_what_is_lent_is_missing_until_it_comes_back() -> None:
    quotas = two_labs()
    quotas.use("b", of(12), 1)
    assert quotas.shortfall("a", of(4)) is None
    short = quotas.shortfall("a", of(5))
    assert short is not None
    assert short.left == 4 * GPU
    quotas.use("b", of(4), -1)
    assert quotas.shortfall("a", of(8)) is None


def test_a_queue_within_what_it_deserves_reclaims_of_one_that_borrows() -> None:
    quotas = two_labs()
    quotas.use("b", of(12), 1)
    assert quotas.reclaims("a", of(8), "b")
    assert not quotas.reclaims("a", of(9), "b"), "that would be more than a deserves"
    assert not quotas.reclaims("b", of(1), "a")


def test_a_use_that_is_undone_does_not_change_the_order_in_which_borrowers_are_asked() -> None:
    quotas = shared(*(Queue(name, deserved=gpus(4)) for name in "abcd"))
    for borrower in ("c", "b"):
        quotas.use(borrower, of(6), 1)
    before = [account.path for account in quotas.borrowers_for("a", of(1))]
    for borrower in ("b", "c"):
        quotas.use(borrower, of(6), -1)
        quotas.use(borrower, of(6), 1)
    assert [account.path for account in quotas.borrowers_for("a", of(1))] == before == ["b", "c"]


def test_what_is_not_reclaimable_stays_borrowed() -> None:
    quotas = two_labs(reclaimable=False)
    quotas.use("b", of(12), 1)
    assert not quotas.reclaims("a", of(8), "b")


def test_a_limit_stops_a_queue_although_others_would_lend() -> None:
    quotas = two_labs(limit=gpus(10))
    quotas.use("b", of(9), 1)
    short = quotas.shortfall("b", of(2))
    assert short is not None
    assert (short.at, short.left, short.by_limit) == ("b", GPU, True)


def test_resources_are_borrowed_one_by_one() -> None:
    quotas = shared(Queue("a", deserved=Quota(8 * GPU, 32_000)), Queue("b", limit=Quota(None, 16_000)))
    assert quotas.shortfall("b", Usage(16 * GPU, 16_000)) is None
    short = quotas.shortfall("b", Usage(1 * GPU, 17_000))
    assert short is not None
    assert (short.resource, short.at) == (1, "b")


def test_a_resource_that_no_queue_speaks_of_is_nobodys_to_borrow() -> None:
    quotas = two_labs()
    quotas.use("b", Usage(12 * GPU, 48_000), 1)
    quotas.use("a", Usage(2 * GPU, 8_000), 1)
    assert quotas.reclaims("a", Usage(6 * GPU, 24_000), "b"), "quotas are of GPUs only"
    assert not quotas.accounts["a"].borrows


def a_department() -> Quotas:
    """A department of two teams that may have 8 GPUs in all: 3 are guaranteed to y."""
    return shared(
        Queue("d", deserved=gpus(6), limit=gpus(8)),
        Queue("d/x", deserved=gpus(3)),
        Queue("d/y", guaranteed=gpus(3), deserved=gpus(3)),
        Queue("e", deserved=gpus(4)),
    )


def test_the_limit_of_a_queue_holds_for_all_inside() -> None:
    quotas = a_department()
    quotas.use("d/y", of(3), 1)
    assert quotas.shortfall("d/x", of(5)) is None
    short = quotas.shortfall("d/x", of(6))
    assert short is not None
    assert (short.at, short.left) == ("d", 5 * GPU)


def test_nobody_uses_up_the_limit_above_a_neighbour_to_whom_something_is_guaranteed() -> None:
    quotas = a_department()
    short = quotas.shortfall("d/x", of(6))
    assert short is not None
    assert (short.at, short.left) == ("d", 5 * GPU)
    quotas.use("d/x", of(5), 1)
    assert quotas.shortfall("d/y", of(3)) is None


def test_the_most_a_queue_could_have_leaves_others_what_is_guaranteed_to_them() -> None:
    quotas = a_department()
    assert quotas.upper_bound("d/x", 0) == 5 * GPU
    assert quotas.upper_bound("d/y", 0) == 8 * GPU
    assert quotas.upper_bound("e", 0) == 13 * GPU


def test_the_most_a_queue_could_have_is_shown_as_arithmetic() -> None:
    quotas = a_department()
    assert quotas.upper_bounds("d/x", 0)[0] == ("d", 8 * GPU, (("d/y", 3 * GPU),))
    assert [bound.words("d/x", 0) for bound in quotas.upper_bounds("d/x", 0)] == [
        "the limit of d is 8, of which d/y is guaranteed 3",
        "the cluster has 16, of which d/y is guaranteed 3",
    ]
    assert quotas.upper_bounds("d/y", 0)[0].words("d/y", 0) == "the limit of d is 8"
    assert quotas.upper_bounds("e", 0)[0].words("e", 0) == "the cluster has 16, of which d is guaranteed 3"


def test_of_many_who_are_guaranteed_something_some_are_named() -> None:
    quotas = shared(*(Queue(f"q{i}", guaranteed=gpus(1)) for i in range(12)))
    assert quotas.upper_bounds("q0", 0)[0].words("q0", 0).endswith("q5 1, q6 1, and 3 others more")
    assert quotas.upper_bound("q0", 0) == 5 * GPU


def test_reclaim_looks_where_two_queues_lie_side_by_side() -> None:
    quotas = a_department()
    quotas.use("d/x", of(5), 1)
    assert quotas.reclaims("d/y", of(3), "d/x"), "x has 2 more than it deserves of their department"
    assert not quotas.reclaims("e", of(4), "d/x"), "the department has no more than it deserves"
    quotas.use("d/y", of(2), 1)
    assert quotas.reclaims("e", of(4), "d/x"), "now it has, and x has more than it deserves of it"
    assert not quotas.reclaims("e", of(4), "d/y"), "y has no more than it deserves"


def test_what_an_inner_queue_keeps_is_for_all_inside() -> None:
    quotas = shared(Queue("d", guaranteed=gpus(4)), Queue("d/x"), Queue("d/y"), Queue("e"))
    quotas.use("e", of(12), 1)
    assert quotas.shortfall("e", of(1)) is not None
    quotas.use("d/x", of(3), 1)
    assert quotas.shortfall("d/y", of(1)) is None
    assert quotas.shortfall("d/y", of(2)) is not None


def test_a_guaranteed_share_is_there_even_where_quotas_were_cut_under_running_work() -> None:
    quotas = two_labs()
    quotas.take_over([("b", of(15)), ("gone", of(2))])
    assert quotas.shortfall("a", of(4)) is None
    assert quotas.shortfall("a", of(5)) is not None


def test_a_budget_is_spent_by_all_inside() -> None:
    quotas = shared(Queue("d", budget_gpu_ms=100), Queue("d/x"), Queue("e"))
    spent = {"d": 100_000, "d/x": 100_000}
    assert quotas.budgets
    assert quotas.spent_out("d/x", lambda path: spent.get(path, 0)) == "d"
    assert quotas.spent_out("d/x", lambda path: spent.get(path, 0) - 1) is None
    assert quotas.spent_out("e", lambda path: spent.get(path, 0)) is None


def test_only_queues_with_none_inside_take_jobs() -> None:
    assert a_department().leaves() == ["d/x", "d/y", "e"]
    assert not Quotas(Cluster((Node("n0", (), 8),)))


def test_what_is_not_said_follows_from_the_queues_inside() -> None:
    found = settled((Queue("d"), Queue("d/x", gpus(2), gpus(3)), Queue("d/y", gpus(1))), gpus(8))
    assert (found["d"].guaranteed[0], found["d"].deserved[0]) == (3 * GPU, 4 * GPU)
    assert (found[""].guaranteed[0], found[""].deserved[0]) == (3 * GPU, 8 * GPU)


def test_limits_that_bound_nothing_are_told_with_the_queue_that_does() -> None:
    queues = (Queue("a", limit=gpus(8)), Queue("a/b", limit=gpus(9)), Queue("a/b/x", limit=gpus(10)), Queue("c"))
    assert list(loose_limits(queues)) == [
        "queue a/b has a limit of 9 GPUs, but queue a around it one of 8, which holds",
        "queue a/b/x has a limit of 10 GPUs, but queue a around it one of 8, which holds",
    ]
    assert list(loose_limits((Queue("a", limit=gpus(8)), Queue("a/b", limit=gpus(8)), Queue("a/c")))) == []


@pytest.mark.parametrize(
    ("queues", "reason"),
    [
        (
            (Queue("a", deserved=gpus(6)), Queue("b", deserved=gpus(4))),
            "a 6 + b 4 deserve 10 GPUs together, but the cluster has 8",
        ),
        (
            (Queue("a", guaranteed=gpus(2)), Queue("a/x", guaranteed=gpus(3))),
            "queue a/x is guaranteed 3 GPUs, but queue a has 2",
        ),
        ((Queue("a", gpus(3), gpus(2)),), "queue a is guaranteed 3 GPUs, more than the 2 it deserves"),
        ((Queue("a", deserved=gpus(3), limit=gpus(2)),), "queue a deserves 3 GPUs, more than its limit of 2"),
        ((Queue("a", deserved=gpus(1), limit=Quota(500)),), "queue a deserves 1 GPU, more than its limit of 0.5"),
        ((Queue("a/x"),), "queue a/x lies in a, which there is not"),
    ],
)
def test_quotas_that_contradict_one_another_are_refused_with_the_arithmetic(
    queues: tuple[Queue, ...], reason: str
) -> None:
    with pytest.raises(QuotaConflict) as refusal:
        settled(queues, Quota(8 * GPU, 0, 0))
    assert str(refusal.value) == reason


def test_the_worked_table_of_the_page_is_true() -> None:
    example = re.search(r"^    queues:\n(?:    .*\n)+", PAGE, re.MULTILINE)
    assert example
    quotas = Quotas(read_cluster("nodes: [{count: 2, gpus: 8}]\n" + dedent(example[0]), "queues.md"))
    columns = r"\| \**(\d+)\** " * 4
    rows = re.findall(rf"^\| ([^|]*) {columns}\|", PAGE, re.MULTILINE)
    assert len(rows) == 8
    waits = of(0)
    for happens, llm, vision, prod, pool in rows:
        if asks := re.match(r"`(\w+)` asks for (\d+)", happens):
            path = "prod" if asks[1] == "prod" else f"research/{asks[1]}"
            waits = of(int(asks[2]))
            if quotas.shortfall(path, waits) is None:
                quotas.use(path, waits, 1)
        else:
            assert quotas.reclaims("prod", waits, "research/vision")
            quotas.use("research/vision", of(4), -1)
            quotas.use("prod", waits, 1)
        has = [quotas.accounts[path].used[0] // GPU for path in ("research/llm", "research/vision", "prod")]
        assert [*has, quotas.accounts[""].left(0) // GPU] == [int(each) for each in (llm, vision, prod, pool)], happens
    assert not quotas.may_reclaim("prod", waits)


def test_the_refusal_of_the_page_is_the_one_that_is_given() -> None:
    text = dedent(PAGE.split("An example with 16 GPUs:")[1].split("`research` deserves")[0])
    state, _ = plan(read_cluster(f"nodes: [{{count: 2, gpus: 8}}]\n{text}", "page"), [])
    gang = Gang((Role("worker", 9, 9, Task(1)),))
    with pytest.raises(NeverFitsError) as error:
        check(state, JobSubmitted(Job("9", gang, queue="research/vision")))
    assert f"    {error.value}\n" in PAGE
