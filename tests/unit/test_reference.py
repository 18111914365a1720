"""The plain simulator and the formulas that the product is compared with, checked by hand."""

from __future__ import annotations

from fractions import Fraction
from math import exp
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.queueing import (
    gittins_order,
    hazard_of,
    load,
    mg1_fifo_response,
    mg1_fifo_wait,
    mg1_srpt_response,
    mm1_fifo_response,
    mm1_fifo_wait,
)
from reference.tiresias import RefJob, RefResult, gittins_index, simulate

RULES = ["fifo", "fjf", "sjf", "shortest", "shortest-gpu", "dlas", "dlas-gpu", "dlas-gpu-s", "gittins"]


def jobs(**rows: tuple[int, int, int]) -> list[RefJob]:
    """Jobs in file order, each as (submit, duration, gpus)."""
    return [RefJob(name, *row) for name, row in rows.items()]


def preempted(result: RefResult) -> dict[str, int]:
    return {name: count for name, count in result.preemptions.items() if count}


def simulate_any(rows: list[RefJob], gpus: int, rule: str) -> RefResult:
    """With small limits, so that jobs change queues."""
    samples = [1, 2, 30] if rule == "gittins" else ()
    return simulate(rows, gpus, rule, limits=(8, 16), samples=samples, quantum=4)


# 4 GPUs: a wide job waits behind a less wide one, a narrow one comes last.
WIDE_BETWEEN = jobs(a=(0, 10, 3), b=(1, 4, 4), c=(2, 6, 1))

# 2 GPUs: wide, narrow, wide, narrow.
BY_TURNS = jobs(a=(0, 8, 2), b=(2, 6, 1), c=(3, 2, 2), d=(4, 3, 1))


def test_fifo_waits_for_its_head() -> None:
    # a 0–10. b needs all 4: 10–14. c would fit at 2 but stands behind b: 14–20.
    result = simulate(WIDE_BETWEEN, 4, "fifo")
    assert result.start == {"a": 0, "b": 10, "c": 14}
    assert result.end == {"a": 10, "b": 14, "c": 20}
    assert result.mean_jct == Fraction(10 + 13 + 18, 3)
    assert result.makespan == 20


def test_fifo_starts_as_many_heads_as_fit() -> None:
    # a 0–8. At 8 b starts, c (2 GPUs) does not fit beside it and holds up d. b ends at 14: c 14–16. d 16–19.
    result = simulate(BY_TURNS, 2, "fifo")
    assert result.end == {"a": 8, "b": 14, "c": 16, "d": 19}
    assert result.mean_jct == Fraction(8 + 12 + 13 + 15, 4)
    assert preempted(result) == {}


def test_fifo_takes_completions_before_arrivals_and_one_second_in_file_order() -> None:
    # At 5 a ends, then b and c arrive: b comes first in the file and starts on a's GPU. Makespan counts from 3.
    result = simulate(jobs(a=(3, 2, 1), b=(5, 4, 1), c=(5, 1, 1)), 1, "fifo")
    assert result.end == {"a": 5, "b": 9, "c": 10}
    assert result.makespan == 7


def test_fjf_skips_what_does_not_fit() -> None:
    # a 0–10. c fits beside it: 2–8. b when a has ended: 10–14.
    result = simulate(WIDE_BETWEEN, 4, "fjf")
    assert result.end == {"a": 10, "b": 14, "c": 8}
    assert result.mean_jct == Fraction(10 + 13 + 6, 3)
    assert result.makespan == 14


def test_fjf_lets_the_narrow_pass_the_wide() -> None:
    # a 0–8. At 8: b 8–14, c skipped, d 8–11. c once both GPUs are free: 14–16.
    result = simulate(BY_TURNS, 2, "fjf")
    assert result.end == {"a": 8, "b": 14, "c": 16, "d": 11}
    assert result.mean_jct == Fraction(8 + 12 + 13 + 7, 4)


