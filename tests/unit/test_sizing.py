"""Sizing: the formulas beside hand-worked cases, a second derivation and a simulation; the command."""

from __future__ import annotations

import json
from math import exp, factorial, inf, log
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.cli.main import main
from phalanx.sizing.curve import CurveError, Point, read_curve
from phalanx.sizing.queue import Queue
from phalanx.sizing.simulation import simulated_s
from phalanx.sizing.size import Wish, size_at, sizes
from reference.queueing import mm1_fifo_response

CURVE = """gpus,concurrency,requests_per_s
1,1,2
1,4,6
2,8,14
"""


def erlang_c(load: float, servers: int) -> float:
    """Straight from the definition, for few servers: the k-th term by the sum of all."""
    last = load**servers / factorial(servers) * servers / (servers - load)
    return last / (sum(load**k / factorial(k) for k in range(servers)) + last)


def test_one_server_is_mm1() -> None:
    queue = Queue(0.7, 1.0, 1)
    assert queue.waits == pytest.approx(0.7)
    assert queue.mean_s == pytest.approx(mm1_fifo_response(0.7, 1.0))
    # The time in an M/M/1 is exponential with μ − λ: Kleinrock, Queueing Systems 1 (1975), §3.2 and problem 5.8.
    assert queue.later_than(5.0) == pytest.approx(exp(-0.3 * 5))
    assert queue.quantile_s(0.95) == pytest.approx(-log(0.05) / 0.3)


def test_two_servers_by_hand() -> None:
    # a = 1, k = 2: B = (1/2) / (1 + 1 + 1/2) = 1/5, C = 2/5 / (2 - 4/5) = 1/3. Mean 1 + (1/3) / (2 - 1) = 4/3.
    queue = Queue(1.0, 1.0, 2)
    assert queue.waits == pytest.approx(1 / 3)
    assert queue.mean_s == pytest.approx(4 / 3)
    # There kμ − λ = μ: (2/3)e^-t + (1/3)(1 + t)e^-t.
    assert queue.later_than(3.0) == pytest.approx(exp(-3) * (2 / 3 + 4 / 3))


@given(st.integers(1, 30), st.floats(0.01, 0.99))
def test_the_recursion_is_the_definition(servers: int, utilisation: float) -> None:
    queue = Queue(servers * utilisation, 1.0, servers)
    assert queue.waits == pytest.approx(erlang_c(queue.load, servers), rel=1e-6)


@given(st.integers(1, 200), st.floats(0.05, 0.98), st.floats(0.5, 0.999))
def test_a_quantile_is_where_the_tail_is_what_is_left(servers: int, utilisation: float, quantile: float) -> None:
    queue = Queue(servers * utilisation, 1.0, servers)
    assert queue.later_than(queue.quantile_s(quantile)) == pytest.approx(1 - quantile, rel=1e-6)


def test_a_queue_that_grows_for_ever_never_answers() -> None:
    queue = Queue(2.0, 1.0, 2)
    assert (queue.mean_s, queue.quantile_s(0.5), queue.later_than(1e9), queue.waits) == (inf, inf, 1.0, 1.0)


@pytest.mark.parametrize(("servers", "utilisation"), [(1, 0.6), (4, 0.8), (16, 0.9)])
def test_a_simulation_comes_to_the_formula(servers: int, utilisation: float) -> None:
    queue = Queue(servers * utilisation, 1.0, servers)
    assert simulated_s(queue, 0.95, 200_000, seed=1) == pytest.approx(queue.quantile_s(0.95), rel=0.06)


def test_a_size_is_the_smallest_that_answers() -> None:
    wish = Wish(10.0, 3.0, 0.95)
    size = size_at(Point(2, 4, 6.0), wish)
    assert size.replicas is not None
    assert size.gpus == 2 * size.replicas
    assert size.queue.later_than(3.0) <= 0.05
    smaller = Queue(10.0, 1.5, 4 * (size.replicas - 1))
    assert smaller.utilisation >= 1 or smaller.later_than(3.0) > 0.05


