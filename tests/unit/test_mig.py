"""MIG: the tables agree with the driver, and instances fit beside each other where the hardware lets them."""

from __future__ import annotations

from itertools import combinations

import pytest

from phalanx.cluster import mig
from phalanx.cluster.catalogue import accelerators
from phalanx.cluster.mig import Instance, LayoutChange, RepartitionCost

MODELS = sorted(mig.GEOMETRIES)
SEVEN_SLICES = [model for model in MODELS if model != "A30"]

# What `nvidia-smi mig -lgipp` prints, by compute slices, memory slices and media engines.
SEVEN_SLICE_PLACEMENTS = [
    (1, 1, False, (0, 1, 2, 3, 4, 5, 6)),
    (1, 1, True, (0, 1, 2, 3, 4, 5, 6)),
    (1, 2, False, (0, 2, 4, 6)),
    (2, 2, False, (0, 2, 4)),
    (3, 4, False, (0, 4)),
    (4, 4, False, (0,)),
    (7, 8, True, (0,)),
]


def plain(model: str) -> tuple[str, ...]:
    """The profiles MIG began with: no media extension, no doubled memory."""
    return tuple(
        each.name
        for each in mig.profiles(model)
        if "+me" not in each.name and each.memory_slices < 2 * each.compute_slices
    )


def layout(*instances: tuple[int, str]) -> mig.Layout:
    return tuple(Instance(offset, name) for offset, name in instances)


def test_every_model_has_the_profiles_the_catalogue_lists() -> None:
    listed = {each.name: each.mig for each in accelerators() if each.mig}
    assert listed == {name: tuple(each.name for each in mig.profiles(name)) for name in listed}


@pytest.mark.parametrize("model", SEVEN_SLICES)
def test_profiles_start_where_the_driver_lets_them(model: str) -> None:
    rows = [(each.compute_slices, each.memory_slices, each.media, each.offsets) for each in mig.profiles(model)]
    assert rows == SEVEN_SLICE_PLACEMENTS


@pytest.mark.parametrize("model", MODELS)
def test_a_name_says_the_compute_slices(model: str) -> None:
    assert all(each.name.startswith(f"{each.compute_slices}g.") for each in mig.profiles(model))


@pytest.mark.parametrize("model", MODELS)
def test_as_many_instances_of_a_profile_fit_as_the_driver_says(model: str) -> None:
    for each in mig.profiles(model):
        occupied, count = 0, 0
        while (offset := mig.fits(model, occupied, each.name)) is not None:
            occupied |= each.mask(offset)
            count += 1
        assert count == each.count_max, each.name


def test_an_a100_has_nineteen_full_layouts() -> None:
    layouts = mig.full_layouts("A100-40", plain("A100-40"))
    assert len(layouts) == len(frozenset(layouts)) == 19
    left = {(4,), (3,), (2, 2), (2, 1, 1), (1, 1, 2), (1, 1, 1, 1)}
    right = {(3,), (2, 1), (1, 1, 1)}
    as_sizes = {tuple(int(each.profile[0]) for each in sorted(layout)) for layout in layouts}
    assert as_sizes == {(*first, *second) for first in left for second in right} | {(7,)}


def test_an_a30_has_five_full_layouts_and_one_set_of_media_engines() -> None:
    assert len(mig.full_layouts("A30", plain("A30"))) == 5
    assert mig.legal("A30", layout((0, "2g.12gb+me"), (2, "2g.12gb")))
    assert not mig.legal("A30", layout((0, "2g.12gb+me"), (2, "1g.6gb+me")))


@pytest.mark.parametrize("model", ["A30", "A100-40"])
def test_full_layouts_are_all_legal_sets_of_instances_that_no_instance_extends(model: str) -> None:
    spots = [Instance(offset, name) for name in plain(model) for offset in mig.profile(model, name).offsets]
    legal = [
        chosen
        for size in range(1, mig.geometry(model).memory_slices + 1)
        for chosen in combinations(sorted(spots), size)
        if mig.legal(model, chosen)
    ]
    maximal = [
        chosen for chosen in legal if not any(mig.legal(model, (*chosen, spot)) for spot in spots if spot not in chosen)
    ]
    assert sorted(mig.full_layouts(model, plain(model))) == sorted(maximal)


