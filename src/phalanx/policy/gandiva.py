"""gandiva: jobs of one size side by side, in turns where there are too many, moved together (Xiao et al., OSDI 2018).

A job goes to a node on which jobs of its own size are, else to an empty one, else to any other, the least loaded first.
Where no GPU is free it takes turns with jobs on nodes of its own size; a turn ends with a step of the job, where it
has least in memory. Two of those are tried at the same time, and stay so if they get more done. When GPUs come free,
jobs that take turns move to them; then jobs that are spread over nodes gather on one, and those on nearly empty nodes
leave them. Elastic jobs take what is idle and give it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.policy.about import About
from phalanx.policy.growth import elastic_roles
from phalanx.policy.migration import Gathering, label_of, spread
from phalanx.policy.packing import Packing, observe_pairs
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Memory, Policy, Shape, all_stay, anywhere, as_asked, as_they_are
from phalanx.policy.portions import asks_for_shares, with_share
from phalanx.policy.rounds import begin_round, next_round, round_is_due
from phalanx.policy.view import WHEREVER, JobView, Moment, NodeView, Place
from phalanx.protocol.event import (
    Accepted,
    AttemptEnded,
    Done,
    Event,
    JobCancelled,
    JobSubmitted,
    Outcome,
    Progress,
    TimerDue,
)
from phalanx.workload.gang import Gang
from phalanx.workload.share import turn_ask

NODES_TRIED = 16
"""Nodes of a kind that are tried one by one before the kind as a whole: a bound on work."""


def gandiva(parameters: Parameters) -> Policy:
    """`turns` is how many jobs take turns on a device at most; `switch` is where one ends, `threshold` the free GPUs,
    in percent of a node, that need no moving; `interval` is how long a pair runs before it is judged, `retry` when one
    that was undone is tried again.
    """
    turns = parameters.integer("turns", default=2, least=1, most=8)
    at_step = parameters.choice("switch", ("iteration", "now")) == "iteration"
    threshold = parameters.integer("threshold", default=75, least=0)
    affinity = parameters.boolean("affinity", default=True)
    migrate = parameters.boolean("migrate", default=True)
    grow = parameters.boolean("grow", default=True)
    packs = parameters.boolean("packing", default=True) and turns > 1
    packing = Packing(parameters.duration_ms("interval", "1m"), parameters.duration_ms("retry", "1h"))

    def relocates(at: Moment) -> Sequence[tuple[str, str]]:
        nodes = at.nodes()
        return tuple(spread(at, nodes)) or tuple(Gathering(nodes, threshold).moves())

    return Policy(
        "gandiva",
        shape=_shape(turns, at_step),
        places=by_affinity if affinity else anywhere,
        relocates=relocates if migrate else all_stay,
        sizes=lend_idle if grow else at_minimum,
        adjusts=packing.adjusts if packs else as_they_are,
        observe=observe_with_pairs if packs else observe,
        next_wakeup=next_round,
        reports_ms=packing.interval_ms if packs else None,
        parameters=parameters.given,
        about=ABOUT,
    )


def _shape(turns: int, at_step: bool) -> Shape:
    if turns == 1:
        return as_asked

    def shape(job: JobView, at: Moment) -> Gang:
        return with_share(job.job.gang, turn_ask(turns, at_step))

    return shape


def by_affinity(job: JobView, at: Moment) -> Sequence[Place]:
    """Nodes of its own size, then empty ones, then of other sizes, the least loaded first; then of its size in turns.

    A gang that fits no one node is tried over all of them before it has to share. One that asks for parts of devices
    itself may have them anywhere.
    """
    nodes = at.nodes()
    gang = job.job.gang
    largest = max((node.gpus for node in nodes), default=0)
    own = min(gang.gpus_max, largest)
    kinds: tuple[list[NodeView], ...] = ([], [], [])
    for node in nodes:
        label = label_of(node)
        kinds[0 if label == own else 1 if not label else 2].append(node)
    for kind in kinds:
        kind.sort(key=load_of)
    whole = [node for kind in kinds for node in kind if node.free >= own][:NODES_TRIED]
    places = [Place((node.name,)) for node in whole] if gang.gpus_max == own else []
    places.append(Place(tuple(node.name for node in nodes)))
    if not gang.elastic:
        places += [Place((node.name,), crowded=True) for node in kinds[0][:NODES_TRIED]]
        if gang.gpus_max > own:
            places.append(Place(tuple(node.name for node in kinds[0]), crowded=True))
    if asks_for_shares(gang):
        places.append(WHEREVER)
    return places


def load_of(node: NodeView) -> float:
    """The GPUs that jobs of a node want, over those it has."""
    return sum(node.jobs.values()) / node.gpus if node.gpus else 0.0


def at_minimum(jobs: Sequence[JobView], at: Moment) -> Mapping[str, Mapping[str, int]]:
    """Elastic jobs stay as small as they can be."""
    return {}


def lend_idle(jobs: Sequence[JobView], at: Moment) -> Mapping[str, Mapping[str, int]]:
    """Elastic jobs may have all they can use, but for what pending jobs need: the last submitted give first."""
    wanted = sum(job.job.gang.gpus_min for job in jobs if not job.has_devices) - sum(node.free for node in at.nodes())
    sizes: dict[str, dict[str, int]] = {}
    for job in reversed(jobs):
        roles = elastic_roles(job.job.gang)
        if not roles:
            continue
        sizes[job.job.id] = {role.name: role.replicas_max for role in job.job.gang.roles}
        role = next((each for each in roles if each.gpus_each), None)
        if role is not None and job.has_devices and wanted > 0:
            spare = (job.gpus - job.job.gang.gpus_min) // role.gpus_each
            given = min(spare, -(-wanted // role.gpus_each))
            sizes[job.job.id][role.name] = role.replicas_min + spare - given
            wanted -= given * role.gpus_each
    return sizes


def observe(memory: Memory, event: Event, now: int) -> None:
    """While there are elastic jobs, what they may have is worked out whenever something happens."""
    elastic = memory.setdefault("elastic", {})
    match event:
        case TimerDue():
            if round_is_due(memory, now):
                begin_round(memory, now)
            return
        case Progress() | Accepted() | Done():
            return
        case JobSubmitted() if event.job.gang.elastic:
            elastic[event.job.id] = None
        case JobCancelled():
            elastic.pop(event.job, None)
        case AttemptEnded() if event.outcome is Outcome.SUCCEEDED:
            elastic.pop(event.job, None)
    memory["next_ms"] = now if elastic else None


def observe_with_pairs(memory: Memory, event: Event, now: int) -> None:
    """Likewise, and takes note of what jobs that share devices say of themselves."""
    observe_pairs(memory, event, now)
    observe(memory, event, now)


ABOUT = About(
    summary="jobs of one size together, in turns or packed when there are too many, moved together again",
    prior_knowledge="none",
    algorithm="affinity, time-slicing, packing and migration",
    decides_by="where jobs of the same size are, then arrival time",
    dimensions="none",
    preemption="no: turns on a device, packing, and moves",
    starvation="jobs of fixed size wait only where nodes of their size have no turn left; elastic ones for free GPUs",
    placement="by affinity: nodes of the job's size first, least loaded",
    source="Xiao et al., OSDI 2018",
)
