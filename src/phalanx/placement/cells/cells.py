"""Cells: the one object through which other packages use this one."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.cells import CellError, CellSite
from phalanx.placement.cells.check import check
from phalanx.placement.cells.elastic import add, grow, shrink
from phalanx.placement.cells.group import Group, GroupState, Seat
from phalanx.placement.cells.health import set_bad, set_healthy
from phalanx.placement.cells.outcome import Outcome
from phalanx.placement.cells.preempt import cancel, promote, release, users_of
from phalanx.placement.cells.request import Request, Suggestion
from phalanx.placement.cells.restore import restore
from phalanx.placement.cells.schedule import pools_of, schedule, take
from phalanx.placement.cells.settle import settle
from phalanx.placement.cells.trees.estate import Estate
from phalanx.placement.cells.trees.undo import Step
from phalanx.placement.cells.validate import validate

EVERYWHERE = Suggestion()


class Cells:
    """Virtual clusters on hardware. Every method does all it says or, if it raises, nothing."""

    def __init__(self, site: CellSite) -> None:
        self.estate = Estate(site)

    def trial(self) -> Step:
        """A block at whose end everything done in it is taken back, exactly."""
        return self.estate.undo.trial()

    def schedule(self, request: Request, suggestion: Suggestion = EVERYWHERE) -> Outcome:
        """Gives a new gang its leaves, or reserves them while victims leave, or says why it stays pending."""
        if request.group in self.estate.groups:
            raise CellError(f"group '{request.group}' has leaves already")
        with self.estate.undo.step():
            validate(self.estate, request)
            outcome = schedule(self.estate, request, suggestion)
            settle(self.estate)
        return outcome

    def proceed(self, name: str) -> tuple[Group, ...]:
        """The groups still in the way of a preempting one. If there are none, it has its leaves from now on."""
        group = self.group(name)
        victims = users_of(group.leaves()) if group.state is GroupState.PREEMPTING else ()
        if not victims and group.state is GroupState.PREEMPTING:
            with self.estate.undo.step():
                promote(self.estate, group)
        return victims

    def remove(self, name: str) -> None:
        """A group has gone, or no longer waits for its victims."""
        group = self.group(name)
        with self.estate.undo.step():
            (cancel if group.state is GroupState.PREEMPTING else release)(self.estate, group)
            settle(self.estate)

    def take(self, request: Request, seats: list[Seat]) -> Outcome:
        """Gives a new gang the leaves that were found for it before: nothing is searched for."""
        with self.estate.undo.step():
            outcome = take(self.estate, request, seats)
            settle(self.estate)
        return outcome

    def add(self, name: str, seat: Seat) -> None:
        """Gives a group one more seat that was found for it before."""
        with self.estate.undo.step():
            add(self.estate, self.group(name), seat)
            settle(self.estate)

    def grow(self, name: str, leaves: int, suggestion: Suggestion = EVERYWHERE) -> Seat | None:
        """One more pod for a group, where no group need be preempted; None if there is no place."""
        group = self.group(name)
        with self.estate.undo.step():
            seat = grow(self.estate, group, leaves, suggestion)
            settle(self.estate)
        return seat

    def shrink(self, name: str, seat: Seat) -> None:
        """A group gives a seat back. Its last one it gives back by being removed."""
        group = self.group(name)
        if seat not in group.seats or len(group.seats) == 1:
            raise CellError(f"group '{name}' has no such seat beside others")
        with self.estate.undo.step():
            shrink(self.estate, group, seat)
            settle(self.estate)

    def free_leaves(self, request: Request) -> int:
        """The free leaves in the best place a gang could be: a pool of its cluster, or the hardware."""
        if request.is_opportunistic:
            views = [state.view.room() for state in self.estate.chains.values()]
            return max((sum(size * count for size, count in room.items()) for room in views), default=0)
        pools = pools_of(self.estate, request)
        return max((pool.leaf_count - sum(pool.view.in_use_at.values()) for pool in pools), default=0)

    def set_health(self, node_name: str, is_healthy: bool) -> None:
        """A node has broken, or works again."""
        nodes = self.estate.nodes.get(node_name)
        if nodes is None:
            raise CellError(f"there is no node '{node_name}'")
        with self.estate.undo.step():
            for node in nodes:
                if node.is_healthy and not is_healthy:
                    set_bad(self.estate, node)
                elif is_healthy and not node.is_healthy:
                    set_healthy(self.estate, node)
            settle(self.estate)

    def adopt(self, old: Cells) -> None:
        """Takes over the running groups and the nodes' health of another configuration.

        Groups come first: no cell they run on is given to another only because it is broken.
        """
        for group in old.groups():
            if group.state is not GroupState.PREEMPTING:
                self.restore(group)
        for name, nodes in old.estate.nodes.items():
            if name in self.estate.nodes and not nodes[0].is_healthy:
                self.set_health(name, False)

    def restore(self, old: Group) -> None:
        """Takes over one group that runs."""
        with self.estate.undo.step():
            restore(self.estate, old)
            settle(self.estate)

    def group(self, name: str) -> Group:
        """A group that has leaves or waits for victims."""
        if name not in self.estate.groups:
            raise CellError(f"there is no group '{name}' that has leaves or waits for victims")
        return self.estate.groups[name]

    def has(self, name: str) -> bool:
        """Whether a group has leaves or waits for victims."""
        return name in self.estate.groups

    def groups(self) -> Iterator[Group]:
        """All groups, by age."""
        yield from sorted(self.estate.groups.values(), key=lambda group: group.serial)

    def check(self) -> None:
        """Asserts that everything the cells say of themselves is true."""
        check(self.estate)
