"""Which steps count and where state comes from, by what the ranks of a world bring."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from phalanx.train.elastic.agreement import Standing, agreed

FRESH = Standing(0, keeps=False)


def kept(completed: int, has_voted: bool = False) -> Standing:
    return Standing(completed, keeps=True, has_voted=has_voted)


def test_at_the_start_all_have_the_state_of_the_first_rank() -> None:
    found = agreed([FRESH] * 3)
    assert (found.sources, found.behind, found.completed) == ((0,), (1, 2), 0)
    assert found.recovery.mode == "start"


def test_a_rank_without_memory_has_its_state_from_one_that_kept_it() -> None:
    found = agreed([FRESH, kept(7), kept(7)])
    assert (found.sources, found.behind, found.completed) == ((1, 2), (0,), 7)
    assert str(found.recovery) == (
        "epoch 0: state from a peer at step 7: 2 of 3 have kept their memory; rank 0 takes it from rank 1"
    )


def test_ranks_that_all_kept_their_memory_go_on_in_place() -> None:
    found = agreed([kept(7), kept(7)])
    assert (found.behind, found.recovery.mode) == ((), "in place")


def test_a_saved_state_counts_where_no_memory_is_left_and_not_beside_any() -> None:
    saved = Standing(9, keeps=False)
    assert (agreed([FRESH, saved]).sources, agreed([FRESH, saved]).completed) == ((1,), 9)
    assert agreed([FRESH, saved]).recovery.mode == "saved"
    assert (agreed([kept(5), saved]).sources, agreed([kept(5), saved]).completed) == ((0,), 5)


def test_a_step_counts_that_a_rank_heard_counts() -> None:
    found = agreed([kept(8), kept(7, has_voted=True), FRESH])
    assert (found.completed, found.finishing, found.sources, found.behind) == (8, (1,), (0, 1), (2,))


def test_a_step_counts_for_which_all_that_are_left_have_voted() -> None:
    # The rank that is gone may have heard that it does.
    found = agreed([kept(7, has_voted=True), FRESH, kept(7, has_voted=True)])
    assert (found.completed, found.finishing, found.behind) == (8, (0, 2), (1,))


def test_a_step_does_not_count_for_which_one_that_is_left_has_not_voted() -> None:
    found = agreed([kept(7, has_voted=True), kept(7)])
    assert (found.completed, found.finishing, found.behind) == (7, (), ())


def test_the_sources_take_turns() -> None:
    found = agreed([FRESH, kept(3), FRESH, kept(3), FRESH])
    assert [found.source_of(rank) for rank in found.behind] == [1, 3, 1]


@given(st.integers(1, 5), st.data())
def test_a_step_that_any_rank_has_completed_is_never_undone_by_those_that_are_left(
    world: int, data: st.DataObject
) -> None:
    """Each rank of a world came to a point of one step; any but one of them are then lost."""
    ready = data.draw(st.integers(0, world), label="ranks that reached the vote")
    voted = [rank < ready for rank in range(world)]
    # None hears the result before all have voted.
    heard = [data.draw(st.booleans()) for _ in range(world)] if all(voted) else [False] * world
    left = data.draw(st.sets(st.integers(0, world - 1), min_size=1), label="left")
    standings = [
        kept(4 + heard[rank], voted[rank] and not heard[rank]) if rank in left else FRESH for rank in range(world)
    ]
    found = agreed(standings)
    assert found.completed == 5 or not any(heard)
    assert set(found.sources) | set(found.behind) == set(range(world))
    assert not set(found.sources) - left


def test_all_ranks_find_the_same_number_of_steps() -> None:
    for standings in product([FRESH, kept(1), kept(1, has_voted=True), kept(2)], repeat=3):
        found = agreed(standings)
        reached = {standings[rank].completed + (rank in found.finishing) for rank in found.sources}
        assert reached == {found.completed}
