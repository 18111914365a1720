"""The board of a worker: every device of the cluster, kept up to date by what has changed since the last look."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from phalanx.server.figures.outlook import Outlook, OutlookFile
from phalanx.server.figures.states import HEALTHS, health_of, state_of
from phalanx.server.store.devices import Changes, Holder, NodeDevices, Place, changes_since
from phalanx.server.store.virtual_clusters import virtual_clusters_of
from phalanx.server.view.devices import CLAIMED, Device

NOTHING = Device()

if TYPE_CHECKING:
    from phalanx.server.api.context import Context

GROWN_MAX = 4
"""Once it knows so many times as many jobs as there are devices, the board forgets those that have none."""


@dataclass(slots=True)
class Board:
    """All devices by node, in the order of the cluster file, and what is known of the jobs that have them.

    `seq` is the record up to which it is true, `version` names the layout: it changes when nodes come, go or change.
    """

    version: int = 0
    layout: int = -2
    seq: int = -1
    places: list[Place] = field(default_factory=list)
    nodes: list[NodeDevices] = field(default_factory=list)
    first: dict[str, int] = field(default_factory=dict)
    states: list[bytes] = field(default_factory=list)
    healths: list[bytes] = field(default_factory=list)
    first_jobs: list[list[str | None]] = field(default_factory=list)
    """The state and the health of each device of a node, and the first job that has it, if any."""
    holders: dict[str, Holder] = field(default_factory=dict)
    levels: list[str] = field(default_factory=list)
    virtual_clusters: bool = False
    frames: dict[Any, tuple[Any, Any]] = field(default_factory=dict)
    """Frames that were painted, by what they show and to which account."""
    _followed: int = -1
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _outlook: OutlookFile | None = None

    @property
    def devices(self) -> int:
        """How many there are."""
        return sum(place.devices for place in self.places)

    async def refresh(self, context: Context) -> Board:
        """Takes in what has changed, up to what was answered last: the loop's news come a little later."""
        async with self._one:
            changes = await context.read(changes_since, self.layout, self._followed)
            if changes.layout != self.layout:
                levels = (await context.cluster()).get("levels", ["node"])
                self.levels = levels[: levels.index("node") + 1] if "node" in levels else levels
                self.virtual_clusters = bool(await context.read(virtual_clusters_of))
            self._take_in(changes)
        return self

    def outlook(self, context: Context) -> Outlook:
        """What the planner last made out of the whole State."""
        if self._outlook is None:
            self._outlook = OutlookFile(context.outlook_folder)
        return self._outlook.read()

    def _take_in(self, changes: Changes) -> None:
        if changes.layout != self.layout:
            self._lay_out(changes.places)
        for node in changes.nodes:
            if node.position < len(self.places) and self.places[node.position].name == node.name:
                self._put(node)
        self.holders.update(changes.holders)
        self.layout, self._followed, self.seq = changes.layout, changes.followed, changes.seq
        if len(self.holders) > GROWN_MAX * (self.devices + 100):
            present = {job for node in self.nodes for device in node.devices for job in device.jobs}
            self.holders = {job: holder for job, holder in self.holders.items() if job in present}

    def _put(self, node: NodeDevices) -> None:
        """Takes a node in, with what frames need of each device. Of one that was not told of yet they are idle."""
        at, missing = node.position, max(self.places[node.position].devices - len(node.devices), 0)
        devices = [*node.devices, *[NOTHING] * missing]
        self.nodes[at] = node
        self.states[at] = bytes(state_of(node.health, device, ()) for device in devices)
        self.healths[at] = bytes(HEALTHS.index(health_of(node.health, device)) for device in devices)
        self.first_jobs[at] = [device.jobs[0] if device.jobs and device.use != CLAIMED else None for device in devices]

    def _lay_out(self, places: list[Place]) -> None:
        self.places = places
        self.nodes = [NodeDevices(place.name, number, "healthy", []) for number, place in enumerate(places)]
        self.states, self.healths = [b""] * len(places), [b""] * len(places)
        self.first_jobs = [[] for _ in places]
        for node in self.nodes:
            self._put(node)
        self.holders, self.first, count = {}, {}, 0
        for place in places:
            self.first[place.name] = count
            count += place.devices
        # Named by what it is: every worker calls one layout by one name, also after a restart.
        self.version = crc32(msgspec.json.encode((self.levels, self.virtual_clusters, places)))
