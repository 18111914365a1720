"""The benchmarks by name, each in parts that are loaded when they are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from phalanx.bench.row import Row, Tell


class Part(NamedTuple):
    """What a part measures, and what runs it: in full, or as quickly as shows that it works."""

    summary: str
    run: Callable[[bool, Tell], list[Row]]
    when_named: bool = False
    """Runs only if it is asked for by name: it takes long."""


def _speed(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.placement import speed

    return speed.run(speed.QUICK if quick else speed.FULL, tell)


def _quality(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.placement import quality

    return quality.run(quality.QUICK if quick else quality.FULL, tell)


def _mesh(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.placement import mesh

    instances = MESHES_QUICK if quick else MESHES
    tell(f"mesh: {instances} clusters")
    return mesh.run(instances)


def _virtual(part: str) -> Callable[[bool, Tell], list[Row]]:
    def run(quick: bool, tell: Tell) -> list[Row]:
        from phalanx.bench.simulate import virtual

        parts = {"speed": virtual.speed, "scale": virtual.scale, "gavel": virtual.gavel, "heap": virtual.heap}
        return parts[part](virtual.QUICK if quick else virtual.FULL, tell)

    return run


def _published(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.simulate import published

    return published.run(published.QUICK if quick else published.FULL, tell)


def _heterogeneity(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.simulate import heterogeneity

    return heterogeneity.run(heterogeneity.QUICK if quick else heterogeneity.FULL, tell)


def _kill(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.checkpoint import kill_matrix

    return kill_matrix.run(quick, tell)


def _saving(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.checkpoint import saving

    return saving.run(saving.QUICK if quick else saving.FULL, tell)


def _resiliency(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.checkpoint import resiliency

    return list(resiliency.run(resiliency.QUICK if quick else resiliency.FULL, tell))


def _reshard(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.checkpoint import reshard

    return reshard.run(reshard.QUICK if quick else reshard.FULL, tell)


def _cells(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.cells import cells

    return cells.run(cells.QUICK if quick else cells.FULL, tell)


def _sharing(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.cells import sharing

    return sharing.run(sharing.QUICK if quick else sharing.FULL, tell)


def _decisions(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.tenants import decisions

    return decisions.run(decisions.QUICK if quick else decisions.FULL, tell)


def _borrowing(part: str) -> Callable[[bool, Tell], list[Row]]:
    def run(quick: bool, tell: Tell) -> list[Row]:
        from phalanx.bench.tenants import borrowing

        parts = {"admission": borrowing.admission, "victims": borrowing.victims}
        return parts[part](borrowing.QUICK if quick else borrowing.FULL, tell)

    return run


def _why(part: str) -> Callable[[bool, Tell], list[Row]]:
    def run(quick: bool, tell: Tell) -> list[Row]:
        from phalanx.bench.tenants import why

        parts = {"answers": why.answers, "calibration": why.calibration, "forecasts": why.forecasts}
        return parts[part](why.QUICK if quick else why.FULL, tell)

    return run


def _server(part: str) -> Callable[[bool, Tell], list[Row]]:
    def run(quick: bool, tell: Tell) -> list[Row]:
        from phalanx.bench.server import server

        parts = {"rates": server.rates, "pages": server.pages, "beside": server.beside}
        return parts[part](server.QUICK if quick else server.FULL, tell)

    return run


def _attacked(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.server import attacked

    return attacked.run(attacked.QUICK if quick else attacked.FULL, tell)


def _estimates(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.simulate import estimates

    return estimates.run(estimates.QUICK if quick else estimates.FULL, tell)


def _policies(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench import policies

    return policies.run(policies.QUICK if quick else policies.FULL, tell)


def _kills(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.server import kills

    return kills.run(KILLS_QUICK if quick else KILLS, tell)


def _submitting(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.server import submitting

    return submitting.run(SUBMISSIONS_QUICK if quick else SUBMISSIONS, tell)


def _prompt(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.server import prompt

    return prompt.run(CALLS_QUICK if quick else CALLS, tell)


def _fresh(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.server import fresh

    return fresh.run(tell)


def _mix(engine: str) -> Callable[[bool, Tell], list[Row]]:
    def run(quick: bool, tell: Tell) -> list[Row]:
        from phalanx.bench.engines import likeness

        return likeness.run(engine, MIX_JOBS_QUICK if quick else MIX_JOBS, tell)

    return run


def _waits(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.engines import waits

    seeds = waits.SEEDS[:1] if quick else waits.SEEDS
    return waits.run(MIX_JOBS_QUICK if quick else WAIT_JOBS, seeds, tell)


def _likeness(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.server import likeness

    return likeness.run(LIVE_JOBS_QUICK if quick else LIVE_JOBS, tell)


def _page_speed(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.page import run

    return run.speed(run.QUICK if quick else run.FULL, tell)


def _page_memory(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.page import run

    scale = run.QUICK if quick else run.FULL
    return run.memory(scale, scale.events_s, tell)


def _page_asked(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.page import run

    return run.asked(run.QUICK if quick else run.FULL, tell)


def _page_past(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.page import run

    return run.looked_back(run.QUICK if quick else run.FULL, tell)


def _page_hour(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.page import run

    return run.memory(run.QUICK, run.QUICK.events_s, tell) if quick else run.memory(run.FULL, run.HOUR_S, tell)


def _kubernetes_shadow(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.kubernetes.beside import shadow

    return shadow(quick, tell)


def _kubernetes_flood(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.kubernetes.flood import flood

    return flood(quick, tell)


def _kubernetes(part: str) -> Callable[[bool, Tell], list[Row]]:
    def run_part(quick: bool, tell: Tell) -> list[Row]:
        from phalanx.bench.kubernetes import run

        parts = {
            "drain": run.drain,
            "backlog": run.backlog,
            "share": run.share,
            "latency": run.latency,
            "crowded": run.crowded,
            "large": run.large,
        }
        return parts[part](run.QUICK if quick else run.FULL, tell)

    return run_part


def _page_weight(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.page import weight

    return weight.weight()


def _launch_detection(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.launch import detection

    return detection.run(detection.QUICK if quick else detection.FULL, tell)


def _launch_recovery(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.launch import recovery

    return recovery.run(recovery.QUICK if quick else recovery.FULL, tell)


def _launch_resize(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.launch import resize

    return resize.run(resize.QUICK if quick else resize.FULL, tell)


def _launch_storm(quick: bool, tell: Tell) -> list[Row]:
    from phalanx.bench.launch import storm

    return storm.run(storm.QUICK if quick else storm.FULL, tell)


MESHES, MESHES_QUICK = 500, 5
KILLS, KILLS_QUICK = 500, 3
LIVE_JOBS, LIVE_JOBS_QUICK = 200, 10
MIX_JOBS, MIX_JOBS_QUICK, WAIT_JOBS = 200, 10, 60
SUBMISSIONS, SUBMISSIONS_QUICK = 100, 3
CALLS, CALLS_QUICK = 30, 2

BENCHMARKS: Mapping[str, Mapping[str, Part]] = {
    "checkpoint": {
        "saving": Part("what a save and a load cost by the number of tensors", _saving),
        "resiliency": Part("blocked time, recovery and memory beside lm-resiliency, if that is installed", _resiliency),
        "reshard": Part("planning a load on another number of ranks", _reshard),
        "kill": Part("a training killed at each of 12 points, over 20 seeds, beside one that was not", _kill),
    },
    "placement": {
        "speed": Part("time to place a gang, to refuse one, and from an event to the plan", _speed),
        "quality": Part("stranded GPU-hours and waits beside best-fit, first-fit and random", _quality),
        "mesh": Part("communication cost of a mesh beside the cheapest there is", _mesh),
    },
    "cells": {
        "steps": Part("random histories of virtual clusters, with the guarantee asserted at every step", _cells),
        "sharing": Part("queueing delay of tenants alone, sharing by quota and sharing by cells", _sharing),
    },
    "kubernetes": {
        "drain": Part("pods bound a second, with kube-scheduler beside it", _kubernetes("drain")),
        "backlog": Part("the same with 8,000 pods; runs only by its name", _kubernetes("backlog"), when_named=True),
        "share": Part("what of the processor time of phalanx goes to HTTP and JSON meanwhile", _kubernetes("share")),
        "latency": Part("how soon gangs are bound that come one after the other", _kubernetes("latency")),
        "crowded": Part("gangs bound in part where 120 % of the GPUs are asked for", _kubernetes("crowded")),
        "large": Part("5,000 nodes: ready, memory, and a gang on 512 of them", _kubernetes("large")),
        "flood": Part(
            "10,000 pods at once on 1,250 nodes that kwok runs; runs only by its name",
            _kubernetes_flood,
            when_named=True,
        ),
        "shadow": Part(
            "what a shadow of kube-scheduler reports, and what is so under phalanx; runs only by its name",
            _kubernetes_shadow,
            when_named=True,
        ),
    },
    "launch": {
        "detection": Part("how soon exits and hangs are noticed, and which of 200 faults are named", _launch_detection),
        "recovery": Part("kill -9 of one of 8 ranks to the first new step, beside torchrun", _launch_recovery),
        "resize": Part("4 to 6 to 3 agents by plan: seconds without a step, beside torchrun", _launch_resize),
        "storm": Part("200 random joins and leaves under cuts, with an audit (root only)", _launch_storm),
    },
    "mix": {
        "local": Part("200 jobs on this machine, beside the simulator with its delays", _mix("local")),
        "slurm": Part("the same on a Slurm of four nodes", _mix("slurm")),
        "ray": Part("the same on a Ray of four nodes", _mix("ray")),
        "kubernetes": Part(
            "the same as pods on four nodes that kwok runs; runs only by its name", _mix("kubernetes"), when_named=True
        ),
    },
    "page": {
        "weight": Part("what the page weighs, compressed", _page_weight),
        "speed": Part("views, filters, news and the map in Chromium: 10,000 GPUs, 20,000 jobs", _page_speed),
        "memory": Part("memory of open tabs under 100 events a second, for five minutes", _page_memory),
        "asked": Part("why one of 20,000 pending jobs waits, and when that is known", _page_asked),
        "past": Part(
            "moments and timeline of a long journal of 20,000 jobs; runs only by its name", _page_past, when_named=True
        ),
        "hour": Part("`memory` for an hour; runs only by its name", _page_hour, when_named=True),
    },
    "policies": {
        "cost": Part("CPU time of an event under every policy, on the same trace, with solvers apart", _policies),
    },
    "server": {
        "rates": Part("submissions of 32 clients, each on the disk before it is acknowledged", _server("rates")),
        "pages": Part("pages of lists among 100,000 jobs, and ready again after kill -9", _server("pages")),
        "beside": Part("reads beside a decision of two seconds", _server("beside")),
        "attacked": Part("reads of other users while one, or a stranger, attacks the server", _attacked),
        "submit": Part("one process per submission: `phalanx submit` beside Slurm's `sbatch`", _submitting),
        "prompt": Part("CPU and wall-clock time of one call of `--help`, `jobs`, `submit`, `why` and `logs`", _prompt),
        "fresh": Part("a fresh clone from `scripts/up` to the first job that has ended", _fresh),
        "likeness": Part("a live run decided again from its journal, and simulated", _likeness),
        "kills": Part("kill -9 at random moments under load: lost, doubled, left over", _kills),
    },
    "simulate": {
        "speed": Part("whole runs of 100,000 jobs under three policies at two loads", _virtual("speed")),
        "scale": Part("cost of an event in runs of few and of a million jobs, and a large cluster", _virtual("scale")),
        "heap": Part("10,000 jobs on one pool of GPUs, beside a simulator of a heap and no more", _virtual("heap")),
        "published": Part("Tiresias beside the policies of its paper, over ten seeds", _published),
        "gavel": Part("the joint policy with a solver, in rounds of six minutes", _virtual("gavel")),
        "heterogeneity": Part("Gavel, heterogeneity-aware and agnostic, as in its paper", _heterogeneity),
        "estimates": Part("what policies that learn online make of curves that they cannot see", _estimates),
    },
    "slurm": {
        "waits": Part("waits of the mix decided by phalanx and by Slurm's own backfill, three seeds", _waits),
        "submit": Part("one process per submission: `phalanx submit` beside `sbatch`", _submitting),
    },
    "tenants": {
        "admission": Part("gangs admitted by quota and placed, until full and after", _borrowing("admission")),
        "decisions": Part("the time of a decision in crowded clusters, median and slowest", _decisions),
        "victims": Part("GPU time lost to preemption beside stopping in the order of priority", _borrowing("victims")),
        "answers": Part("time to say why one of 50,000 waits, and to look ahead for one of the first", _why("answers")),
        "calibration": Part("how often real starts lie in the interval that was forecast", _why("calibration")),
        "forecasts": Part("the same by policy, on halves of traces that no forecast has seen", _why("forecasts")),
    },
}