def test_fjf_keeps_a_wide_job_waiting_while_narrow_ones_overlap() -> None:
    # a 0–4, w needs both. b 3–7 on the other GPU, c 6–10 on a's. Both GPUs are free at 10 for the first time: w 10–11.
    # Nobody who runs is stopped at 4 or 7, though w came before b and c.
    result = simulate(jobs(a=(0, 4, 1), w=(1, 1, 2), b=(3, 4, 1), c=(6, 4, 1)), 2, "fjf")
    assert result.end == {"a": 4, "w": 11, "b": 7, "c": 10}
    assert preempted(result) == {}


def test_sjf_runs_the_fewest_gpus_and_stops_the_wide() -> None:
    # a 0–2. At 2 b (1 GPU) goes first, a does not fit any more, 6 s left. At 4 d beside b: d 4–7, b 2–8.
    # At 7 a GPU is free, a and c need two. At 8 a is before c in the list: a 8–14, c 14–16.
    result = simulate(BY_TURNS, 2, "sjf")
    assert result.end == {"a": 14, "b": 8, "c": 16, "d": 7}
    assert result.mean_jct == Fraction(14 + 6 + 13 + 3, 4)
    assert preempted(result) == {"a": 1}


def test_sjf_lets_a_wide_job_wait_for_all_narrower_ones() -> None:
    # c (1) and a (3) fill the 4 GPUs from 2 to 8; b (4) fits when a has ended: 10–14.
    result = simulate(WIDE_BETWEEN, 4, "sjf")
    assert result.end == {"a": 10, "b": 14, "c": 8}
    assert preempted(result) == {}


def test_sjf_knows_no_durations_and_keeps_arrival_order_between_equals() -> None:
    # b is shorter but a came first: a 0–9, b 9–10. n (1 GPU) at 3 would stop a: 0–3 and 4–10 for a, then b 10–11.
    assert simulate(jobs(a=(0, 9, 2), b=(1, 1, 2)), 2, "sjf").end == {"a": 9, "b": 10}
    result = simulate(jobs(a=(0, 9, 2), b=(1, 1, 2), n=(3, 1, 1)), 2, "sjf")
    assert result.end == {"a": 10, "b": 11, "n": 4}
    assert preempted(result) == {"a": 1}


def test_shortest_runs_the_least_remaining_time() -> None:
    # At 1 a has 9 left, b 4: b runs alone, 1–5. At 2 b has 3 left, c 6, a 9. At 5 c and a fit together: c 5–11, a 5–14.
    result = simulate(WIDE_BETWEEN, 4, "shortest")
    assert result.end == {"a": 14, "b": 5, "c": 11}
    assert result.mean_jct == Fraction(14 + 4 + 9, 3)
    assert preempted(result) == {"a": 1}


def test_shortest_lets_the_earlier_of_equals_go_on() -> None:
    # At 2 a and b both have 6 left: a stays. At 3 a has 5, c 2: c 3–5, a stopped. At 5: d (3), a (5) does not fit
    # beside it, b (6) does: d 5–8. At 8 b has 3 left, a 5: b to 11, a 11–16.
    result = simulate(BY_TURNS, 2, "shortest")
    assert result.end == {"a": 16, "b": 11, "c": 5, "d": 8}
    assert result.mean_jct == Fraction(16 + 9 + 2 + 4, 4)
    assert preempted(result) == {"a": 1}


def test_shortest_looks_at_what_remains_not_at_what_was_asked() -> None:
    # At 7 a of 10 has 3 left, b asks for 4: a goes on to 10, b 10–14. At 5 it would have 5 left, and b would go first.
    assert simulate(jobs(a=(0, 10, 1), b=(7, 4, 1)), 1, "shortest").end == {"a": 10, "b": 14}
    assert simulate(jobs(a=(0, 10, 1), b=(5, 4, 1)), 1, "shortest").end == {"a": 14, "b": 9}


