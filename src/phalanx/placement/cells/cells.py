"""Cells: the one object through which others use this room."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.placement.cells.check import check
from phalanx.placement.cells.elastic import grow, shrink
from phalanx.placement.cells.estate import Estate
from phalanx.placement.cells.group import Group, GroupState, Seat
from phalanx.placement.cells.health import set_bad, set_healthy
from phalanx.placement.cells.preempt import cancel, promote, release, users_of
from phalanx.placement.cells.request import Outcome, Request, Suggestion
from phalanx.placement.cells.restore import restore
from phalanx.placement.cells.schedule import schedule
from phalanx.placement.cells.settle import settle
from phalanx.placement.cells.undo import Step
from phalanx.placement.cells.validate import validate
from phalanx.workload.cells import CellError, CellSite

EVERYWHERE = Suggestion()


class Cells:
    """Virtual clusters on hardware. Every method does all it says or, if it raises, nothing."""

    def __init__(self, site: CellSite) -> None:
        self.estate = Estate(site)

    def trial(self) -> Step:
        """A block at whose end everything done in it is taken back, exactly."""
        return self.estate.undo.trial()

    def schedule(self, request: Request, suggestion: Suggestion = EVERYWHERE) -> Outcome:
        """Gives a new gang its leaves, or reserves them while others leave, or says why it waits."""
        if request.group in self.estate.groups:
            raise CellError(f"group '{request.group}' has leaves already")
        with self.estate.undo.step():
            validate(self.estate, request)
            outcome = schedule(self.estate, request, suggestion)
            settle(self.estate)
        return outcome

    def proceed(self, name: str) -> tuple[Group, ...]:
        """Who is still in the way of a preempting group. If nobody is, it has its leaves from now on."""
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

    def grow(self, name: str, leaves: int) -> Seat | None:
        """One more pod for a group, where nobody need be preempted; None if there is no room."""
        group = self.group(name)
        with self.estate.undo.step():
            seat = grow(self.estate, group, leaves)
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

    def is_placeable(self, name: str, suggestion: Suggestion = EVERYWHERE) -> bool:
        """Whether all nodes of a group are healthy, and suggested if it minds."""
        group = self.group(name)
        return all(
            leaf.is_healthy and (group.request.ignores_suggestions or suggestion.has(leaf.node_name))
            for leaf in group.leaves()
        )

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

        Groups come first: no cell they run on is given to somebody else only because it is broken.
        """
        for group in old.groups():
            if group.state is not GroupState.PREEMPTING:
                with self.estate.undo.step():
                    restore(self.estate, group)
                    settle(self.estate)
        for name, nodes in old.estate.nodes.items():
            if name in self.estate.nodes and not nodes[0].is_healthy:
                self.set_health(name, False)

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
