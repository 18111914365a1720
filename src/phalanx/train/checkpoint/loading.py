"""Bringing back the newest state that any tier can give."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from phalanx.errors import PhalanxError
from phalanx.train.checkpoint.collection import collector_at_rest
from phalanx.train.checkpoint.contents.parts import Kind
from phalanx.train.checkpoint.host.slot import Slot
from phalanx.train.checkpoint.persist import Target
from phalanx.train.checkpoint.rank_context import RankContext
from phalanx.train.checkpoint.recovery import Inventory, Recovery, Refused, Source, plan
from phalanx.train.checkpoint.snapshots.arrangement import DATA_OFFSET, Entry

if TYPE_CHECKING:
    from phalanx.train.checkpoint.store import Medium, Step
    from phalanx.train.checkpoint.store.manifest import Manifest

OF_A_RANK = re.compile(r"\.rank(\d+)(\.|$)")
FETCH_TIMEOUT_S = 600.0

log = logging.getLogger("phalanx.checkpoint")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was brought back: the step, from which tier this rank got it, what was passed over on the way, and why."""

    step: int
    tier: str
    bytes_read: int
    """From disks and stores; nothing if memory gave all."""
    seconds: float
    passed_over: tuple[str, ...]


class UnusableError(Exception):
    """A source that does not give what it seemed to have."""


