"""Whatever is asked of a device, in whatever order: no part of it is ever given twice, and every step can be undone."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

from hypothesis import assume, given
from hypothesis import strategies as st

from phalanx.cluster import device, mig
from phalanx.cluster.device import DeviceLoad, Portion
from phalanx.placement.sharing import slowdown, speed, wanted
from phalanx.workload.share import ShareAsk, fraction_ask, mig_ask, mps_ask, turn_ask

MEMORY_MB = 40_000
MODELS = st.sampled_from(sorted(mig.GEOMETRIES))
MEMORIES = st.none() | st.integers(1, MEMORY_MB)


@cache
def kinds_of(model: str) -> tuple[st.SearchStrategy[ShareAsk], ...]:
    names = [each.name for each in mig.profiles(model)]
    return (
        st.builds(fraction_ask, st.integers(1, 1000), MEMORIES),
        st.builds(mps_ask, st.integers(1, 100), MEMORIES),
        st.builds(mig_ask, st.sampled_from(names)),
        st.builds(turn_ask, st.integers(2, 4)),
    )


@cache
def asks_of(model: str) -> st.SearchStrategy[ShareAsk | None]:
    return st.none() | st.one_of(kinds_of(model))


@st.composite
def asks_of_one_mode(draw: st.DrawFn) -> tuple[str, list[tuple[ShareAsk | None, bool]]]:
    """Asks that could share a device, so that devices fill up rather than refuse for their mode."""
    model = draw(MODELS)
    pool = draw(st.sampled_from(kinds_of(model)))
    return model, draw(st.lists(st.tuples(pool, st.booleans()), max_size=12))


@st.composite
def loads(draw: st.DrawFn) -> DeviceLoad:
    model, asks = draw(asks_of_one_mode())
    load = DeviceLoad(model, MEMORY_MB, draw(layouts_of(model)))
    for i, (ask, revocable) in enumerate(asks):
        give(load, f"h{i}", ask, revocable)
    return load


@cache
def layouts_of(model: str) -> st.SearchStrategy[mig.Layout | None]:
    full = mig.full_layouts(model, tuple(each.name for each in mig.profiles(model) if "+me" not in each.name))
    parts = sorted({layout[start:stop] for layout in full for start in range(4) for stop in range(4, 8)})
    return st.none() | st.sampled_from(parts)


def want(load: DeviceLoad, ask: ShareAsk | None, revocable: bool) -> Portion:
    portion = wanted(ask, load.model, load.memory_mb, revocable)
    assert portion is not None
    return portion


def give(load: DeviceLoad, holder: str, ask: ShareAsk | None, revocable: bool) -> bool:
    portion = device.fit(load, want(load, ask, revocable))
    if portion is not None:
        device.add(load, holder, portion)
    return portion is not None


@given(st.data(), MODELS)
def test_no_sequence_of_giving_and_taking_back_breaks_a_rule(data: st.DataObject, model: str) -> None:
    load = DeviceLoad(model, MEMORY_MB, data.draw(layouts_of(model)))
    for i in range(data.draw(st.integers(0, 25))):
        take_back = data.draw(st.booleans())
        if load.holders and take_back:
            device.remove(load, data.draw(st.sampled_from(sorted(load.holders))))
        else:
            give(load, f"h{i}", data.draw(asks_of(model)), data.draw(st.booleans()))
        assert device.violations(load) == ()
        assert mig.legal(model, device.layout_wanted(load) or ())


@given(loads(), st.data())
def test_taking_back_undoes_giving_exactly(load: DeviceLoad, data: st.DataObject) -> None:
    assert load.model is not None
    before = deepcopy(load)
    portion = device.fit(load, want(load, data.draw(asks_of(load.model)), data.draw(st.booleans())))
    assert load == before
    assume(portion is not None)
    assert portion is not None
    device.add(load, "new", portion)
    assert load != before
    assert device.remove(load, "new") == portion
    assert load == before
    assert list(load.holders) == list(before.holders)


@given(loads())
def test_a_device_that_gives_everything_back_is_as_new(load: DeviceLoad) -> None:
    for holder in sorted(load.holders):
        device.remove(load, holder)
    assert load == DeviceLoad(load.model, load.memory_mb, load.layout)


@given(loads(), st.data())
def test_what_fits_is_added_and_what_does_not_is_refused_unchanged(load: DeviceLoad, data: st.DataObject) -> None:
    assert load.model is not None
    portion = want(load, data.draw(asks_of(load.model)), data.draw(st.booleans()))
    fitted = device.fit(load, portion)
    assert (fitted is None) == (device.obstacle(load, portion) is not None)
    before = deepcopy(load)
    try:
        device.add(load, "new", fitted or portion)
    except ValueError:
        assert fitted is None
        assert load == before
    else:
        assert fitted is not None


@given(MODELS, st.integers(0, 511), st.data())
def test_an_instance_fits_nowhere_only_if_every_offset_is_taken(model: str, occupied: int, data: st.DataObject) -> None:
    profile = data.draw(st.sampled_from(mig.profiles(model)))
    free = [offset for offset in profile.offsets if not occupied & profile.mask(offset)]
    offset = mig.fits(model, occupied, profile.name)
    assert (offset in free) if free else (offset is None)


@given(MODELS, st.integers(0, 511), st.data())
def test_no_other_offset_leaves_the_largest_profile_more_room(model: str, occupied: int, data: st.DataObject) -> None:
    profile = data.draw(st.sampled_from(mig.profiles(model)))
    best = mig.fits(model, occupied, profile.name)
    assume(best is not None)
    assert best is not None

    def largest_left(offset: int) -> int:
        taken = occupied | profile.mask(offset)
        fitting = [each.compute_slices for each in mig.profiles(model) if mig.fits(model, taken, each.name) is not None]
        return max(fitting, default=0)

    free = [offset for offset in profile.offsets if not occupied & profile.mask(offset)]
    assert largest_left(best) == max(largest_left(offset) for offset in free)


@given(loads(), st.data())
def test_a_guarantee_is_refused_only_by_guarantees_once_the_revocable_may_go(
    load: DeviceLoad, data: st.DataObject
) -> None:
    assert load.model is not None
    portion = want(load, data.draw(asks_of(load.model)), False)
    before = deepcopy(load)
    victims = device.make_room(load, portion, device.revocable_holders(load))
    assert load == before
    for holder in device.revocable_holders(load) if victims is None else victims:
        assert device.remove(load, holder).revocable
    assert (device.fit(load, portion) is None) == (victims is None)
    if victims:
        # Not one of them could have stayed.
        for holder in victims:
            device.add(load, holder, before.holders[holder])
            assert device.fit(load, portion) is None
            device.remove(load, holder)


@given(loads())
def test_a_repartition_leads_to_a_layout_with_everything_that_is_held(load: DeviceLoad) -> None:
    assert load.model is not None
    change = device.repartition(load)
    held = device.held_instances(load)
    assert not [each for each in change.destroy if each in held]
    device.set_layout(load, device.layout_wanted(load))
    assert not device.repartition(load).needed
    assert all(each in (load.layout or ()) for each in held)


@given(loads())
def test_nobody_runs_faster_than_alone_and_nobody_stands_still(load: DeviceLoad) -> None:
    for holder in load.holders:
        assert 0.0 < speed(load, holder) <= 1.0
        assert slowdown(load, holder) >= 1.0


@given(loads())
def test_instances_and_turns_together_never_run_faster_than_the_device(load: DeviceLoad) -> None:
    assume(load.mode in (device.Mode.MIG, device.Mode.TURNS))
    assert sum(speed(load, holder) for holder in load.holders) <= 1.0 + 1e-9
