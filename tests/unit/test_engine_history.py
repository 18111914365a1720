from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_job
from phalanx.engine.state import history
from phalanx.engine.state.history import ENOUGH, LENGTHS_MAX, History, Lengths
from phalanx.workload.job import Job

PERMILLES = st.integers(0, 1000)


def job(queue: str = "research/llm", user: str = "ada", gpus: int = 8) -> Job:
    return a_job("j", gpus, queue=queue, user=user)


def known(*ended: tuple[Job, int], times: int = ENOUGH) -> History:
    made = History()
    for like, length_ms in ended:
        for _ in range(times):
            made.add(like, length_ms)
    return made


def test_nothing_is_said_of_what_nobody_has_seen() -> None:
    assert History().quantile_ms(job(), 800) is None


def test_a_quantile_is_the_least_length_that_so_many_do_not_exceed() -> None:
    made = History()
    for length_ms in range(100, 1100, 100):
        made.add(job(), length_ms)
    assert made.quantile_ms(job(), 800) == 800
    assert made.quantile_ms(job(), 801) == 900
    assert [made.quantile_ms(job(), each) for each in (0, 100, 500, 1000)] == [100, 100, 500, 1000]


def test_who_has_run_for_a_while_is_like_those_who_ran_longer() -> None:
    made = known((job(), 100), (job(), 1000), (job(), 5000))
    assert made.quantile_ms(job(), 500) == 1000
    assert made.quantile_ms(job(), 500, executed_ms=100) == 1000
    assert made.quantile_ms(job(), 500, executed_ms=1000) == 5000
    assert made.quantile_ms(job(), 500, executed_ms=5000) is None


def test_jobs_of_the_same_user_queue_and_size_tell_most() -> None:
    made = known((job(gpus=8), 100), (job(gpus=1), 200), (job(user="bob", gpus=8), 300), (job(queue="prod"), 400))
    assert made.quantile_ms(job(gpus=8), 500) == 100
    assert made.quantile_ms(job(gpus=4), 1000) == 200, "of ada all sizes are known"
    assert made.quantile_ms(job(user="eve", gpus=1), 500) == 200, "of others those of the size"
    assert made.quantile_ms(job(user="", gpus=3), 1000) == 300, "else all of the queue"


def test_a_queue_without_history_is_like_those_beside_it() -> None:
    made = known((job(queue="research/vision"), 700), (job(queue="prod"), 100))
    assert made.quantile_ms(job(queue="research/llm", user="eve"), 1000) == 700
    assert made.quantile_ms(job(queue="sales", user="eve"), 1000) == 700
    assert made.quantile_ms(job(queue="sales", user="eve"), 500) == 100


def test_few_of_a_kind_are_passed_over_for_many_of_a_wider_one() -> None:
    made = known((job(gpus=1), 100))
    made.add(job(gpus=8), 9000)
    assert made.quantile_ms(job(gpus=8), 500) == 100
    alone = History()
    alone.add(job(), 9000)
    assert alone.quantile_ms(job(), 500) == 9000, "one is better than none"


def test_what_is_kept_of_a_kind_are_the_latest() -> None:
    made = known((job(), 10), times=LENGTHS_MAX)
    for _ in range(LENGTHS_MAX - 1):
        made.add(job(), 20)
    assert [made.quantile_ms(job(), each) for each in (1, 1000)] == [10, 20]
    made.add(job(), 20)
    assert [made.quantile_ms(job(), each) for each in (1, 1000)] == [20, 20]


def test_kinds_that_nothing_was_added_to_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KINDS_MAX", 12)
    made = known((job(user="ada"), 100))
    for number in range(20):
        made.add(job(user=f"user{number}"), 500)
    assert len(made.fingerprint()) == 12
    kinds = [kind for kind, _ in made.fingerprint()]  # type: ignore[misc,has-type]
    assert ("research/llm", "ada", 8) not in kinds
    assert ("research/llm", "", 0) in kinds, "what is added to all the time stays"


def test_four_of_five_run_no_longer_than_the_quantile_of_800() -> None:
    chance = random.Random(5)
    made = History()
    held = []
    for number in range(4000):
        user = f"user{chance.randrange(20)}"
        # Every user has a length of their own, around which their jobs vary by factors.
        length_ms = int(60_000 * (1 + int(user[4:])) * chance.lognormvariate(0, 1))
        said = made.quantile_ms(job(user=user), 800)
        if number >= 2000:
            assert said is not None
            held.append(length_ms <= said)
        made.add(job(user=user), length_ms)
    assert 0.77 <= sum(held) / len(held) <= 0.83


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), PERMILLES, st.integers(0, 60))
def test_quantiles_are_those_of_the_sorted_lengths(lengths: list[int], permille: int, executed_ms: int) -> None:
    made = Lengths()
    for length_ms in lengths:
        made.add(length_ms)
    longer = sorted(each for each in lengths if each > executed_ms) if executed_ms else sorted(lengths)
    assert made.beyond(executed_ms) == len(longer)
    if longer:
        assert made.quantile_ms(permille, executed_ms) == longer[max(math.ceil(permille * len(longer) / 1000), 1) - 1]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "u"]), st.integers(1, 9)), max_size=30))
def test_the_same_history_says_the_same(ended: list[tuple[str, str, int]]) -> None:
    one, other = History(), History()
    for queue, user, length_ms in ended:
        one.add(job(queue, user), length_ms)
        other.add(job(queue, user), length_ms)
    assert one.fingerprint() == other.fingerprint()
    for permille in (200, 800):
        assert one.quantile_ms(job("a", "u"), permille) == other.quantile_ms(job("a", "u"), permille)