def test_shortest_gpu_weighs_time_with_gpus() -> None:
    # At 1 a has 9·3 = 27, b 4·4 = 16: b runs. At 2 c has 6, b 3·4 = 12, a 27: c takes 1, b does not fit in 3, a does.
    # At 8 c ends; a has run 1 + 6 s, 3·3 = 9 left, b 12: a to 11. b 11–14.
    result = simulate(WIDE_BETWEEN, 4, "shortest-gpu")
    assert result.end == {"a": 11, "b": 14, "c": 8}
    assert result.mean_jct == Fraction(11 + 13 + 6, 3)
    assert preempted(result) == {"a": 1, "b": 1}


def test_shortest_gpu_prefers_the_narrow_of_equal_times() -> None:
    # At 2 a has 6·2 = 12, b 6: b. At 3 c has 4, b 5, a 12: c 3–5, b stopped. At 5 d (3) and b (5): d 5–8, b 5–10.
    # a from 10: 6 s left, 16.
    result = simulate(BY_TURNS, 2, "shortest-gpu")
    assert result.end == {"a": 16, "b": 10, "c": 5, "d": 8}
    assert result.mean_jct == Fraction(16 + 8 + 2 + 4, 4)
    assert preempted(result) == {"a": 1, "b": 1}


def test_shortest_gpu_runs_a_long_narrow_job_before_a_short_wide_one() -> None:
    # n: 10·1 = 10, w: 4·4 = 16. By time alone w would go first.
    both = jobs(w=(0, 4, 4), n=(0, 10, 1))
    assert simulate(both, 4, "shortest-gpu").end == {"n": 10, "w": 14}
    assert simulate(both, 4, "shortest").end == {"w": 4, "n": 14}


def test_dlas_drops_a_job_by_the_seconds_it_ran() -> None:
    # Limits 3 and 6. a from 0, c beside it from 2. At 3 a drops to queue 1 and still fits: b (4) does not. At 5 c has
    # run 3 s and drops; b has queue 0 alone: a (5 s run) and c (3 s run) stop. At 8 b has run 3 s and drops behind
    # them: a and c run, b (1 s left) stops. At 9 a has run 6 s and drops to queue 2: c and a still fit. At 11 c ends
    # with its limit reached, b goes before a: b 11–12. a (8 s run) 12–14.
    result = simulate(WIDE_BETWEEN, 4, "dlas", limits=(3, 6))
    assert result.end == {"a": 14, "b": 12, "c": 11}
    assert result.start == {"a": 0, "b": 5, "c": 2}
    assert preempted(result) == {"a": 2, "b": 1, "c": 1}


def test_dlas_puts_those_that_run_before_those_that_wait() -> None:
    # Limits 3 and 6. At 3 a drops: b runs, c and a (2 GPUs each, a with 5 s left) do not fit. At 4 d runs: queue 0 is
    # b, d, c. At 6 b drops behind a and still runs, so that queue 1 becomes b, a. At 7 d ends, c 7–9, b stops with 2 s
    # left. At 9 b is before a, because it ran when a did not: b 9–11. a 11–16.
    result = simulate(BY_TURNS, 2, "dlas", limits=(3, 6))
    assert result.end == {"a": 16, "b": 11, "c": 9, "d": 7}
    assert result.mean_jct == Fraction(16 + 9 + 6 + 3, 4)
    assert preempted(result) == {"a": 1, "b": 1}


def test_dlas_counts_one_second_for_any_number_of_gpus() -> None:
    # Limit 4. a (4 GPUs) has run 3 s when b comes at 3, and drops at 4: b 4–6, a again 6–12. With GPUs counted, a would
    # have dropped at 1, and b would start at once: 3–5, a 5–12.
    both = jobs(a=(0, 10, 4), b=(3, 2, 1))
    assert simulate(both, 4, "dlas", limits=(4, 100)).start == {"a": 0, "b": 4}
    assert simulate(both, 4, "dlas", limits=(4, 100)).end == {"a": 12, "b": 6}
    assert simulate(both, 4, "dlas-gpu", limits=(4, 100)).end == {"a": 12, "b": 5}


