"""Reasons and changes in words: one clear line each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import World, a_job, racked
from phalanx.cluster.cluster import Health, flat
from phalanx.engine.change import Change, ChangeKind, Other
from phalanx.engine.explain import Explanation, redacted
from phalanx.engine.plan import Reason
from phalanx.engine.quotas import Shortfall
from phalanx.engine.records import JobState
from phalanx.engine.why import why
from phalanx.simulate.forecast import Forecast, Span
from phalanx.words import because, evidence, expected, offer, sooner


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


def test_what_would_start_it_is_one_line_and_the_rest_below() -> None:
    answer = why(halves().state, "j")
    assert sooner(answer) == "it would start now with 4 GPUs a task instead of 8 (8 in all)"
    assert evidence(answer, 0) == {
        "other_ways": "if jobs a, c of queue default (8 GPUs) ended",
        "held_by": "default: 16 GPUs in 4 jobs",
        "free_gpus": "4 nodes with 4",
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
    assert because(answer) == "it is behind job h, which does not fit and lets nobody pass"
    assert sooner(answer) == "it would start now if job a of queue default (6 GPUs) ended"
    assert evidence(answer, 0)["then"] == "if the policy let it pass those before it it would still wait: gpus"


def test_jobs_that_may_not_be_known_are_told_by_their_queue() -> None:
    world = World(flat(1, 8))
    world.run(a_job("a", 6, queue="x"))
    world.submit(a_job("h", 4, queue="x"), a_job("j", 3, queue="y"))
    answer = redacted(why(world.state, "j"), ("y",))
    assert because(answer) == "it is behind a job of queue x, which does not fit and lets nobody pass"
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
        (Change(ChangeKind.DEPENDENCY, names=("a", "b")), "if it did not wait for a, b"),
        (Change(ChangeKind.ARRAY_LIMIT, 3, 2), "with 3 members of its array at a time instead of 2"),
        (Change(ChangeKind.DURATION, 90_000), "if it took at most 1m 30s"),
        (Change(ChangeKind.CPUS, 8_000, 16_000), "with 8 CPUs a task instead of 16"),
        (Change(ChangeKind.MEMORY, 4_096, 8_192), "with 4 GB of memory a task instead of 8"),
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
        (Change(ChangeKind.QUOTA, names=("a",)), "if queue a had no quota"),
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
            Shortfall("a", "a", 0, 4_000, 2_000, by_limit=True),
            "it needs 4 GPUs, and 2 are left of the limit of queue a",
        ),
        (Shortfall("a", "", 1, 4_000, 0), "it needs 4 CPUs, and 0 are left of what its queue has or may borrow"),
        (Shortfall("a", "a", 0, 1, 0, by_budget=True), "queue a has used up its budget of GPU-hours"),
    ],
)
def test_a_quota_is_told_with_its_arithmetic(short: Shortfall, words: str) -> None:
    assert because(replace(Explanation("j", JobState.WAITING, Reason.QUOTA), quota=short)) == words


@pytest.mark.parametrize(
    ("span", "now_ms", "words"),
    [
        (Span(60_000, 90_000, 120_000), 0, "in 1m 0s to 2m 0s in 8 of 10 cases (19 runs)"),
        (Span(60_000, 90_000, 120_000), 30_000, "in 30s to 1m 30s in 8 of 10 cases, told 30s ago (19 runs)"),
        (Span(60_000, 60_000, 60_000), 0, "in 1m 0s"),
        (Span(60_000, None, None), 0, "not within 1m 0s"),
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
