from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.document import DocumentError
from phalanx.workload.array import members
from phalanx.workload.formats.native import read_job
from phalanx.workload.halving import Contest, Halving
from phalanx.workload.sweep import Choice, Range, Sweep, drawn, grid

HEAD = "command: [python, train.py, '--lr={lr}', '{{other}}', '${shell}']\ngpus: 1\nenv: {A: b}\n"


def points(sweep: str, head: str = HEAD) -> list[dict[str, str]]:
    job = read_job(f"{head}sweep: {sweep}\n", "job.yaml", job_id="7")
    assert job.sweep is not None
    return [dict(point) for point in job.sweep.points]


def test_a_grid_has_every_combination_the_last_changing_fastest() -> None:
    assert points("{parameters: {lr: [0.1, 0.01], optimizer: [adam, sgd]}}") == [
        {"lr": "0.1", "optimizer": "adam"},
        {"lr": "0.1", "optimizer": "sgd"},
        {"lr": "0.01", "optimizer": "adam"},
        {"lr": "0.01", "optimizer": "sgd"},
    ]


def test_members_have_their_values_in_command_and_variables() -> None:
    sweep = "{parameters: {lr: [0.1, 0.01], optimizer: [adam]}, at_once: 3, halving: {metric: loss, first: 5}}"
    first, second = members(read_job(f"{HEAD}sweep: {sweep}\n", "job.yaml", job_id="7"))
    assert (first.id, first.array_of, second.id) == ("7.0", "7", "7.1")
    assert first.array is not None
    assert (first.array.indices, first.array.parallel_max) == ((0,), 3)
    assert second.execution.command == ("python", "train.py", "--lr=0.01", "{other}", "${shell}")
    assert second.execution.env == (("A", "b"), ("PHALANX_SWEEP_LR", "0.01"), ("PHALANX_SWEEP_OPTIMIZER", "adam"))
    assert second.sweep == Sweep(((("lr", "0.01"), ("optimizer", "adam")),), Halving("loss", False, 5, 3))


@pytest.mark.parametrize("command", ["[python, t.py, '--lr={lrr}']", "python t.py --lr={lrr}"])
def test_a_place_for_a_parameter_that_there_is_not_is_refused(command: str) -> None:
    with pytest.raises(DocumentError) as refused:
        read_job(f"gpus: 1\ncommand: {command}\nsweep: {{parameters: {{lr: [1, 2]}}}}\n", "job.yaml")
    assert str(refused.value).startswith("job.yaml:2: key 'command")
    words = "'{lrr}' is no parameter of the sweep (the text itself is written '{{lrr}}'), did you mean 'lr'?"
    assert str(refused.value).endswith(words)


def test_random_points_are_the_same_for_the_same_seed() -> None:
    sweep = "{method: random, samples: %d, seed: %d, parameters: {lr: {min: 0.001, max: 1, scale: log}, n: [a, b]}}"
    assert points(sweep % (8, 5)) == points(sweep % (8, 5))
    assert points(sweep % (8, 5)) == points(sweep % (20, 5))[:8]
    assert points(sweep % (8, 5)) != points(sweep % (8, 6))


def test_random_points_fill_their_ranges_evenly() -> None:
    parameters = (
        Range("lr", Decimal("0.001"), Decimal("1.5"), log=True),
        Range("layers", Decimal(-2), Decimal(1)),
        Range("width", Decimal(1), Decimal(1000), log=True),
        Choice("optimizer", ("adam", "sgd", "lion")),
    )
    found = [dict(point) for point in drawn(parameters, 3000, seed=1)]
    below = sum(float(point["lr"]) < 0.0387 for point in found)  # half of the factors from 0.001 to 1.5
    assert 1350 < below < 1650
    counts = {layers: sum(point["layers"] == layers for point in found) for layers in ("-2", "-1", "0", "1")}
    assert sum(counts.values()) == 3000
    assert min(counts.values()) > 650
    assert {point["optimizer"] for point in found} == {"adam", "sgd", "lion"}
    assert sum(int(point["width"]) < 32 for point in found) > 1300
    assert sum(point["width"] == "1000" for point in found) < 10


@given(st.integers(-50, 50), st.integers(0, 50), st.integers(0, 2**63 - 1))
def test_a_value_lies_in_its_range(least: int, more: int, seed: int) -> None:
    whole = Range("n", Decimal(least), Decimal(least + more))
    broken = Range("x", Decimal(least), Decimal(least + more) + Decimal("0.5"))
    for point in drawn((whole, broken), 5, seed):
        values = dict(point)
        assert least <= int(values["n"]) <= least + more
        assert least <= float(values["x"]) <= least + more + 0.5