@given(st.floats(0.1, 500), st.floats(0.1, 500))
def test_more_load_never_takes_fewer_replicas(one: float, other: float) -> None:
    less, more = sorted((one, other))
    point = Point(1, 4, 6.0)
    few, many = size_at(point, Wish(less, 3.0)).replicas, size_at(point, Wish(more, 3.0)).replicas
    assert few is not None
    assert many is not None
    assert few <= many


def test_a_replica_that_takes_longer_by_itself_is_never_enough() -> None:
    # 95 % of exponential times of mean 1 s end within 3.0 s.
    assert size_at(Point(1, 1, 1.0), Wish(0.001, 2.9)).replicas is None
    assert size_at(Point(1, 1, 1.0), Wish(0.001, 3.1)).replicas == 1


def test_the_fewest_gpus_come_first_and_what_never_answers_last() -> None:
    found = sizes((*read_curve(CURVE, "c.csv"), Point(1, 64, 1.0)), Wish(20.0, 3.0))
    gpus = [size.gpus for size in found]
    assert gpus[-1] is None
    assert gpus[:-1] == sorted(each for each in gpus if each is not None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "got nothing"),
        ("gpus,rate\n", "got gpus, rate"),
        ("concurrency,requests_per_s\n", "1 to 1000 measurements"),
        ("concurrency,requests_per_s\n1,0\n", "c.csv:2: requests_per_s: expected a number above 0"),
        ("concurrency,requests_per_s\n1,nan\n", "above 0"),
        ("concurrency,requests_per_s\n1,inf\n", "above 0"),
        ("concurrency,requests_per_s\n0,1\n", "c.csv:2: concurrency"),
        ("concurrency,requests_per_s\n1.5,1\n", "concurrency: expected a whole number"),
        ("concurrency,requests_per_s\n²,1\n", "concurrency: expected a whole number"),
        ("concurrency,requests_per_s\n1\n", "as many values"),
        ("concurrency,requests_per_s\n1,2,3\n", "as many values"),
    ],
)
def test_a_file_that_is_no_curve_is_told_by_its_line(text: str, words: str) -> None:
    with pytest.raises(CurveError) as told:
        read_curve(text, "c.csv")
    assert words in str(told.value)


def test_gpus_may_be_left_out() -> None:
    assert read_curve("concurrency, requests_per_s\n4, 6\n", "c.csv") == (Point(1, 4, 6.0),)


def told_by(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """What the command exits with and prints."""
    with pytest.raises(SystemExit) as ended:
        main(["size", *arguments])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_the_command_tells_sizes_with_a_simulation_of_the_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "curve.csv"
    file.write_text(CURVE)
    code, out, _ = told_by(capsys, str(file), "--rate", "20", "--latency", "3s", "-o", "json")
    assert code == 0
    best, *rest = json.loads(out)
    assert best["simulated_s"] == pytest.approx(best["latency_s"], rel=0.1)
    assert best["latency_s"] <= 3
    assert best["target"] == pytest.approx(20 / best["replicas"], rel=0.01)
    assert all(row["simulated_s"] is None or row["gpus"] == best["gpus"] for row in rest)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--rate", "20", "--latency", "10ms"], 4, "no size answers"),
        (["--rate", "20", "--latency", "soon"], 2, "expected a duration"),
        (["--rate", "20", "--latency", "0"], 2, "expected a duration"),
        (["--rate", "0", "--latency", "1s"], 2, "--rate"),
        (["--rate", "nan", "--latency", "1s"], 2, "--rate"),
        (["--rate", "inf", "--latency", "1s"], 2, "--rate"),
        (["--rate", "20", "--latency", "1s", "--quantile", "1"], 2, "--quantile"),
    ],
)
def test_what_cannot_be_meant_or_met_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int, words: str
) -> None:
    file = tmp_path / "curve.csv"
    file.write_text(CURVE)
    ended, _, err = told_by(capsys, str(file), *options)
    assert (ended, words in err) == (code, True), err