def test_dlas_gpu_drops_a_job_by_its_gpu_seconds() -> None:
    # Limits 6 and 18. At 2 c arrives, a has 2·3 = 6 and drops: b runs alone. At 4 b has 2·4 = 8 and drops behind a: c
    # and a run, b (2 s left) stops. At 8 a has 6·3 = 18 and drops to queue 2; b does not fit beside c, a still does.
    # At 10 c ends with its limit reached: b before a, 10–12. a (8 s run) 12–14.
    result = simulate(WIDE_BETWEEN, 4, "dlas-gpu", limits=(6, 18))
    assert result.end == {"a": 14, "b": 12, "c": 10}
    assert result.mean_jct == Fraction(14 + 11 + 8, 3)
    assert preempted(result) == {"a": 2, "b": 1}


def test_dlas_gpu_stops_the_wide_sooner() -> None:
    # Limits 4 and 10. At 2 a has 2·2 = 4 and drops: b runs, a (6 s left) stops. At 4 d runs, at 6 b has 4 and drops
    # behind a, but runs, so before it. At 7 d ends: c 7–9, b (1 s left) stops. b 9–10. a 10–16.
    result = simulate(BY_TURNS, 2, "dlas-gpu", limits=(4, 10))
    assert result.end == {"a": 16, "b": 10, "c": 9, "d": 7}
    assert result.mean_jct == Fraction(16 + 8 + 6 + 3, 4)
    assert preempted(result) == {"a": 1, "b": 1}


@pytest.mark.parametrize(("tick", "start"), [(1, 4), (1000, 3334)])
def test_dlas_gpu_notices_a_limit_at_the_first_whole_tick_after_it(tick: int, start: int) -> None:
    # 10 GPU-seconds on 3 GPUs: 10/3 s, which is 4 whole seconds or 3334 whole milliseconds.
    result = simulate(jobs(a=(0, 9 * tick, 3), b=(tick, tick, 1)), 3, "dlas-gpu", tick=tick, limits=(10, 100))
    assert result.start["b"] == start
    assert result.end == {"a": 10 * tick, "b": start + tick}


def test_a_job_past_two_limits_at_once_drops_one_queue_an_event() -> None:
    # Limits 2 and 3 on 4 GPUs: at 1 a has 4 and drops to queue 1. At 3 b comes, a drops to queue 2. At 4 b has 4 and
    # drops to queue 1, still before a: b 3–6, a 6–13.
    result = simulate(jobs(a=(0, 10, 4), b=(3, 3, 4)), 4, "dlas-gpu", limits=(2, 3))
    assert result.end == {"a": 13, "b": 6}
    assert preempted(result) == {"a": 1}


# 1 GPU, limit 2: a is in queue 1 from second 2 on, and the others come too fast for it.
CROWD = jobs(a=(0, 4, 1), b=(1, 2, 1), c=(2, 2, 1), d=(3, 2, 1), e=(5, 2, 1), f=(7, 2, 1))


def test_a_starved_job_is_last_without_promotion() -> None:
    # a 0–2, then b 2–4, c 4–6, d 6–8, e 8–10, f 10–12, and a 12–14.
    assert simulate(CROWD, 1, "dlas-gpu", limits=(2, 100)).end == {"a": 14, "b": 4, "c": 6, "d": 8, "e": 10, "f": 12}


