"""Failures by chance come as often as they should, the same again, and their rates come out of a log of them."""

from __future__ import annotations

from collections import Counter

import pytest

from phalanx.cluster.cluster import Cluster, Node
from phalanx.faults.fit.fitted import fit, surplus_chance
from phalanx.faults.fit.log import LogError, read_log
from phalanx.faults.generate.draw import Site, draw, lemons_of
from phalanx.faults.generate.file import OccurrenceError, as_csv, occurrences_of
from phalanx.faults.generate.occurrence import What
from phalanx.faults.generate.plan import DAY_MS, plan_of
from phalanx.faults.taxonomy.choose import ProfileError

NODES = tuple(Node(f"n{each:03}", (f"rack{each // 8}",), 8, spot=each < 16) for each in range(256))
SITE = Site.of(Cluster(NODES, levels=("rack", "node")))
YEAR_MS = 365 * DAY_MS


def log_of(spec: str, seed: int = 1) -> str:
    found = draw(plan_of(spec), SITE, YEAR_MS, seed)
    return "at_s,node\n" + "".join(f"{each.at_ms / 1000},{each.nodes[0]}\n" for each in found)


def test_failures_come_as_often_as_the_profile_says() -> None:
    expected = 256 * 365 * 6.5 / 1000
    counts = [len(draw(plan_of("rsc-1"), SITE, YEAR_MS, seed)) for seed in range(8)]
    assert sum(counts) / 8 == pytest.approx(expected, rel=0.04)


def test_the_same_seed_gives_the_same_failures_and_another_gives_others() -> None:
    plan = plan_of("llama-3:burst=0.1,lemons=3,slow_days=50")
    assert draw(plan, SITE, YEAR_MS, 5) == draw(plan, SITE, YEAR_MS, 5) != draw(plan, SITE, YEAR_MS, 6)


def test_asking_for_stragglers_moves_no_failure() -> None:
    plain = draw(plan_of("rsc-1"), SITE, YEAR_MS, 5)
    more = draw(plan_of("rsc-1:slow_days=50,silent_days=70"), SITE, YEAR_MS, 5)
    assert tuple(each for each in more if each.what in (What.NODE, What.PROCESS)) == plain
    assert {each.what for each in more} == {What.NODE, What.SLOW, What.SILENT}


def test_lemons_fail_twenty_times_as_often() -> None:
    plan = plan_of("rsc-1:lemons=4")
    lemons = set(lemons_of(plan, SITE, 3))
    counts = Counter(each.nodes[0] for each in draw(plan, SITE, YEAR_MS, 3))
    of_lemons = sum(counts[node] for node in lemons) / 4
    of_others = sum(count for node, count in counts.items() if node not in lemons) / 252
    assert of_lemons / of_others == pytest.approx(20, rel=0.25)


def test_a_burst_takes_the_whole_rack() -> None:
    found = draw(plan_of("rsc-1:burst=1"), SITE, YEAR_MS, 2)
    assert {len(each.nodes) for each in found} == {8}
    assert all(len({name for name in each.nodes if name[0] == "n"}) == 8 for each in found)


def test_reclaims_take_spot_nodes_only_with_their_notice() -> None:
    found = [each for each in draw(plan_of("rsc-1:reclaim_hours=100"), SITE, YEAR_MS, 2) if each.what is What.RECLAIM]
    assert {each.nodes[0] for each in found} == {node.name for node in NODES if node.spot}
    assert {each.notice_ms for each in found} == {120_000}


