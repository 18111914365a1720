"""Which step comes back, from where; and what may be overwritten meanwhile."""

from __future__ import annotations

from phalanx.train.checkpoint.decision import Word, decide, newest_protected, writable
from phalanx.train.checkpoint.recovery import Inventory, Source, plan
from phalanx.train.checkpoint.schedule import Cost

HERE = ("127.0.0.1", 1)


def test_the_nearest_source_of_the_newest_common_step_is_taken() -> None:
    inventories = [
        Inventory(memory={0: [4, 6], 1: [6]}, shared=[2, 4], address=HERE),
        Inventory(memory={}, local=[4], address=HERE),
    ]
    recovery = plan(inventories, [])
    assert recovery is not None
    assert recovery.step == 6
    assert recovery.sources == (Source("host"), Source("peer", 0))


def test_a_step_that_one_rank_cannot_have_is_not_taken() -> None:
    recovery = plan([Inventory(memory={0: [6]}, shared=[4]), Inventory(memory={1: [4]})], [])
    assert recovery is not None
    assert (recovery.step, recovery.sources) == (4, (Source("shared"), Source("host")))


def test_recovery_goes_from_memory_to_peer_to_disk_to_the_store() -> None:
    inventories = [
        Inventory(memory={0: [4]}, local=[4], shared=[4], address=HERE),
        Inventory(memory={0: [4], 1: [4]}, address=HERE),
    ]
    refused = []
    tiers = []
    while (recovery := plan(inventories, refused)) is not None:
        tiers.append(recovery.sources[0].tier)
        refused.append((0, 4, recovery.sources[0]))
    assert tiers == ["host", "peer", "local", "shared"]


def test_a_newer_step_in_the_store_is_better_than_an_older_one_in_memory() -> None:
    recovery = plan([Inventory(memory={0: [4]}, shared=[8])], [])
    assert recovery is not None
    assert (recovery.step, recovery.sources[0].tier) == (8, "shared")


def test_there_may_be_nothing() -> None:
    assert plan([Inventory(memory={})], []) is None


def word(*slots: int | None, replicated: int | None = None, occupied: tuple[int, ...] = (), **others: object) -> Word:
    defaults = {
        "step": 9,
        "fingerprint": "x",
        "slot_bytes": 1,
        "due": frozenset({"host"}),
        "busy": frozenset(),
        "costs": {},
        "step_s": 1.0,
        "machine": "m",
        "address": None,
        "durable": None,
        "on_disk": None,
        "held": frozenset(),
    }
    return Word(slots=slots, replicated=replicated, occupied=frozenset(occupied), **{**defaults, **others})  # type: ignore[arg-type]


def test_the_newest_step_that_all_have_is_kept() -> None:
    assert newest_protected([word(2, 4), word(4, 2)]) == 4
    assert newest_protected([word(2, 4), word(None, 2)]) == 2
    assert newest_protected([word(None, None)]) is None


def test_with_copies_the_newest_step_that_is_copied_everywhere_is_kept() -> None:
    assert newest_protected([word(2, 4, replicated=2), word(2, 4, replicated=4)]) == 2


def test_what_is_kept_or_read_is_not_overwritten() -> None:
    assert writable((2, 4), 4, frozenset()) == 0
    assert writable((2, 4), 4, frozenset({2})) is None
    assert writable((6, None), 6, frozenset()) == 1


def test_nothing_is_saved_when_a_rank_has_no_room_and_it_is_named() -> None:
    decision = decide([word(2, 4), word(2, 4, replicated=None, occupied=(2, 4))])
    assert decision.tiers is None
    assert "rank 1" in decision.why_not


def test_while_a_step_is_being_written_to_disk_snapshots_go_on_in_the_other_slot_and_that_step_stays() -> None:
    decision = decide([word(2, 4), word(4, 2, occupied=(2,))])
    assert (decision.tiers, decision.keep) == (("host",), 2)


def test_what_peers_have_copies_of_is_not_given_up_for_a_snapshot() -> None:
    costs = {"host": Cost(), "peer": Cost()}
    decision = decide([word(2, 4, replicated=4, costs=costs), word(2, 4, replicated=4, costs=costs, occupied=(2,))])
    assert (decision.tiers, decision.keep) == (None, 4)


def test_a_step_that_all_have_already_only_goes_to_further_tiers() -> None:
    decision = decide([word(2, 9, occupied=(2,)), word(9, None)])
    assert decision.is_taken
    assert decision.tiers == ("host",)
    assert not decide([word(2, 9), word(2, 4)]).is_taken


def test_a_tier_that_is_busy_on_one_rank_is_late_for_all() -> None:
    due = frozenset({"host", "shared"})
    decision = decide([word(2, 4, due=due), word(2, 4, due=due, busy=frozenset({"shared"}))])
    assert decision.tiers == ("host",)
    assert decision.late == ("shared",)


def test_what_is_on_the_disks_is_what_every_rank_has_there() -> None:
    assert decide([word(on_disk=8), word(on_disk=4)]).on_disk == 4
    assert decide([word(on_disk=8), word(on_disk=None)]).on_disk is None
