"""Simulations: what costs do to a run, worked by hand, and that runs are saved and forked to the byte."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import everything
from phalanx.cluster.cluster import flat
from phalanx.engine.state.journal import Journal
from phalanx.engine.turn import replay, verify
from phalanx.policy.guarded import PolicyError
from phalanx.policy.policy import Policy
from phalanx.policy.registry import BUILTIN, register
from phalanx.protocol.event import JobSubmitted
from phalanx.simulate import run as run_module
from phalanx.simulate.figures.fairness import jain
from phalanx.simulate.figures.outcome import outcome
from phalanx.simulate.figures.result import NodeUse
from phalanx.simulate.figures.stays import Stays
from phalanx.simulate.saved import SavedError, fork, load, save
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.synthetic import Synthetic, synthesize
from phalanx.simulate.world.costs import NO_COSTS, Costs, CostsError, costs_of

COSTS = Costs(start_ms=10_000, checkpoint_ms=5_000, restore_ms=20_000, stop_ms=1_000, locality=False)


def run(setup: Setup) -> Simulation:
    simulation = Simulation(setup)
    simulation.begin()
    simulation.go()
    return simulation


def ends_s(simulation: Simulation) -> dict[str, float]:
    return {job: (record.ended_ms or 0) / 1000 for job, record in simulation.run.state.jobs.items()}


def test_who_is_stopped_saves_its_work_and_loads_it_again() -> None:
    """long runs from 10 s to 40 s, saves until 45 s, is gone at 46 s; short starts then and runs from 56 s to 66 s.
    long starts again, loads until 96 s, and does the 70 s that are left."""
    trace = Trace("t", (TraceJob("long", 0, 100_000, 1), TraceJob("short", 40_000, 10_000, 1)))
    simulation = run(Setup(flat(1, 1), trace, "srtf", costs=COSTS))
    assert ends_s(simulation) == {"short": 66, "long": 166}
    [long, short] = outcome(simulation, "srtf").jobs
    assert (long.attempts, long.preemptions, short.preemptions) == (2, 1, 0)
    # Starting twice, saving, stopping, loading: 10 + 6 + 30 s.
    assert long.lost_gpu_s == 46


def test_who_runs_on_a_node_that_fails_does_again_what_was_not_saved() -> None:
    """The job runs from 10 s on; its node fails at 60 s and is given up at 61 s. It starts again on the other, with
    nothing to load, and runs from 71 s to 171 s."""
    trace = Trace("t", (TraceJob("a", 0, 100_000, 1),))
    simulation = run(Setup(flat(2, 1), trace, "fifo", costs=COSTS, faults=((60_000, "n0", "failed", "XID 79"),)))
    assert ends_s(simulation) == {"a": 171}
    [job] = outcome(simulation, "fifo").jobs
    assert job.nodes == ("n1",)
    # Starting twice, stopping, and the 50 s that were lost.
    assert job.lost_gpu_s == 71


def test_the_start_of_who_was_stopped_while_it_started_has_nothing_to_load() -> None:
    """long is told to stop at 5 s, with no work to save, and is gone at 6 s; short runs from 16 s to 26 s, long from
    36 s to 136 s."""
    trace = Trace("t", (TraceJob("long", 0, 100_000, 1), TraceJob("short", 5_000, 10_000, 1)))
    simulation = run(Setup(flat(1, 1), trace, "srtf", costs=COSTS))
    assert ends_s(simulation) == {"short": 26, "long": 136}


def test_a_job_that_names_its_checkpoint_cost_pays_that() -> None:
    """long saves for 8 s instead of 5 s, from 40 s to 48 s, so that everything after it is 3 s later."""
    trace = Trace(
        "t", (TraceJob("long", 0, 100_000, 1, checkpoint_cost_ms=8_000), TraceJob("short", 40_000, 10_000, 1))
    )
    assert ends_s(run(Setup(flat(1, 1), trace, "srtf", costs=COSTS))) == {"short": 69, "long": 169}


def test_a_job_that_cannot_save_within_its_grace_begins_again() -> None:
    """long is given 30 s to save, which takes 40 s: it is gone at 70 s with nothing saved. short runs from 80 s to
    90 s. long has nothing to load: it runs from 100 s to 200 s."""
    trace = Trace(
        "t", (TraceJob("long", 0, 100_000, 1, checkpoint_cost_ms=40_000), TraceJob("short", 40_000, 10_000, 1))
    )
    simulation = run(Setup(flat(1, 1), trace, "srtf", costs=COSTS))
    assert ends_s(simulation) == {"short": 90, "long": 200}
    # The 30 s of work that were lost, 30 s of saving in vain, and starting twice.
    assert outcome(simulation, "srtf").jobs[0].lost_gpu_s == 80


def test_what_was_saved_when_it_was_stopped_survives_a_failure_later() -> None:
    """As above long has saved 30 s of work when it starts again at 66 s and runs from 96 s on. Its node fails at 116 s
    and is given up at 117 s. On the other it starts, loads, and does from 147 s the 70 s that are left."""
    trace = Trace("t", (TraceJob("long", 0, 100_000, 1), TraceJob("short", 40_000, 10_000, 1)))
    cluster = flat(2, 1)
    faults = ((0, "n1", "draining", ""), (100_000, "n1", "healthy", ""), (116_000, "n0", "failed", ""))
    simulation = run(Setup(cluster, trace, "srtf", costs=COSTS, faults=faults))
    assert ends_s(simulation) == {"short": 66, "long": 217}


def test_an_elastic_job_does_nothing_while_it_is_resized_and_goes_on_faster() -> None:
    """a runs on one GPU of the two it was measured with, at 0.5^0.9 of its speed, until b has left. Then it grows for
    10 s and does the rest at full speed."""
    trace = Trace("t", (TraceJob("b", 0, 20_000, 1), TraceJob("a", 0, 100_000, 2, min_gpus=1, max_gpus=2)))
    simulation = run(Setup(flat(1, 2), trace, "fifo", costs=COSTS))
    done_s = 20 * 0.5**0.9
    assert ends_s(simulation) == {"b": 30, "a": pytest.approx(30 + 10 + 100 - done_s, abs=0.002)}
    assert simulation.backend.resizes == 1


@pytest.mark.parametrize("policy", ["fifo", "pollux", "optimus"])
def test_a_job_that_tunes_its_batch_and_has_nothing_to_do_ends_as_it_starts(policy: str) -> None:
    trace = Trace("t", (TraceJob("a", 0, 0, 2, min_gpus=1, max_gpus=4, batch="adaptive"),))
    assert ends_s(run(Setup(flat(1, 4), trace, policy, costs=COSTS))) == {"a": 10}


def test_without_costs_nothing_is_lost() -> None:
    trace = Trace("t", (TraceJob("long", 0, 100_000, 1), TraceJob("short", 40_000, 10_000, 1)))
    simulation = run(Setup(flat(1, 1), trace, "srtf", costs=NO_COSTS))
    assert ends_s(simulation) == {"short": 50, "long": 110}
    assert outcome(simulation, "srtf").summary["lost_gpu_s"] == 0


APART = replace(NO_COSTS, locality=True)


def goodput(simulation: Simulation) -> float:
    figure = outcome(simulation, "p").summary["goodput"]
    assert isinstance(figure, float)
    return figure


def test_goodput_is_the_gpu_time_of_the_work_over_the_gpu_time_held() -> None:
    """Spread over four nodes, both jobs take longer than their trace says, and hold their GPUs all the while."""
    jobs = (TraceJob("a", 0, 100_000, 4, gpus_per_node=1), TraceJob("b", 5_000, 300_000, 8, gpus_per_node=1))
    trace = Trace("t", jobs)
    simulation = run(Setup(flat(4, 4), trace, "fifo", "spread", costs=APART))
    ends = ends_s(simulation)
    expected = (4 * 100 + 8 * 300) / (4 * ends["a"] + 8 * (ends["b"] - 5))
    assert expected < 0.9
    assert goodput(simulation) == pytest.approx(expected, abs=1e-4)


def test_slow_work_counts_no_more_while_it_still_runs() -> None:
    setup = Setup(
        flat(4, 4), Trace("t", (TraceJob("a", 0, 100_000, 4, gpus_per_node=1),)), "fifo", "spread", costs=APART
    )
    simulation = Simulation(setup)
    simulation.begin()
    simulation.go(50_000)
    assert goodput(simulation) == pytest.approx(goodput(run(setup)), abs=1e-4)
    assert goodput(simulation) < 0.9


def test_an_elastic_job_that_has_fewer_gpus_uses_all_that_these_can_give() -> None:
    trace = Trace("t", (TraceJob("a", 0, 100_000, 8, min_gpus=1, max_gpus=8),))
    assert goodput(run(Setup(flat(1, 4), trace, "fifo", costs=APART))) == 1.0


def test_slow_work_that_has_to_be_done_again_is_no_use() -> None:
    """The job, slowed by being spread, loses what it did up to the failure of a node: of all the time it held its GPUs
    only the work of its duration counts."""
    trace = Trace("t", (TraceJob("a", 0, 100_000, 2, gpus_per_node=1),))
    faults = ((60_000, "n0", "failed", "XID 79"),)
    simulation = run(Setup(flat(3, 2), trace, "fifo", "spread", costs=APART, faults=faults))
    end_s = ends_s(simulation)["a"]
    assert end_s > 165
    assert goodput(simulation) == pytest.approx(100 / end_s, abs=0.02)


def test_two_that_take_turns_have_what_switching_leaves_of_a_device() -> None:
    trace = Trace("t", (TraceJob("a", 0, 100_000, 1, gpu_milli=500), TraceJob("b", 0, 100_000, 1, gpu_milli=500)))
    simulation = run(Setup(flat(1, 1), trace, "fifo", costs=NO_COSTS))
    assert goodput(simulation) == pytest.approx(100 / ends_s(simulation)["a"], abs=1e-4)
    assert goodput(simulation) < 0.95


def test_on_slower_gpus_a_job_is_of_use_as_long_as_it_is_as_fast_as_these_are() -> None:
    """A job that was measured on V100s and lies on two K80s takes longer, but leaves nothing of them unused."""
    trace = Trace("t", (TraceJob("a", 0, 100_000, 2, gpu_type="V100|K80"),))
    simulation = run(Setup(flat(1, 2, "K80"), trace, "fifo", costs=NO_COSTS))
    assert ends_s(simulation)["a"] > 100
    assert goodput(simulation) == 1.0


def test_jobs_that_still_run_have_their_stays_and_nodes_too() -> None:
    trace = Trace("t", (TraceJob("a", 0, 100_000, 2), TraceJob("b", 10_000, 20_000, 2)))
    simulation = Simulation(Setup(flat(1, 4), trace, "fifo", costs=NO_COSTS))
    simulation.begin()
    simulation.go(50_000)
    result = outcome(simulation, "fifo")
    assert [(stay.job_id, stay.start_s, stay.end_s) for stay in result.stays] == [("b", 10, 30), ("a", 0, 50)]
    assert result.nodes == {"n0": NodeUse(2, 140.0)}
    assert [job.nodes for job in result.jobs] == [("n0",), ("n0",)]


def test_of_too_many_stays_the_largest_are_kept_whenever_they_were() -> None:
    trace = Trace("t", tuple(TraceJob(f"j{i}", i * 10_000, 1_000 * (1 + i % 5), 1) for i in range(20)))
    simulation = Simulation(Setup(flat(1, 1), trace, "fifo", costs=NO_COSTS))
    simulation.backend.ledger.stays = Stays(kept_max=4)
    simulation.begin()
    simulation.go()
    result = outcome(simulation, "fifo")
    assert [stay.job_id for stay in result.stays] == ["j4", "j9", "j14", "j19"]
    assert result.stays_left_out == 16
    assert result.nodes == {"n0": NodeUse(20, 60.0)}


def test_a_run_that_is_let_go_to_a_moment_is_at_that_moment() -> None:
    trace = Trace("t", (TraceJob("a", 0, 100_000, 1), TraceJob("b", 0, 100_000, 1)))
    simulation = Simulation(Setup(flat(1, 1), trace, "fifo", costs=NO_COSTS))
    simulation.begin()
    simulation.go(42_000)
    assert simulation.now_ms == 42_000
    assert [job.queued_s for job in outcome(simulation, "fifo").jobs] == [0, 42]
    simulation.happen(JobSubmitted(replace(simulation.jobs[0], id="c")))
    assert simulation.run.state.jobs["c"].submitted_ms == 42_000


@pytest.mark.parametrize("largest_gpus", [1, 8])
def test_a_policy_that_wakes_up_for_ever_does_not_keep_a_run_from_its_end(largest_gpus: int) -> None:
    """Neither once all have ended, nor while one waits that never fits."""
    register("restless", lambda parameters: Policy("restless", next_wakeup=lambda memory, now: now + 60_000))
    trace = Trace("t", (TraceJob("a", 0, 100_000, 1), TraceJob("b", 0, 50_000, largest_gpus)))
    simulation = run(Setup(flat(1, 1), trace, "restless", costs=NO_COSTS))
    assert simulation.run.state.jobs["a"].ended_ms == 100_000
    assert outcome(simulation, "restless").summary["jobs"]["completed"] == (2 if largest_gpus == 1 else 1)


def test_a_policy_that_has_itself_woken_without_end_for_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "CREEPING_WAKES", 500)
    register("restless", lambda parameters: Policy("restless", next_wakeup=lambda memory, now: now + 1))
    trace = Trace("t", (TraceJob("a", 0, 3_600_000, 1),))
    with pytest.raises(PolicyError, match=r"policy restless: next_wakeup had it woken 500 times in a row between"):
        run(Setup(flat(1, 4), trace, "restless", costs=NO_COSTS))


def test_a_policy_that_wakes_up_often_enough_for_nothing_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "CREEPING_WAKES", 500)
    register("busy", lambda parameters: Policy("busy", next_wakeup=lambda memory, now: now + 1000))
    trace = Trace("t", (TraceJob("a", 0, 1_200_000, 1),))
    assert ends_s(run(Setup(flat(1, 4), trace, "busy", costs=NO_COSTS))) == {"a": 1200}


def test_what_queues_had_of_what_they_asked_for_is_what_jains_index_is_of() -> None:
    """b waits for the 30 s that a runs, then runs for 10 s; c never fits and counts for nothing."""
    jobs = (
        TraceJob("a", 0, 30_000, 4, "x"),
        TraceJob("b", 0, 10_000, 4, "y"),
        TraceJob("c", 0, 10_000, 64, "z"),
    )
    result = outcome(run(Setup(flat(1, 4), Trace("t", jobs), "fifo", costs=NO_COSTS)), "fifo")
    assert result.served == {"x": 1, "y": 0.25}
    assert result.summary["fairness"]["jain"] == pytest.approx(jain([1, 0.25]), abs=1e-6)


def test_a_run_without_jobs_comes_to_nothing() -> None:
    summary = outcome(run(Setup(flat(1, 4), Trace("t", ()))), "fifo").summary
    assert summary["jobs"]["submitted"] == 0
    assert summary["goodput"] is None
    assert summary["fragmentation"] is None


def test_a_job_larger_than_the_cluster_never_fits_and_holds_up_nobody() -> None:
    trace = Trace("t", (TraceJob("huge", 0, 1_000, 64), TraceJob("a", 1_000, 1_000, 1)))
    summary = outcome(run(Setup(flat(2, 4), trace, "fifo", costs=NO_COSTS)), "fifo").summary
    assert summary["jobs"] | {"completed": 1, "never_fit": 1, "unfinished": 0} == summary["jobs"]


@pytest.mark.parametrize("text", ["start=soon", "speed=1s", "locality=maybe", "start=1s,start=2s"])
def test_a_cost_that_there_is_not_is_named(text: str) -> None:
    with pytest.raises(CostsError, match=text.partition("=")[0]):
        costs_of(text)


def test_costs_are_written_as_they_are_read() -> None:
    for text in (
        "default",
        "none",
        "start=30000ms,checkpoint=0ms,restore=0ms,stop=0ms,resize=0ms,repartition=0ms,locality=true",
        "start=30000ms,checkpoint=0ms,restore=0ms,stop=0ms,resize=0ms,repartition=0ms,locality=false,own=false",
    ):
        assert costs_of(text).text() == text


@pytest.mark.parametrize("text", ["start=5s,none", "none,default", "none,start=5s,none"])
def test_what_costs_are_changed_from_comes_first_lest_it_undo_them(text: str) -> None:
    with pytest.raises(CostsError, match="comes first"):
        costs_of(text)


def stopped_once(costs: str, checkpoint_cost_ms: int) -> int:
    """When a job of 100 s ends that is stopped at 10 s for one of 20 s."""
    long = TraceJob("long", 0, 100_000, 1, checkpoint_cost_ms=checkpoint_cost_ms)
    trace = Trace("t", (long, TraceJob("short", 10_000, 20_000, 1)))
    result = outcome(run(Setup(flat(1, 1), trace, "srtf", costs=costs_of(costs))), "srtf")
    (end_s,) = (job.end_s for job in result.jobs if job.job_id == "long")
    assert end_s is not None
    return round(end_s * 1000)


def test_without_costs_what_a_job_says_of_its_checkpoints_costs_nothing_either() -> None:
    assert stopped_once("none", checkpoint_cost_ms=0) == 120_000
    assert stopped_once("none", checkpoint_cost_ms=5_000) == 120_000
    assert stopped_once("none", checkpoint_cost_ms=40_000) == 120_000, "longer than the grace"
    assert stopped_once("none,checkpoint=3s", checkpoint_cost_ms=5_000) == 123_000, "all cost the same"
    assert stopped_once("none,own=true", checkpoint_cost_ms=5_000) == 125_000


SPECS = (
    *(
        "antman",
        "backfill",
        "backfill:mode=conservative",
        "backfill:estimate=learned",
        "drf",
        "edf:preempt=true",
        "fair",
        "fair-tree",
        "fifo",
        "fifo:skip=true",
        "gandiva",
        "gavel",
    ),
    *("kai", "las", "multifactor", "optimus", "phalanx", "pollux", "priority", "singularity"),
    "sjf",
    *("srtf", "srtf:by=gpus", "themis"),
    *("tiresias-gittins:samples=60/600/6000/60000", "tiresias-las", "tiresias-las:starvation=1", "volcano", "yarn-cs"),
)
"""Every policy, see below."""


def a_busy_run(policy: str, placement: str = "topology", journal: Journal | None = None) -> Simulation:
    """Eighty jobs of all kinds on sixteen GPUs, one node of which fails and comes back."""
    trace = synthesize(Synthetic(jobs=80, gpus=16, load=1.5, elastic=0.2, sweeps=0.1, deadlines=0.2, queues=3), 1)
    middle_ms = trace.jobs[40].submit_ms
    faults = ((middle_ms, "n0", "failed", ""), (middle_ms + 3_600_000, "n0", "healthy", ""))
    simulation = Simulation(Setup(flat(4, 4), trace, policy, placement, faults=faults), journal)
    simulation.begin()
    simulation.go()
    return simulation


def with_solver(specs: Sequence[str]) -> list[Any]:
    """gavel asks a solver that is not everywhere."""
    return [pytest.param(spec, marks=[pytest.mark.needs("highspy")] if spec == "gavel" else []) for spec in specs]


def test_every_policy_is_tried() -> None:
    assert list(dict.fromkeys(spec.partition(":")[0] for spec in SPECS)) == sorted(BUILTIN)


@pytest.mark.long
@pytest.mark.parametrize("policy", with_solver(SPECS))
def test_the_journal_of_a_run_tells_it_whole_and_every_decision_in_it_is_made_again(policy: str) -> None:
    journal = Journal()
    simulation = a_busy_run(policy, journal=journal)
    read = Journal.read(list(journal.lines()))
    for told in (replay(read), verify(read)):
        assert str(told.digest) == str(simulation.run.state.digest)
        assert told.fingerprint() == simulation.run.state.fingerprint()
    assert everything(verify(read)) == everything(simulation.run.state)


PLACEMENTS = ("topology", "pack", "spread", "random")


def digests() -> list[str]:
    """Of runs under every policy but gavel, each with another placement."""
    specs = [spec for spec in SPECS if spec != "gavel"]
    runs = [a_busy_run(spec, PLACEMENTS[i % len(PLACEMENTS)]) for i, spec in enumerate(specs)]
    return [str(simulation.run.state.digest) for simulation in runs]


@pytest.mark.long
def test_runs_are_the_same_under_any_hash_seed() -> None:
    program = "import test_simulation; print(test_simulation.digests())"
    told = set()
    for hash_seed in ("1", "12345"):
        here = Path(__file__).parent
        path = os.pathsep.join([str(here), str(here.parent), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        told.add(done.stdout)
    assert len(told) == 1


POLICIES = ("fifo", "priority", "srtf", "las", "tiresias-las", "backfill", "yarn-cs", "drf", "edf:preempt=true")


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_that_was_saved_or_forked_goes_on_to_the_byte(policy: str, tmp_path: Path) -> None:
    trace = synthesize(Synthetic(jobs=150, gpus=16, load=1.3, elastic=0.1, sweeps=0.1, deadlines=0.2), 1)
    whole = run(Setup(flat(4, 4), trace, policy))
    half = Simulation(Setup(flat(4, 4), trace, policy))
    half.begin()
    half.go(until_ms=whole.run.state.now // 3)
    path = str(tmp_path / "half")
    save(half, path)
    copies = [half, fork(half), load(path)]
    for copy in copies:
        copy.go()
        assert str(copy.run.state.digest) == str(whole.run.state.digest)
        assert outcome(copy, policy).summary == outcome(whole, policy).summary


def test_a_run_that_other_code_of_the_same_release_has_saved_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "half")
    monkeypatch.setattr("phalanx.simulate.saved.code_of", lambda policies: "0.1.0+older")
    save(run(Setup(flat(1, 1), Trace("t", ()), "fifo")), path)
    monkeypatch.setattr("phalanx.simulate.saved.code_of", lambda policies: "0.1.0+newer")
    with pytest.raises(
        SavedError, match=r"saved by phalanx 0\.1\.0\+older, this is 0\.1\.0\+newer; go on with the same"
    ):
        load(path)


def test_a_file_that_asks_for_anything_but_classes_of_phalanx_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (print, ("run",))

    simulation = run(Setup(flat(1, 1), Trace("t", ()), "fifo"))
    simulation.works["x"] = Evil()  # type: ignore[assignment]
    path = tmp_path / "evil"
    save(simulation, str(path))
    with pytest.raises(SavedError, match=r"builtins\.print"):
        load(str(path))


@pytest.mark.parametrize("content", [b"", b"not ours", b"phalanx simulation 0.0.0\nxx", pickle.dumps({})])
def test_a_file_that_is_no_saved_run_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(SavedError, match=str(path)):
        load(str(path))