def test_failures_written_to_a_file_are_read_back() -> None:
    found = draw(plan_of("llama-3:burst=0.2,partition_days=90,maintenance_days=30"), SITE, YEAR_MS // 12, 4)
    assert occurrences_of(as_csv(found), "faults.csv", SITE.nodes) == found


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("5,node,n999", "nodes is 'n999'"),
        ("5,node,", "nodes is '': expected at least one node"),
        ("-5,node,n001", "at_s is '-5'"),
        ("5,boom,n001", "what is 'boom'"),
        ("5,slow,n001,,,,,2", "factor is '2'"),
        ("nan,node,n001", "at_s is 'nan'"),
    ],
)
def test_a_line_that_is_no_failure_is_named(line: str, told: str) -> None:
    text = f"at_s,what,nodes,cause,detect_s,repair_s,notice_s,factor\n{line}\n"
    with pytest.raises(OccurrenceError, match=rf"f.csv: line 2: {told}"):
        occurrences_of(text, "f.csv", SITE.nodes)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("rsc-1:burst=2", "at most 1"),
        ("rsc-1:detect=soon", "expected a time"),
        ("rsc-1:lemons=1.5", "whole number"),
        ("rsc-1:lemon=1", "there is no setting 'lemon'"),
        ("rsc-1:shape=0", "at least 0.05"),
        ("rsc-1:lemons=1,lemons=2", "given twice"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(spec: str, told: str) -> None:
    with pytest.raises(ProfileError, match=told):
        plan_of(spec)


def test_more_lemons_than_nodes_are_refused() -> None:
    with pytest.raises(ProfileError, match="257 lemons among 256"):
        draw(plan_of("rsc-1:lemons=257"), SITE, DAY_MS, 0)


def test_a_rate_without_end_is_refused_before_memory_is_full() -> None:
    with pytest.raises(ProfileError, match="at most 2,000,000 can be made"):
        draw(plan_of("rsc-1:scale=1000000"), SITE, YEAR_MS, 0)


def test_the_rate_comes_out_of_a_log_and_its_interval_holds_the_truth() -> None:
    found = fit(read_log(log_of("rsc-1"), "log", nodes=256, until_s=YEAR_MS / 1000))
    assert found.low_per_hour < 6.5 / 24_000 < found.high_per_hour
    assert found.better is found.exponential
    assert found.exponential.p_value > 0.05


def test_the_shape_of_a_weibull_comes_out_of_a_log() -> None:
    found = fit(read_log(log_of("rsc-1:shape=0.6,scale=5"), "log", nodes=256, until_s=YEAR_MS / 1000))
    assert found.weibull.shape == pytest.approx(0.6, abs=0.03)
    assert found.better is found.weibull
    assert found.exponential.p_value < 0.001 < found.weibull.p_value
    assert found.weibull.mean_hours == pytest.approx(24_000 / 6.5 / 5, rel=0.15)


def test_what_was_still_well_counts() -> None:
    # Two nodes of 10 failed in 100 h: 900 h and more without a failure.
    text = "at_s,node\n180000,a\n288000,b\n"
    found = fit(read_log(text, "log", nodes=10, until_s=360_000))
    assert found.exponential.mean_hours == pytest.approx(10 * 100 / 2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("at_s,node\n", "0 failures: expected at least 2"),
        ("at_s,node\n5,a\n", "1 failures: expected at least 2"),
        ("at_s,node\n5,a\n-7,b\n", "line 3: at_s is '-7'"),
        ("at_s,node\n5,a\n7,\n", "line 3: node is empty"),
        ("at_s,node\n5,a\n7\n", "line 3: has 1 values"),
        ("when,node\n5,a\n", "there is no column at_s"),
        ("at_s,node\n0,a\n0,b\n", "times that differ"),
    ],
)
def test_a_log_that_cannot_be_fitted_says_why(text: str, told: str) -> None:
    with pytest.raises(LogError, match=told):
        read_log(text, "log.csv")


def test_a_gap_in_a_log_and_what_is_not_known_are_told() -> None:
    lines = "".join(f"{each * 3600},n{each % 7}\n" for each in range(1, 90)) + f"{400 * 3600},n1\n"
    notes = read_log("at_s,node\n" + lines, "log").notes
    assert any("nothing is logged from 320400 s to 1.44e+06 s" in note for note in notes)
    assert any("--nodes" in note for note in notes)


def test_failures_of_one_moment_can_be_fitted() -> None:
    assert fit(read_log("at_s,node\n100,a\n100,a\n100,b\n", "log")).failures == 3


def test_many_failures_of_one_node_are_no_chance() -> None:
    assert surplus_chance(0, 1.0) == 1
    assert surplus_chance(2, 0.18) == pytest.approx(0.0144, abs=5e-4)
    assert surplus_chance(600, 550) == pytest.approx(0.0176, abs=3e-3)
