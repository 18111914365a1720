"""`phalanx bench`: rows with targets, one stream for every packing, and baselines that are what they are called."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from math import log, sqrt
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner

from phalanx.bench.clock import Patience
from phalanx.bench.collector import as_in_a_server
from phalanx.bench.placement import quality, speed
from phalanx.bench.placement.baselines import AnyFit, BestFit, FirstFit, WholeFromLast
from phalanx.bench.placement.fleet import POOLED_SHARE, Jobs, drained, fleet, gang_of
from phalanx.bench.placement.floor import Floor
from phalanx.bench.placement.office import Office
from phalanx.bench.placement.quality import Outcome, Size, racks, stranded
from phalanx.bench.placement.streams import MIXES, Mix, stream
from phalanx.bench.registry import BENCHMARKS
from phalanx.bench.row import quantile, ratio, row
from phalanx.bench.server import prompt
from phalanx.bench.simulate import published
from phalanx.cli.bench import parts_of
from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run
from phalanx.cluster.bits import lowest
from phalanx.cluster.capacity import Booking, Capacity
from phalanx.cluster.topology import Topology as Tree
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, turn
from phalanx.placement.fit import Fit
from phalanx.placement.gang import GangTrial
from phalanx.placement.pack import Packing
from phalanx.protocol.event import ClusterDefined, JobSubmitted
from phalanx.server.loop import process as server
from phalanx.simulate.traces.synthetic import Synthetic, synthesize
from phalanx.workload.gang import ANYWHERE, Task, Topology
from phalanx.workload.job import Job

ROOT = Path(__file__).parents[2]
KEYS = ["name", "value", "unit", "target", "met"]


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["bench", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_without_a_name_the_benchmarks_and_their_parts_are_listed() -> None:
    code, out, _ = invoke("-o", "json")
    assert code == Exit.OK
    listed = [(each["name"], each["part"]) for each in json.loads(out)]
    assert listed == [(name, part) for name, parts in BENCHMARKS.items() for part in parts]
    assert ("placement", "mesh") in listed


@pytest.fixture(scope="module")
def quick() -> tuple[int, str, str]:
    return invoke("placement", "--quick", "-o", "json")


def test_all_parts_print_rows_on_stdout_and_progress_on_stderr(quick: tuple[int, str, str]) -> None:
    code, out, err = quick
    assert code == Exit.OK
    rows = json.loads(out)
    assert all(list(each) == KEYS for each in rows)
    assert len({each["name"] for each in rows}) == len(rows)
    assert {line.partition(":")[0] for line in err.splitlines()} == {"speed", "quality", "mesh"}


def test_only_the_part_asked_for_is_run() -> None:
    code, out, err = invoke("placement", "--only", "mesh", "--quick")
    assert code == Exit.OK
    assert out.splitlines()[0].split() == ["NAME", "VALUE", "UNIT", "TARGET", "MET"]
    assert err.splitlines() == ["mesh: 5 clusters"]


def test_a_part_that_takes_long_is_run_only_if_it_is_named() -> None:
    long = [key for key, part in BENCHMARKS["page"].items() if part.when_named]
    assert long == ["past", "hour"]
    assert BENCHMARKS["page"]["hour"] not in parts_of("page", ())
    assert parts_of("page", ("hour",)) == [BENCHMARKS["page"]["hour"]]


def test_the_page_is_lighter_than_250_kb() -> None:
    code, out, _ = invoke("page", "--only", "weight", "-o", "json")
    assert code == Exit.OK
    assert [each["met"] for each in json.loads(out)] == [True, None]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nonsense"], f"there is no benchmark 'nonsense' (there is: {', '.join(BENCHMARKS)})"),
        (["placement", "--only", "luck"], "benchmark placement has no part 'luck' (it has: speed, quality, mesh)"),
    ],
)
def test_an_unknown_benchmark_or_part_is_not_found(
    arguments: list[str], complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["bench", *arguments]) == Exit.NOT_FOUND
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == f"phalanx: {complaint}\n"


def test_the_reference_explains_every_kind_of_row(quick: tuple[int, str, str]) -> None:
    page = (ROOT / "docs" / "reference" / "benchmarks.md").read_text(encoding="utf-8")
    names = [each["name"] for each in json.loads(quick[1])]
    # The size of the large gang differs between a quick and a full run.
    kinds = {name.partition(":")[0].partition(", ")[0] for name in names if not name.startswith("place a gang of")}
    assert [kind for kind in sorted(kinds) if f"`{kind}" not in page] == []


def test_a_target_is_the_most_a_value_may_be() -> None:
    assert row("a", 1.0, "ms", 1.0)["met"] is True
    assert row("a", 1.1, "ms", 1.0)["met"] is False
    assert row("a", 1.1, "ms")["met"] is None
    assert row("a", None, "ms", 1.0)["met"] is False


def test_a_ratio_to_nothing_is_one_for_nothing_and_none_for_something() -> None:
    assert ratio(1.0, 2.0) == 0.5
    assert ratio(0.0, 0.0) == 1.0
    assert ratio(1.0, 0.0) is None
    assert ratio(None, 2.0) is None


def test_a_quantile_is_one_of_the_values() -> None:
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile(range(100), 0.99) == 99
    assert quantile([7], 0.99) == 7
    assert quantile([], 0.5) is None


def test_a_verb_is_measured_as_a_user_calls_it_with_its_modules_compiled() -> None:
    around = prompt.environment({"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/h"}, "http://here:1", "secret", "/tmp/x")
    assert "PYTHONDONTWRITEBYTECODE" not in around
    assert (around["HOME"], around["PHALANX_ADDR"]) == ("/h", "http://here:1")


def test_the_fleet_is_as_the_page_says() -> None:
    rng = Random(1)
    cluster = fleet(2_000, rng)
    assert {node.gpus for node in cluster.nodes} == {8}
    assert len({node.gpu_type for node in cluster.nodes}) == 3
    assert set(Counter(node.path for node in cluster.nodes).values()) == {16}
    assert all(bool(node.labels) == bool(node.taints) for node in cluster.nodes)
    assert share(bool(node.taints) for node in cluster.nodes) == pytest.approx(POOLED_SHARE, abs=0.03)
    scarce = share(node.cpus_milli < 128_000 or node.memory_mb < 1_024_000 for node in cluster.nodes)
    assert scarce == pytest.approx(0.1, abs=0.03)
    assert len(drained(cluster, rng)) / 2_000 == pytest.approx(0.05, abs=0.02)


def test_the_jobs_are_gangs_of_1_to_64_gpus_of_which_a_third_require_a_rack() -> None:
    jobs = list(islice(Jobs.of(Random(1)), 3_000))
    assert {job.gang.gpus_min for job in jobs} == {1, 2, 4, 8, 16, 32, 64}
    assert share(job.gang.topology.required == "rack" for job in jobs) == pytest.approx(1 / 3, abs=0.1)
    assert any(job.node_selector for job in jobs)
    assert len({(job.queue, job.gang, job.node_selector, job.tolerations) for job in jobs}) > 300
    assert len({job.id for job in jobs}) == len(jobs)


def share(flags: Iterable[bool]) -> float:
    listed = list(flags)
    return sum(listed) / len(listed)


def test_a_floor_keeps_its_load_while_gangs_come_and_go() -> None:
    floor = Floor(32, 0.5)
    assert len(floor.place(100)) == 100
    assert floor.gpus_used == sum(held.bit_count() for held in floor.capacity.held)
    assert abs(floor.gpus_used - floor.gpus_wanted) <= 64
    first, again = floor.refuse(range(3))
    assert len(first) == len(again) > 0
    floor.capacity.check()


def test_the_collector_is_set_as_a_server_sets_it_and_only_while_something_is_measured() -> None:
    usual = gc.get_threshold()
    with as_in_a_server():
        assert gc.get_threshold() == server.COLLECT
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == usual
    assert gc.get_freeze_count() == 0


def test_a_gang_that_was_to_fit_and_does_not_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="a gang of 33 nodes does not fit a fleet of 32"):
        Floor(32, 0.3).place_large(33)


@pytest.mark.parametrize("policy", speed.POLICIES)
def test_an_office_has_as_many_jobs_waiting_as_it_should(policy: str) -> None:
    office = Office(32, policy)
    patience = Patience(60)
    office.churn_to(0.5, patience)
    assert office.load >= 0.5
    assert office.queue_up(40, patience)
    assert office.waiting >= 40
    assert office.time_end() > 0
    assert office.time_submission() > 0
    assert not any(attempt.in_flight for attempt in office.state.attempts())


def test_what_takes_too_long_to_set_up_is_given_up_and_has_no_value() -> None:
    told: list[str] = []
    size = speed.Size((16,), placings=5, waiting=10_000, turns=5, large_nodes=1, repeats=1, patience_s=0)
    figures = dict(speed.deciding(size, 16, told.append))
    assert set(map(len, figures.values())) == {0}
    assert any("given up" in line for line in told)


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: mix.name)
def test_a_stream_offers_exactly_its_load(mix: Mix) -> None:
    jobs = stream(mix, 0.8, 512, 500, seed=1)
    gpu_ms = sum(job.gang.gpus_min * jobs.durations_ms[job.id] for _, job in jobs.jobs)
    last_ms = jobs.jobs[-1][0]
    assert gpu_ms / last_ms / 512 == pytest.approx(0.8, rel=1e-3)
    assert [at for at, _ in jobs.jobs] == sorted(at for at, _ in jobs.jobs)
    assert stream(mix, 0.8, 512, 500, seed=1) == jobs
    assert stream(mix, 0.8, 512, 500, seed=2) != jobs


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: mix.name)
def test_a_stream_has_the_sizes_of_its_mix(mix: Mix) -> None:
    sizes = Counter(job.gang.gpus_min for _, job in stream(mix, 0.8, 512, 8_000, seed=1).jobs)
    total = sum(mix.weights.values())
    for gpus, weight in mix.weights.items():
        assert sizes[gpus] / sizes.total() == pytest.approx(weight / total, abs=0.03)


def capacity_with_free(*free: int) -> Capacity:
    """One node of 8 GPUs for each number, in racks of 16, with so many free."""
    capacity = Capacity(Tree(racks(len(free))))
    for node, count in enumerate(free):
        if count < 8:
            capacity.hold(Booking(node, (1 << 8 - count) - 1, ()))
    return capacity


def chosen(capacity: Capacity, packing: Packing, gpus: int, count: int = 1, topology: Topology = ANYWHERE) -> list[int]:
    trial = GangTrial(Fit(capacity), packing, Job("j", gang_of(Task(gpus), count, topology)))
    assert trial.seat()
    nodes = [seat.booking.node for seat in trial.seats]
    trial.undo()
    return nodes


def test_best_fit_takes_the_node_with_the_fewest_free_that_fits() -> None:
    capacity = capacity_with_free(8, 5, 2, 3, 1)
    assert chosen(capacity, BestFit(), 1) == [4]
    assert chosen(capacity, BestFit(), 2) == [2]
    assert chosen(capacity, BestFit(), 4) == [1]
    assert chosen(capacity, BestFit(), 8) == [0]
    assert chosen(capacity, BestFit(), 2, 3) == [2, 3, 1]


def test_best_fits_twin_differs_from_it_only_in_which_empty_node_it_takes_whole() -> None:
    capacity = capacity_with_free(8, 5, 2, 8, 5, 2)
    for gpus, first, twins in ((1, 2, 2), (4, 1, 1), (6, 0, 0), (8, 0, 3)):
        assert chosen(capacity, BestFit(), gpus) == [first]
        assert chosen(capacity, WholeFromLast(), gpus) == [twins]
    assert chosen(capacity, WholeFromLast(), 8, 2) == [3, 0]


def test_first_fit_takes_the_lowest_node_that_fits() -> None:
    capacity = capacity_with_free(1, 8, 2, 3)
    assert chosen(capacity, FirstFit(), 1) == [0]
    assert chosen(capacity, FirstFit(), 2) == [1]
    assert chosen(capacity, FirstFit(), 2, 5) == [1, 1, 1, 1, 2]


def test_random_takes_any_node_that_fits_and_the_same_ones_again_with_the_same_seed() -> None:
    capacity = capacity_with_free(*[8] * 16)
    packing, again = AnyFit(rng=Random(3)), AnyFit(rng=Random(3))
    taken = [chosen(capacity, packing, 2)[0] for _ in range(60)]
    assert len(set(taken)) > 8
    assert taken == [chosen(capacity, again, 2)[0] for _ in range(60)]


@pytest.mark.parametrize(("packing", "rack"), [(BestFit(), 2), (WholeFromLast(), 2), (FirstFit(), 0)])
def test_a_baseline_tries_racks_in_its_own_order(packing: Packing, rack: int) -> None:
    free = [8, 8, 8, 1] + [8] + [0] * 11 + [8] * 16 + [8, 8] + [0] * 14
    capacity = capacity_with_free(*free)
    assert {node // 16 for node in chosen(capacity, packing, 8, 2, Topology("rack"))} == {rack}


def test_a_baseline_does_not_look_for_a_tight_rack_unless_it_must() -> None:
    free = [8] + [0] * 15 + [8] * 16
    capacity = capacity_with_free(*free)
    assert chosen(capacity, BestFit(), 8, 2) == [0, 16]
    assert {node // 16 for node in chosen(capacity, Packing(), 8, 2)} == {1}


def test_the_lowest_of_a_first_fit_set_has_room() -> None:
    capacity = capacity_with_free(0, 3, 8)
    best = next(iter(FirstFit().ranked(capacity, 4, capacity.topology.everything)))
    assert lowest(best) == 2


def test_stranded_is_what_waiting_jobs_could_use_of_the_free_gpus() -> None:
    state, journal = State(), Journal()
    record(state, journal, ClusterDefined(racks(2), "fifo:skip=true"), 0)
    assert stranded(state) == 0
    submit(state, journal, "a", 5)
    submit(state, journal, "b", 5)
    assert stranded(state) == 0
    submit(state, journal, "too-wide", 8)
    assert stranded(state) == 0
    submit(state, journal, "scattered", 4)
    assert stranded(state) == 4
    submit(state, journal, "scattered-too", 4)
    assert stranded(state) == 6


def submit(state: State, journal: Journal, name: str, gpus: int) -> None:
    turn(state, journal, [JobSubmitted(Job(name, gang_of(Task(gpus), 1)))], state.now)


def test_the_same_trial_comes_to_the_same_outcome() -> None:
    trial = (Size(nodes=16, jobs=120, streams=1, streams_beside=1), MIXES[0], 0.95, "best-fit", 0)
    outcome = quality.simulate(trial)
    assert outcome == quality.simulate(trial)
    assert outcome.waits_h[8]


def test_a_mix_counts_by_both_its_loads_together() -> None:
    ours_gpu_h = {"philly": (12.0, 9.0), "helios": (11.0, 5.0), "alibaba": (10.0, 10.0)}

    def outcome(mix: str, load: float, packing: str) -> Outcome:
        ours = ours_gpu_h[mix][quality.LOADS.index(load)]
        return Outcome(ours if packing == quality.OURS else 10.0, {8: [1.0], 64: [1.0]})

    rows = {each["name"]: each for each in quality.rows_of(found_by(outcome))}
    assert rows["stranded GPU-hours, helios, load 0.8: phalanx / best-fit"]["value"] == 1.1
    assert rows["stranded GPU-hours, helios, both loads: phalanx / best-fit"]["met"] is True
    assert rows["stranded GPU-hours, philly, both loads: phalanx / best-fit"]["met"] is False
    assert rows["stranded GPU-hours: mixes where phalanx is worse than best-fit"]["value"] == 1
    assert rows["stranded GPU-hours: mixes where phalanx is not better than best-fit"]["value"] == 2
    assert rows["wait of 8-GPU jobs: mixes where phalanx is worse than best-fit"]["met"] is True
    twin = rows["stranded GPU-hours, helios, both loads: best-fit, whole nodes from the last / best-fit"]
    assert (twin["value"], twin["target"]) == (1.0, None)


def test_a_ratio_has_the_standard_error_of_leaving_one_stream_out_after_the_other() -> None:
    found = found_by(lambda mix, load, packing: Outcome(1.0 if packing == quality.OURS else 2.0))
    for (_, _, packing), outcomes in found.items():
        outcomes.append(Outcome(3.0 if packing == quality.OURS else 2.0))
    name = "stranded GPU-hours, philly, both loads: phalanx / best-fit"
    rows = {each["name"]: each for each in quality.rows_of(found)}
    assert rows[name]["value"] == 1.0
    # Without one stream or the other the ratio is 3/2 or 1/2: the logarithms lie log(3)/2 to either side of their mean.
    assert rows[f"{name}, standard error"]["value"] == round(sqrt(2 * (log(3) / 2) ** 2) / 2, 6)
    one_stream = quality.rows_of(found_by(lambda mix, load, packing: Outcome(1.0)))
    assert [each["value"] for each in one_stream if each["name"] == f"{name}, standard error"] == [None]


def test_something_beside_nothing_is_worse_and_has_no_ratio() -> None:
    def outcome(mix: str, load: float, packing: str) -> Outcome:
        return Outcome(1.0 if packing == quality.OURS else 0.0)

    rows = {each["name"]: each for each in quality.rows_of(found_by(outcome))}
    assert rows["stranded GPU-hours, philly, both loads: phalanx / best-fit"]["value"] is None
    assert rows["stranded GPU-hours: mixes where phalanx is worse than best-fit"]["value"] == 3
    assert rows["wait of 64-GPU jobs, philly, load 0.8: phalanx / best-fit"]["value"] == 1.0


def found_by(outcome: Callable[[str, float, str], Outcome]) -> dict[tuple[str, float, str], list[Outcome]]:
    return {
        (mix.name, load, packing): [outcome(mix.name, load, packing)]
        for mix in MIXES
        for load in quality.LOADS
        for packing in quality.PACKINGS
    }


def test_the_published_comparison_runs_on_files_of_the_authors_simulator_with_several_queues(tmp_path: Path) -> None:
    drawn = synthesize(Synthetic(jobs=40, gpus=published.GPUS, load=3, queues=published.QUEUES), 0)
    cluster, trace = published.by_way_of_files(tmp_path, drawn)
    assert (cluster.gpus, cluster.levels) == (published.GPUS, ("switch", "node"))
    assert [job.queue for job in trace.jobs] == [job.queue for job in drawn.jobs]
    assert len({job.queue for job in trace.jobs}) > 1
    assert all(job.submit_ms % 1000 == 0 and job.duration_ms % 1000 == 0 for job in trace.jobs)


def test_the_published_comparison_tells_each_ratio_with_its_interval() -> None:
    rows = published.at_load(3, published.Size(jobs=20, seeds=2), lambda _: None)
    assert len(rows) == 3 * len(published.OTHERS)
    assert rows[3]["name"] == "load 3: yarn-cs / tiresias-las, mean JCT (paper: up to 5.5)"
    for at in range(0, len(rows), 3):
        mean, low, high = (rows[at + part]["value"] for part in range(3))
        assert low <= mean <= high