@pytest.mark.parametrize(
    ("knob", "a", "e", "f"),
    [
        # Due after 2·2 = 4 s of waiting, at 6: queue 0 is d, e, a, then f. d 6–8, e 8–10, a 10–12, f 12–14.
        (2, 12, 10, 14),
        # Due after 2·1 = 2 s, at 4: queue 0 is c, d, a, then e and f. c 4–6, d 6–8, a 8–10, e 10–12, f 12–14.
        (1, 10, 12, 14),
        # ⌊2·5/4⌋ = 2 s, as before.
        (Fraction(5, 4), 10, 12, 14),
        # Due after 2·5 = 10 s, at 12: f ends then, a has the GPU anyhow.
        (5, 14, 10, 12),
    ],
)
def test_a_job_that_waited_its_executed_time_often_enough_is_promoted(
    knob: int | Fraction, a: int, e: int, f: int
) -> None:
    result = simulate(CROWD, 1, "dlas-gpu-s", limits=(2, 100), knob=knob)
    assert result.end == {"a": a, "b": 4, "c": 6, "d": 8, "e": e, "f": f}


def test_promotion_makes_two_long_jobs_take_turns() -> None:
    # Limit 2, knob 1. a 0–2 and drops; b 2–4. At 4 b drops and a, having waited 2 s, is promoted with its service
    # forgotten: a 4–6. At 6 they change again: b (2 s left) 6–8, a (1 s left) 8–9.
    both = jobs(a=(0, 5, 1), b=(2, 4, 1))
    result = simulate(both, 1, "dlas-gpu-s", limits=(2, 100), knob=1)
    assert result.end == {"a": 9, "b": 8}
    assert preempted(result) == {"a": 2, "b": 1}
    # Without it b drops behind a at 4, and a (3 s left) goes on: 4–7, b 7–9.
    assert simulate(both, 1, "dlas-gpu", limits=(2, 100)).end == {"a": 7, "b": 9}


def test_waiting_before_the_first_start_promotes_nobody() -> None:
    # b waits in queue 0 from 0 to 3 and is not moved behind c; it starts when a drops at 3. a, with 3 s run, is due at
    # 6: b 3–5, c 5–7, a promoted behind c at 6: 7–9.
    result = simulate(jobs(a=(0, 5, 1), b=(0, 2, 1), c=(2, 2, 1)), 1, "dlas-gpu-s", limits=(3, 100), knob=1)
    assert result.end == {"a": 9, "b": 5, "c": 7}


def test_the_gittins_index_is_the_chance_to_end_over_the_service_spent() -> None:
    samples = [1, 1, 1, 10]
    # Next 2 from 0: three of four end, spending 1 each; one spends 2. P/E = (3/4)/((3 + 2)/4).
    assert gittins_index(samples, 0, 2) == Fraction(3, 5)
    # From 1: the one left (10) does not end by 3.
    assert gittins_index(samples, 1, 2) == 0
    # From 8: it ends at 10, which is not above 8 + 2, spending 2. The authors' code counts its whole size.
    assert gittins_index(samples, 8, 2) == Fraction(1, 2)
    assert gittins_index(samples, 8, 2, "code") == Fraction(1, 10)
    # Nothing is known beyond the largest sample.
    assert gittins_index(samples, 10, 2) == 0
    # From 1 with quantum 4, samples 2, 4, 9: two end, spending 1 + 3, one spends 4: 2/8. The code: 2/(2 + 4 + 4).
    assert gittins_index([2, 4, 9], 1, 4) == Fraction(2, 8)
    assert gittins_index([2, 4, 9], 1, 4, "code") == Fraction(2, 10)


def test_gittins_runs_the_highest_index_of_a_queue() -> None:
    # At 1 a has service 1, index 0; b is new, index 3/5: b 1–2, a 2–6. By least service alone a would keep its place in
    # queue 0: a 0–5, b 5–6.
    both = jobs(a=(0, 5, 1), b=(1, 1, 1))
    result = simulate(both, 1, "gittins", samples=[10, 1, 1, 1], quantum=2)
    assert result.end == {"a": 6, "b": 2}
    assert preempted(result) == {"a": 1}
    assert simulate(both, 1, "dlas-gpu").end == {"a": 5, "b": 6}