class Loader:
    """Looks in all tiers, agrees with the other ranks, and fills the state."""

    def __init__(self, rank_context: RankContext, trusted: bool) -> None:
        self._station = rank_context
        self._trusted = trusted

    def load(self) -> Loaded | None:
        """The newest step that every rank can get, each from its nearest source; None if there is none at all."""
        began_s = time.monotonic()
        rank_context = self._station
        inventory = self._inventory()
        refused: list[Refused] = []
        passed_over: list[str] = []
        while True:
            recovery = rank_context.agreement.decide("looking for a state", (inventory, refused), self._planned)
            if recovery is None:
                self._report_nothing(inventory, passed_over)
                return None
            source = recovery.sources[rank_context.rank]
            bytes_read, fault = self._attempt(recovery, source)
            faults = rank_context.agreement.share(f"loading step {recovery.step}", fault)
            if not any(faults):
                rank_context.memory.keep_only(recovery.step, [rank_context.rank, *self._held_here()])
                return Loaded(recovery.step, source.tier, bytes_read, time.monotonic() - began_s, tuple(passed_over))
            for rank, each in enumerate(faults):
                if each is not None:
                    refused.append((rank, recovery.step, recovery.sources[rank]))
                    passed_over.append(f"step {recovery.step}, rank {rank}, {recovery.sources[rank].tier}: {each}")
                    log.warning("passed over: %s", passed_over[-1])

    def committed_upto(self, step: int) -> dict[str, int | None]:
        """The newest step up to this one in each durable tier. The first rank looks into the store for all."""
        targets = [target for target in self._station.targets if target.ranks[0] == self._station.rank]
        found = {target.tier: [s for s in self._committed(target) if s <= step] for target in targets}
        return {tier: max(steps, default=None) for tier, steps in found.items()}

    def _committed(self, target: Target) -> list[int]:
        from phalanx.train.checkpoint.store import steps

        try:
            return [each.step for each in steps(target.medium)]
        except (PhalanxError, OSError) as error:
            log.warning("%s cannot be looked at: %s", target.tier, error)
            return []

    def _planned(self, words: Sequence[tuple[Inventory, list[Refused]]]) -> Recovery | None:
        inventories, refused = [inventory for inventory, _ in words], words[0][1]
        recovery = plan(inventories, refused)
        if recovery is None and not refused and self._holds_foreign():
            # It has no step of its own: training counts from 0.
            return Recovery(0, (Source("dcp"),) * len(inventories))
        return recovery

    def _report_nothing(self, inventory: Inventory, passed_over: Sequence[str]) -> None:
        from phalanx.train.checkpoint.store.step import UNFINISHED

        for slot in self._station.memory.holdings:
            slot.clear()
        # A save that did not end never was a checkpoint: a training that is killed in its first one begins anew.
        unusable = [each for each in passed_over if not each.endswith(UNFINISHED)]
        if unusable:
            raise PhalanxError(
                "there are checkpoints, and none can be loaded: " + "; ".join(unusable) + ". "
                "Mend what is named, or start anew with another directory"
            )

    def _inventory(self) -> Inventory:
        rank_context = self._station
        memory = {
            rank: [s for s in found if self._fits(rank, s)]
            for rank, found in rank_context.memory.holdings.steps().items()
        }
        address = None
        if rank_context.peer is not None and rank_context.background is not None:
            address = rank_context.background.address
        return Inventory(
            memory=memory,
            device=[] if rank_context.device.step is None else [rank_context.device.step],
            local=self._stored("local"),
            shared=self._stored("shared") if rank_context.rank == 0 else [],
            address=address,
        )

    def _fits(self, rank: int, step: int) -> bool:
        """Whether a snapshot was taken by as many ranks as there are now; any other can only be loaded from a store."""
        slot = self._station.memory.holdings.find(rank, step)
        return slot is not None and slot.record().world_size == self._station.world_size

    def _stored(self, tier: str) -> list[int]:
        target = next((target for target in self._station.targets if target.tier == tier), None)
        if target is None:
            return []
        from phalanx.train.checkpoint.store.step import attempted

        try:
            # Names alone: where memory has something newer, nothing is read.
            return sorted({each.step for each in attempted(target.medium)})
        except (PhalanxError, OSError) as error:
            log.warning("%s cannot be looked at: %s", tier, error)
            return []

    def _holds_foreign(self) -> bool:
        """Whether the store is one checkpoint of torch's own; an error where it is of a kind that cannot be loaded."""
        target = next((target for target in self._station.targets if target.tier == "shared"), None)
        if target is None:
            return False
        from phalanx.train.checkpoint.store.foreign import holds_foreign_checkpoint

        return holds_foreign_checkpoint(target.medium)

    def _held_here(self) -> list[int]:
        return sorted(self._station.memory.holdings.steps())

    def _attempt(self, recovery: Recovery, source: Source) -> tuple[int, str | None]:
        """Fills the state from a source; the bytes read from below memory, and what went wrong."""
        fillers: Mapping[str, Callable[[Recovery, Source], int]] = {
            "device": self._from_device,
            "host": self._from_host,
            "peer": self._from_peer,
            "local": self._from_store,
            "shared": self._from_store,
            "dcp": self._from_dcp,
        }
        try:
            return fillers[source.tier](recovery, source), None
        except (UnusableError, PhalanxError, OSError, ValueError) as error:
            return 0, str(error) or type(error).__name__

    def _from_device(self, recovery: Recovery, source: Source) -> int:
        self._station.device.fill(self._station.state.pieces())
        self._station.state.accept(self._station.device.objects)
        return 0

    def _from_host(self, recovery: Recovery, source: Source) -> int:
        slot = self._station.memory.holdings.find(self._station.rank, recovery.step)
        if slot is None:
            raise UnusableError("the snapshot is gone")
        with collector_at_rest():
            self._fill(slot)
        return 0

    def _from_peer(self, recovery: Recovery, source: Source) -> int:
        """Brings the copy here first, so that this rank has its own again, then fills the state from it."""
        rank_context = self._station
        assert rank_context.background is not None
        assert source.holder is not None
        rank_context.introduce(recovery.addresses)
        slot = self._free_slot(recovery.step)
        rank_context.background.order(
            "fetch", rank=rank_context.rank, step=recovery.step, holder=source.holder, slot=slot.name, tier="peer"
        )
        deadline_s = time.monotonic() + FETCH_TIMEOUT_S
        while True:
            for report in rank_context.background.wait(deadline_s):
                if report["what"] == "fetch" and "fault" in report:
                    raise UnusableError(report["fault"])
                if report["what"] == "fetch":
                    self._fill(slot)
                    return 0

    def _free_slot(self, step: int) -> Slot:
        """A slot for a snapshot of which only the size of this rank's state is known."""
        rank_context = self._station
        sizes = [s.segment.size for s in rank_context.memory.holdings]
        rank_context.memory.make_room(rank_context.host.slots, max(sizes, default=0) or self._size())
        return next(
            slot
            for slot in rank_context.memory.own(rank_context.host.slots)
            if slot.complete_step != step or slot.header.rank != rank_context.rank
        )

    def _size(self) -> int:
        return 4 * sum(piece.nbytes for piece in self._station.state.pieces()) + (64 << 20) + DATA_OFFSET

    def _fill(self, slot: Slot) -> None:
        rank_context = self._station
        record = slot.record()
        pieces = rank_context.state.prepare({e.fqn: (e.global_shape, e.dtype) for e in record.entries})
        by_key = {(e.fqn, e.offsets, e.sizes, e.dtype): e for e in record.entries}
        entries: list[Entry] = []
        for piece in pieces:
            entry = by_key.get((piece.fqn, piece.offsets, piece.sizes, piece.dtype))
            if entry is None:
                raise UnusableError(
                    f"the snapshot has no {piece.fqn} of {piece.dtype}{list(piece.sizes)} at {list(piece.offsets)}"
                )
            entries.append(entry)
        if len(entries) != len(record.entries):
            raise UnusableError(f"the snapshot has {len(record.entries)} tensors and the state {len(entries)}")
        in_order = sorted(zip(pieces, entries, strict=True), key=lambda pair: pair[1].position)
        rank_context.copier.fill([piece for piece, _ in in_order], [entry for _, entry in in_order], slot)
        rank_context.state.accept(record.objects)

    def _from_store(self, recovery: Recovery, source: Source) -> int:
        from phalanx.train.checkpoint.store.step import find_step

        rank_context = self._station
        target = next(target for target in rank_context.targets if target.tier == source.tier)
        step = find_step(target.medium, recovery.step).committed()
        if source.tier == "local" and step.world_size != rank_context.world_size:
            raise UnusableError(
                f"{step.url} was written by one of {step.world_size} ranks, not of {rank_context.world_size}"
            )
        together = all(each == source for each in recovery.sources) and source.tier == "shared"
        return self._fill_from(target.medium, step, step.manifest(), together=together)

    def _fill_from(self, medium: Medium, step: Step | None, manifest: Manifest, *, together: bool) -> int:
        from phalanx.train.checkpoint.store import load_into

        rank_context = self._station
        pieces = rank_context.state.prepare(kinds_of(manifest))
        loaded = load_into(
            medium,
            step,
            pieces,
            objects=self._wanted(list(manifest.objects)),
            group=dist.group.WORLD if together and rank_context.world_size > 1 else None,
            trusted=self._trusted,
        )
        rank_context.state.accept(loaded.objects)
        if any(piece.tensor.is_cuda for piece in pieces):
            torch.cuda.synchronize()
        return loaded.bytes_read

    def _from_dcp(self, recovery: Recovery, source: Source) -> int:
        """Fills the state from a checkpoint that torch.distributed.checkpoint wrote, by the same names."""
        from phalanx.train.checkpoint.store.dcp import read_foreign

        target = next(target for target in self._station.targets if target.tier == "shared")
        manifest = read_foreign(target.medium)
        self._require_same_names(target.medium.url, manifest)
        return self._fill_from(target.medium, None, manifest, together=True)

    def _require_same_names(self, url: str, manifest: Manifest) -> None:
        """Refuses what would be brought back in part: an optimiser that begins anew looks like one that was loaded."""
        state = self._station.state
        there = {*manifest.tensors, *manifest.objects}
        lacking = [name for name in state.tensor_parts if not any(n == name or n.startswith(f"{name}.") for n in there)]
        known = {piece.fqn for piece in state.prepare(kinds_of(manifest))}
        strange = [name for name in manifest.tensors if name not in known]
        if lacking or strange:
            lacks = (
                f"it has nothing of {', '.join(lacking)}" if lacking else f"it has {strange[0]} and the state has not"
            )
            raise UnusableError(
                f"{url} is a checkpoint of torch.distributed.checkpoint with other names: {lacks} "
                f"({len(strange)} tensors of {len(manifest.tensors)} are not known here). Expected the parts "
                f"{', '.join(state.tensor_parts)}, with the names that torch's get_model_state_dict and "
                f"get_optimizer_state_dict give: save it so, or load it with torch.distributed.checkpoint.load first"
            )

    def _wanted(self, names: Sequence[str]) -> list[str]:
        """All objects but those of other ranks; a rank that is new gets what the first one had."""
        ranks = {int(found[1]) for name in names if (found := OF_A_RANK.search(name))}
        mine = self._station.rank if self._station.rank in ranks else 0
        return [name for name in names if not (found := OF_A_RANK.search(name)) or int(found[1]) == mine]


def kinds_of(manifest: Manifest) -> dict[str, Kind]:
    from phalanx.train.checkpoint.store.manifest import dtype_named

    return {name: (tuple(tensor.shape), dtype_named(tensor.dtype)) for name, tensor in manifest.tensors.items()}
