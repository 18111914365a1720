"""The sizes of groups: what pending jobs need and the forecast bears out, less what has been idle for long."""

from __future__ import annotations

from dataclasses import dataclass, field

from phalanx.backends.ray.scaling.forecast import Expected, Forecast, States, fewest
from phalanx.backends.ray.scaling.groups import Groups, NodeGroup
from phalanx.cluster.cluster import Health, Node
from phalanx.engine.state.state import State


@dataclass(frozen=True, slots=True)
class Size:
    """How many nodes a group should have, and which of those it has are to leave."""

    group: str
    nodes: int
    leave: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The sizes of all groups, what was predicted of them, and what is said about the rest."""

    sizes: tuple[Size, ...]
    forecasts: tuple[Forecast, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class Scaler:
    """Remembers since when nodes are idle, and when sizes last changed."""

    groups: Groups
    _idle_since: dict[str, int] = field(default_factory=dict)
    _changed_ms: int | None = None
    _asked: dict[str, int] = field(default_factory=dict)

    def look(self, states: States, now: int) -> Answer:
        """The sizes that groups should have now."""
        state = states()
        self._note_idle(state, now)
        # A cluster file may name nodes that are still to come; until then they have failed.
        health, number = state.capacity.health, state.topology.number
        nodes = [node for node in state.cluster.nodes if health[number[node.name]] is not Health.FAILED]
        present = {group.name: [node for node in nodes if group.has(node)] for group in self.groups.groups}
        forecasts = self._forecasts(states, present, now)
        is_cooling = self._changed_ms is not None and now - self._changed_ms < self.groups.cool_down_ms
        sizes = tuple(
            self._size(group, present[group.name], forecasts.get(group.name), is_cooling, now)
            for group in self.groups.groups
        )
        asked = {size.group: size.nodes for size in sizes}
        if asked != {name: len(nodes) for name, nodes in present.items()} and asked != self._asked:
            self._changed_ms = now
        self._asked = asked
        notes = ("nothing is given back before the cool-down is over",) if is_cooling else ()
        return Answer(sizes, tuple(forecasts.values()), notes)

    def _note_idle(self, state: State, now: int) -> None:
        idle = [node.name for number, node in enumerate(state.topology.nodes) if not _is_used(state, number, node.name)]
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle}

    def _forecasts(self, states: States, present: dict[str, list[Node]], now: int) -> dict[str, Forecast]:
        """What more nodes would bring, of the cheapest group first; nodes that were asked for and come are counted."""
        found: dict[str, Forecast] = {}
        expected = Expected()
        for group in sorted(self.groups.groups, key=_price_each):
            forecast = fewest(states, expected, group, group.most - len(present[group.name]), now)
            if forecast is not None:
                found[group.name] = forecast
                expected = expected.and_of(group, forecast)
        return found

    def _size(
        self, group: NodeGroup, present: list[Node], forecast: Forecast | None, is_cooling: bool, now: int
    ) -> Size:
        if forecast is not None:
            return Size(group.name, len(present) + forecast.nodes)
        if is_cooling or len(present) <= group.least:
            return Size(group.name, max(group.least, len(present), self._asked.get(group.name, 0) if is_cooling else 0))
        idle = [node.name for node in present if self._idle_ms(node.name, now) >= self.groups.idle_ms]
        leave = tuple(idle[: len(present) - group.least])
        return Size(group.name, len(present) - len(leave), leave)

    def _idle_ms(self, node: str, now: int) -> int:
        return now - self._idle_since[node] if node in self._idle_since else -1


def _is_used(state: State, number: int, name: str) -> bool:
    """Whether anything runs on a node or is claimed there, by phalanx or beside it."""
    return bool(state.on_node.get(number)) or name in state.foreign


def _price_each(group: NodeGroup) -> tuple[float, str]:
    """What one GPU costs, or one CPU where there is none."""
    units = group.node.gpus or group.node.cpus_milli / 1000 or 1
    return (group.node.price_usd_h / units, group.name)