@pytest.mark.parametrize(("form", "a", "b"), [("theory", 10, 11), ("code", 11, 9)])
def test_gittins_lets_a_job_near_its_end_go_on_in_theory_only(form: str, a: int, b: int) -> None:
    # Samples 2 and 10, quantum 2. At 8 b is new: 1/(2 + 2) = 1/4. a has 8: 1/(10 − 8) = 1/2 in theory, 1/10 in the
    # code.
    result = simulate(jobs(a=(0, 10, 1), b=(8, 1, 1)), 1, "gittins", samples=[2, 10], quantum=2, form=form)
    assert result.end == {"a": a, "b": b}


def test_gittins_puts_the_queue_before_the_index() -> None:
    # As above, but a dropped to queue 1 at 4: b has queue 0 at 8 in spite of its lower index.
    parameters: dict[str, Any] = {"samples": [2, 10], "quantum": 2, "limits": (4, 100)}
    assert simulate(jobs(a=(0, 10, 1), b=(8, 1, 1)), 1, "gittins", **parameters).end == {"a": 11, "b": 9}


def test_gittins_counts_gpu_seconds() -> None:
    # At 4 a has 4·2 = 8 and index 1/2, b 1/4: a 0–5, b 5–6.
    result = simulate(jobs(a=(0, 5, 2), b=(4, 1, 1)), 2, "gittins", samples=[2, 10], quantum=2)
    assert result.end == {"a": 5, "b": 6}


def test_gittins_takes_the_first_submitted_of_equals_even_if_another_ran_last() -> None:
    # Index 1 when new, 0 after. At 1 b stops a, at 2 c stops b. At 3 c ends; a and b are equal: a 3–5, b 5–7.
    result = simulate(jobs(a=(0, 3, 1), b=(1, 3, 1), c=(2, 1, 1)), 1, "gittins", samples=[1], quantum=1)
    assert result.end == {"a": 5, "b": 7, "c": 3}
    assert preempted(result) == {"a": 1, "b": 1}


@pytest.mark.parametrize("rule", RULES)
def test_a_job_larger_than_the_cluster_never_runs_and_holds_up_nobody(rule: str) -> None:
    result = simulate_any(jobs(huge=(0, 5, 9), a=(1, 3, 8)), 8, rule)
    assert result.end == {"a": 4}
    assert result.preemptions == {"huge": 0, "a": 0}
    assert result.mean_jct == 3
    assert result.makespan == 4
    assert simulate_any(jobs(huge=(0, 5, 9)), 8, rule) == RefResult({}, {}, {"huge": 0}, Fraction(0), 0)


@pytest.mark.parametrize("rule", RULES)
@given(rows=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 4)), max_size=12))
def test_every_job_that_fits_ends_and_runs_its_whole_duration(rule: str, rows: list[tuple[int, int, int]]) -> None:
    result = simulate_any([RefJob(str(at), *row) for at, row in enumerate(rows)], 4, rule)
    for at, (submit, duration, _) in enumerate(rows):
        ran_for = result.end[str(at)] - result.start[str(at)]
        assert result.start[str(at)] >= submit
        assert ran_for >= duration if result.preemptions[str(at)] else ran_for == duration


@pytest.mark.parametrize("rule", RULES)
@given(rows=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), min_size=1, max_size=12))
def test_on_one_gpu_no_rule_has_a_lower_mean_than_the_shortest(rule: str, rows: list[tuple[int, int]]) -> None:
    # Schrage (1968): least remaining time first has the least mean response on one server, for any arrivals. No rule
    # idles while a job waits, so that all end at the same time.
    narrow = [RefJob(str(at), *row, gpus=1) for at, row in enumerate(rows)]
    best = simulate_any(narrow, 1, "shortest")
    result = simulate_any(narrow, 1, rule)
    assert best.mean_jct <= result.mean_jct
    assert best.makespan == result.makespan


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 GPU"):
        simulate(jobs(a=(0, 1, 0)), 1, "fifo")
    with pytest.raises(ValueError, match="no rule 'lifo'; expected one of fifo, fjf"):
        simulate([], 1, "lifo")
    with pytest.raises(ValueError, match="gittins needs samples"):
        simulate([], 1, "gittins")