def test_a_grid_of_one_value_each_is_one_point() -> None:
    assert grid((Choice("a", ("1",)), Choice("b", ("2",)))) == ((("a", "1"), ("b", "2")),)


@pytest.mark.parametrize(
    ("sweep", "told"),
    [
        ("{}", "the key 'parameters' is missing"),
        ("{parameters: {}}", "expected at least one parameter"),
        ("{parameters: {LR: [1]}}", "expected a name of small letters"),
        ("{parameters: {lr: []}}", "expected a list of 1 to 1000 items"),
        (
            "{parameters: {lr: {min: 0, max: 1}}}",
            "a grid needs a list of values; to draw from a range write method: random",
        ),
        ("{method: random, parameters: {lr: [1]}}", "the key 'samples' is missing"),
        ("{samples: 3, parameters: {lr: [1]}}", "a grid has every combination"),
        (
            "{method: random, samples: 2, parameters: {lr: {min: 2, max: 1}}}",
            "expected at least the min, which is 2, got 1",
        ),
        (
            "{method: random, samples: 2, parameters: {lr: {min: 0, max: 1, scale: log}}}",
            "expected a number above 0 on a log scale, got 0",
        ),
        (
            f"{{parameters: {{a: {list(range(101))}, b: {list(range(100))}}}}}",
            "expected at most 10000 points, got 101 × 100 = 10100",
        ),
        ("{parameters: {lr: [1]}, halving: {metric: loss}}", "the key 'first' is missing"),
        (
            "{parameters: {lr: [1]}, halving: {metric: loss, first: 1, factor: 1}}",
            "expected a whole number from 2 to 1000",
        ),
    ],
)
def test_a_sweep_that_makes_no_sense_is_refused(sweep: str, told: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        points(sweep)
    assert told in str(refusal.value)


def test_a_sweep_is_no_array() -> None:
    with pytest.raises(DocumentError, match="a sweep makes its own members, leave it out"):
        points("{parameters: {lr: [1]}}", head=HEAD + "array: 0-3\n")


def test_rungs_are_at_powers_of_the_factor() -> None:
    halving = Halving("loss", first=10, factor=3)
    assert halving.rungs(9) == []
    assert halving.rungs(100) == [10, 30, 90]


def test_who_is_not_among_the_best_of_a_rung_is_outdone() -> None:
    contest = Contest(Halving("loss", first=10, factor=2))
    assert contest.report("a", 9, 9.0) is None, "no rung yet"
    assert contest.report("a", 10, 5.0) is None, "the first goes on"
    assert contest.report("b", 12, 6.0) == 10, "of two the best one goes on"
    assert contest.report("c", 10, 4.0) is None
    assert contest.report("d", 10, 4.5) is None, "of four the best two go on"
    assert contest.report("e", 10, 4.9) == 10
    assert contest.report("c", 20, 9.0) is None, "the first at its rung"
    assert contest.report("d", 20, 9.5) == 20


def test_more_may_be_better() -> None:
    contest = Contest(Halving("accuracy", maximize=True, first=1, factor=2))
    assert contest.report("a", 1, 0.5) is None
    assert contest.report("b", 1, 0.4) == 1
    assert contest.report("c", 1, 0.6) is None


def test_what_is_no_number_loses() -> None:
    for value in (float("nan"), float("inf"), float("-inf")):
        assert Contest(Halving("loss", first=1)).report("a", 1, value) == 1


def test_a_member_is_compared_once_at_a_rung() -> None:
    contest = Contest(Halving("loss", first=10, factor=2))
    contest.report("a", 10, 5.0)
    assert contest.report("b", 10, 1.0) is None
    assert contest.report("b", 11, 99.0) is None, "what it says later counts at the next rung"
    assert contest.reached == {10: {"a": 5.0, "b": 1.0}}


REPORTS = st.lists(st.tuples(st.sampled_from("abcdefghi"), st.floats(0, 1)), max_size=60)


@given(REPORTS, st.integers(2, 4))
def test_somebody_always_goes_on_and_never_worse_than_who_was_stopped(
    reports: list[tuple[str, float]], factor: int
) -> None:
    contest = Contest(Halving("loss", first=1, factor=factor))
    first: dict[str, float] = {}
    stopped: dict[str, float] = {}
    for member, value in reports:
        if member in first:
            continue
        first[member] = value
        if contest.report(member, 1, value) is not None:
            stopped[member] = value
            assert sum(other < value for other in first.values()) >= max(len(first) // factor, 1)
    if first:
        best = min(first.values())
        assert any(value == best for member, value in first.items() if member not in stopped)