@pytest.mark.parametrize("model", MODELS)
def test_no_layout_gives_away_more_than_the_device(model: str) -> None:
    for chosen in mig.full_layouts(model):
        assert sum(mig.compute_permille(model, each.profile) for each in chosen) <= 1000
        assert sum(mig.memory_mb(model, each.profile, 80_001) for each in chosen) <= 80_001


def test_the_whole_device_as_one_instance_is_smaller_than_without_mig_on_ampere_only() -> None:
    assert mig.compute_permille("A100-80", "7g.80gb") == 907
    assert mig.compute_permille("H100", "7g.80gb") == 1000


@pytest.mark.parametrize(
    ("name", "offset"),
    [("1g.10gb", 6), ("1g.10gb+me", 6), ("1g.20gb", 6), ("2g.20gb", 4), ("3g.40gb", 4), ("4g.40gb", 0), ("7g.80gb", 0)],
)
def test_the_first_instance_leaves_the_place_of_the_largest_alone(name: str, offset: int) -> None:
    assert mig.fits("H100", 0, name) == offset


def test_three_small_instances_still_leave_room_for_a_4g() -> None:
    occupied = 0
    for _ in range(3):
        offset = mig.fits("H100", occupied, "1g.10gb")
        assert offset is not None
        occupied |= mig.profile("H100", "1g.10gb").mask(offset)
    assert mig.fits("H100", occupied, "4g.40gb") == 0


def test_a_small_instance_in_the_wrong_place_rules_out_a_4g() -> None:
    occupied = mig.occupied("H100", layout((1, "1g.10gb")))
    assert mig.fits("H100", occupied, "4g.40gb") is None
    assert mig.fits("H100", occupied, "3g.40gb") == 4


@pytest.mark.parametrize(
    "instances",
    [
        layout((0, "4g.40gb"), (4, "4g.40gb")),
        layout((1, "2g.20gb")),
        layout((7, "1g.10gb")),
        layout((0, "3g.40gb"), (3, "1g.10gb")),
        layout((5, "1g.10gb+me"), (6, "1g.10gb+me")),
        layout((0, "1g.5gb")),
        layout((0, "1g.10gb"), (0, "1g.10gb")),
    ],
)
def test_what_the_hardware_cannot_hold_is_illegal(instances: mig.Layout) -> None:
    assert not mig.legal("H100", instances)


def test_an_unknown_profile_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(ValueError, match=r"model H100 has no profile '1g.5gb'; expected one of 1g.10gb, .*7g.80gb"):
        mig.profile("H100", "1g.5gb")


def test_an_unknown_model_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(ValueError, match=r"no device model 'T4'; expected one of A30, A100-40, .*"):
        mig.profiles("T4")


def test_a_layout_change_names_only_what_differs() -> None:
    current = layout((0, "3g.40gb"), (4, "2g.20gb"), (6, "1g.10gb"))
    wanted = layout((0, "2g.20gb"), (2, "2g.20gb"), (4, "2g.20gb"), (6, "1g.10gb"))
    change = mig.layout_change(current, wanted)
    assert change == LayoutChange(
        destroy=layout((0, "3g.40gb")), create=layout((0, "2g.20gb"), (2, "2g.20gb")), switch_mode=False
    )
    assert change.needed
    assert mig.repartition_ms("H100", change, RepartitionCost(destroy_ms=10, create_ms=100)) == 210


def test_an_equal_layout_needs_no_change() -> None:
    same = layout((0, "3g.40gb"))
    assert not mig.layout_change(same, same).needed
    assert not mig.layout_change(None, None).needed
    assert mig.repartition_ms("A100-80", mig.layout_change(same, same)) == 0


def test_switching_the_mode_resets_an_ampere_device_and_no_later_one() -> None:
    change = mig.layout_change(None, layout((0, "7g.80gb")))
    cost = RepartitionCost(destroy_ms=0, create_ms=1, switch_mode_ms=20, reset_ms=300)
    assert change.switch_mode
    assert mig.repartition_ms("A100-80", change, cost) == 321
    assert mig.repartition_ms("H100", change, cost) == 21


def test_an_empty_layout_is_not_the_mode_being_off() -> None:
    assert mig.layout_change(None, ()).switch_mode
    assert mig.layout_change((), None).switch_mode
    assert not mig.layout_change((), layout((0, "3g.40gb"))).switch_mode