def test_the_means_of_one_server_agree_with_each_other() -> None:
    # λ = 1/2, μ = 1: ρ = 1/2, wait (1/2)/(1/2) = 1, response 1/(1/2) = 2. Exponential sizes have E[S²] = 2.
    assert mm1_fifo_wait(0.5, 1) == pytest.approx(1)
    assert mm1_fifo_response(0.5, 1) == pytest.approx(2)
    assert mg1_fifo_wait(0.5, 1, 2) == pytest.approx(mm1_fifo_wait(0.5, 1))
    # All sizes 1: half the wait, (1/2)·1/(2·1/2) = 1/2.
    assert mg1_fifo_response(0.5, 1, 1) == pytest.approx(1.5)
    with pytest.raises(ValueError, match="the load is 1; expected at least 0 and below 1"):
        load(2, 0.5)


def test_srpt_in_light_traffic_delays_by_the_lesser_of_two_jobs() -> None:
    # With few arrivals only pairs meet: a job of size S finds one with r left, and one of the two waits min(r, S).
    # Exponential, mean 1: r is again exponential, E[min] = 1/2: E[T] = 1 + λ/2 + O(λ²).
    assert mg1_srpt_response(0.001, lambda x: exp(-x), 40) == pytest.approx(1 + 0.0005, abs=2e-6)
    # Uniform on [0, 1]: E[min(r, S)] = r − r²/2; integrated over r from 0 to s: s²/2 − s³/6; over s: 1/6 − 1/24 = 1/8.
    assert mg1_srpt_response(0.001, lambda x: 1.0, 1) == pytest.approx(0.5 + 0.000125, abs=1e-6)


def test_the_simulator_comes_near_the_formulas() -> None:
    # Load 1/2, exponential sizes of mean 1,000,000 ticks. By size-blind orders the mean is 2, by srpt 1.4254.
    chance, at, rows = Random(3), 0.0, []
    for name in range(8000):
        at += chance.expovariate(0.5)
        rows.append(RefJob(str(name), round(at * 1e6), round(chance.expovariate(1) * 1e6) + 1, 1))
    srpt = mg1_srpt_response(0.5, lambda x: exp(-x), 40)
    assert srpt == pytest.approx(1.4254, abs=1e-4)
    for rule, mean in [("fifo", 2.0), ("dlas", 2.0), ("shortest", srpt)]:
        result = simulate(rows, 1, rule, tick=1_000_000, limits=(1, 2))
        assert float(result.mean_jct) / 1e6 == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize(
    ("samples", "order"),
    [
        # Of 24, 12 end at 1, 4 of 12 at 2, 2 of 8 at 3: hazard 1/2, 1/3, 1/4.
        ([1] * 12 + [2] * 4 + [3] * 2 + [9] * 6, "las"),
        # Half of those left end at each second.
        ([1] * 8 + [2] * 4 + [3] * 2 + [9] * 2, "any"),
        # One of three, one of two, the last: 1/3, 1/2, 1.
        ([1, 2, 3], "fifo"),
        # 1/4, then 2/3, then 0.
        ([1, 2, 2, 9], "index"),
    ],
)
def test_the_trend_of_the_hazard_says_what_gittins_comes_to(samples: list[int], order: str) -> None:
    # With a quantum of the samples' grain the index is the hazard.
    rates = [float(gittins_index(samples, service, 1)) for service in range(3)]
    assert gittins_order(hazard_of(rates)) == order
