"""Breaking: failures hit the virtual world, and what was running there stands still until they are noticed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from phalanx.cluster.cluster import Health
from phalanx.faults.generate.occurrence import Occurrence, What
from phalanx.protocol.action import ActionId
from phalanx.protocol.event import AttemptEnded, Event, NodeHealthChanged, Outcome
from phalanx.simulate.figures.ledger import permille_of
from phalanx.simulate.world.life import Life

if TYPE_CHECKING:
    from phalanx.placement.placement import Placement
    from phalanx.simulate.world.virtual import VirtualBackend


class Struck(NamedTuple):
    """A failure happens, or its notice is given; with `announced` that was before."""

    occurrence: Occurrence
    announced: bool = False


class Noticed(NamedTuple):
    """It is noticed that an attempt has stood still."""

    job: str
    attempt: int
    cause: str


class Repaired(NamedTuple):
    """Nodes are as before."""

    nodes: tuple[str, ...]


Strike: TypeAlias = Struck | Noticed | Repaired
STRIKES = (Struck, Noticed, Repaired)


@dataclass(slots=True)
class Damage:
    """Which nodes are broken, and which run at which part of their speed. `interrupted` counts attempts."""

    down: dict[str, None] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    happened: int = 0
    interrupted: int = 0

    def speed_left(self, placement: Placement) -> float:
        """As fast as the slowest node of a job."""
        if not self.slow:
            return 1.0
        return min((self.slow.get(slot.node, 1.0) for slot in placement.slots), default=1.0)


def strike(world: VirtualBackend, hit: Strike, now: int) -> list[Event]:
    """Has something of a failure happen; what the scheduler hears of it at this moment."""
    match hit:
        case Struck(occurrence, announced):
            return _struck(world, occurrence, announced, now)
        case Noticed(job, attempt, cause):
            return _noticed(world, job, attempt, cause, now)
        case Repaired(nodes):
            for node in nodes:
                world.damage.down.pop(node, None)
                if world.damage.slow.pop(node, None) is not None:
                    _retime(world, (node,), now)
            return []


def _struck(world: VirtualBackend, occurrence: Occurrence, announced: bool, now: int) -> list[Event]:
    """What is broken already is not broken again."""
    nodes = tuple(node for node in occurrence.nodes if node not in world.damage.down)
    if not nodes:
        return []
    occurrence = replace(occurrence, nodes=nodes)
    if occurrence.notice_ms and not announced:
        world.at(now + occurrence.notice_ms, Struck(occurrence, announced=True))
        return [NodeHealthChanged(node, Health.DRAINING, occurrence.cause) for node in nodes]
    world.damage.happened += 1
    match occurrence.what:
        case What.PROCESS:
            _end_noticed(world, occurrence, [job for job, _ in _on(world, nodes)], now)
        case What.PARTITION:
            _cut_off(world, occurrence, now)
        case What.SLOW:
            world.damage.slow.update(dict.fromkeys(nodes, occurrence.factor))
            _retime(world, nodes, now)
            world.at(now + occurrence.repair_ms, Repaired(nodes))
        case _:
            _fail(world, occurrence, now)
    return []


def _fail(world: VirtualBackend, occurrence: Occurrence, now: int) -> None:
    """Nodes fail: the scheduler hears of it once it is noticed, and again when they are repaired."""
    for job, _ in _on(world, occurrence.nodes):
        _break(world, job, occurrence, now)
    world.damage.down.update(dict.fromkeys(occurrence.nodes))
    _tell(world, occurrence, Health.FAILED, now)
    world.at(now + occurrence.detect_ms + occurrence.repair_ms, Repaired(occurrence.nodes))


def _cut_off(world: VirtualBackend, occurrence: Occurrence, now: int) -> None:
    """Jobs on both sides end; those on one side go on. No new work is placed on the side that is cut off."""
    inside = set(occurrence.nodes)
    astride = [
        job
        for job, life in _on(world, occurrence.nodes)
        if life.placement is not None and any(slot.node not in inside for slot in life.placement.slots)
    ]
    _end_noticed(world, occurrence, astride, now)
    _tell(world, occurrence, Health.SUSPECT, now)


def _tell(world: VirtualBackend, occurrence: Occurrence, health: Health, now: int) -> None:
    noticed_ms = now + occurrence.detect_ms
    for node in occurrence.nodes:
        world.at(noticed_ms, NodeHealthChanged(node, health, occurrence.cause))
        world.at(
            noticed_ms + occurrence.repair_ms, NodeHealthChanged(node, Health.HEALTHY, f"repaired: {occurrence.cause}")
        )


def _end_noticed(world: VirtualBackend, occurrence: Occurrence, jobs: Iterable[str], now: int) -> None:
    """Jobs end by themselves, which is noticed after a while; not before the answer to a start that is under way."""
    for job in jobs:
        life, costs = world.lives[job], world.costs
        answered_ms = life.held_since_ms + costs.start_ms + costs.restore_ms if life.starting else now
        if _break(world, job, occurrence, now):
            noticed_ms = max(now + occurrence.detect_ms, answered_ms)
            world.at(noticed_ms, Noticed(job, life.newest[0], occurrence.cause))


def _on(world: VirtualBackend, nodes: Iterable[str]) -> list[tuple[str, Life]]:
    """Jobs that hold something of nodes."""
    names = set(nodes)
    return [
        (job, life)
        for job, life in world.lives.items()
        if life.placement is not None and any(slot.node in names for slot in life.placement.slots)
    ]


def _break(world: VirtualBackend, job: str, occurrence: Occurrence, now: int) -> bool:
    """A job stands still from now on. One that is being stopped, or stands still already, is as it was."""
    life = world.lives[job]
    if life.leaving or life.broken_ms >= 0:
        return False
    runs = life.since_ms >= 0
    world.pause(life, job, now)
    if runs and occurrence.notice_ms:
        _save_in_time(world, life, job, occurrence.notice_ms)
    started(world, job, now)
    life.next, life.broken_ms = None, now
    world.damage.interrupted += 1
    return True


def _save_in_time(world: VirtualBackend, life: Life, job: str, notice_ms: int) -> None:
    """A job that was given notice has saved its work, if it can and the notice suffices. A save that was under way when
    the notice came is done first, so that there must be time for two.
    """
    work = world.works.get(job)
    if work is not None and work.saves and 2 * work.checkpoint_cost_ms(world.costs.checkpoint_ms) <= notice_ms:
        life.saved_ms, life.unsaved, life.unsaved_use = life.done_ms, 0, 0.0


def _noticed(world: VirtualBackend, job: str, attempt: int, cause: str, now: int) -> list[Event]:
    life = world.lives[job]
    if life.newest[0] != attempt or life.broken_ms < 0 or life.placement is None:
        return []
    mend(world, job, now)
    world.release(life, ActionId(world.term, job, attempt, 0), now)
    return [AttemptEnded(job, attempt, Outcome.LOST, reason=cause)]


def mend(world: VirtualBackend, job: str, now: int) -> None:
    """A job that stood still is dealt with: until now that was not known, and it goes back to what it last saved."""
    life = world.lives[job]
    if life.placement is not None:
        world.ledger.stand(job, "detection", permille_of(life.placement) * (now - life.broken_ms))
    life.broken_ms = -1
    work = world.works.get(job)
    if work is not None:
        world.lose(life, job, work)


def started(world: VirtualBackend, job: str, now: int) -> None:
    """A start has come to its end, or will not: books what it took, and what of it loading did."""
    life = world.lives[job]
    if not life.starting or life.placement is None:
        return
    permille = permille_of(life.placement)
    took_ms = now - life.held_since_ms
    start_ms = min(took_ms, world.costs.start_ms)
    world.ledger.stand(job, life.starting, permille * start_ms)
    world.ledger.stand(job, "reload", permille * (took_ms - start_ms))
    life.starting = ""


def broken_at_start(world: VirtualBackend, life: Life, now: int) -> None:
    """A job that is started on a node of which it is not known yet that it is broken stands still at once."""
    placement, down = life.placement, world.damage.down
    if down and placement is not None and any(slot.node in down for slot in placement.slots):
        life.starting, life.next, life.broken_ms = "", None, now
        world.damage.interrupted += 1


def _retime(world: VirtualBackend, nodes: Iterable[str], now: int) -> None:
    """Works out anew when jobs end whose nodes are slower, or as fast as before."""
    for job, life in _running(world, nodes):
        world.pause(life, job, now)
        world.run(life, job, now)


def _running(world: VirtualBackend, nodes: Iterable[str]) -> Iterator[tuple[str, Life]]:
    return ((job, life) for job, life in _on(world, nodes) if life.since_ms >= 0)
