"""The hardware catalogue: complete, sourced, consistent, and found by the names people use."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from phalanx.cluster.catalogue import (
    Accelerator,
    Figure,
    InstanceType,
    UnknownAccelerator,
    accelerator,
    accelerators,
    instances,
)
from phalanx.cluster.mig import GEOMETRIES

REQUIRED = [
    "K80",
    "P100",
    "V100",
    "T4",
    "A10",
    "A30",
    "A100-40",
    "A100-80",
    "L4",
    "L40S",
    "H100",
    "H200",
    "B200",
    "GB200",
    "MI250",
    "MI300X",
    "TPU-v3",
    "TPU-v4",
    "TPU-v5e",
    "TPU-v5p",
    "TPU-v6e",
    "Trainium2",
    "Gaudi3",
]

REQUIRED_FAMILIES = {
    "AWS": ["p2", "p3", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "g4dn", "g5", "g6", "g6e", "trn2"],
    "GCP": ["a2-highgpu", "a2-ultragpu", "a3-highgpu", "a3-megagpu", "a3-ultragpu", "a4-highgpu", "g2", "ct5p", "ct6e"],
    "Azure": ["Standard_NC24ads_A100_v4", "Standard_ND96isr_H100_v5", "Standard_ND96isr_MI300X_v5"],
    "Lambda": ["gpu"],
    "CoreWeave": ["gd"],
}

EVERY_NAME = [(name, each) for each in accelerators() for name in (each.name, *each.aliases)]
UNITS = {
    "memory_gb": "GB",
    "peak_bf16_tflops": "TFLOP/s",
    "hbm_gb_s": "GB/s",
    "in_node_gb_s": "GB/s",
    "scale_out_gb_s": "GB/s",
    "power_w": "W",
}


def is_sound(figure: Figure) -> bool:
    dated = re.fullmatch(r"20\d\d(-[01]\d(-[0-3]\d)?)?", figure.date)
    return math.isfinite(figure.value) and figure.value > 0 and len(figure.source) > 5 and dated is not None


def prices(each: InstanceType) -> list[Figure]:
    return [figure for figure in (each.on_demand_usd_h, each.spot_usd_h) if figure is not None]


def folded(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.casefold())


@pytest.mark.parametrize("name", REQUIRED)
def test_every_accelerator_that_people_rent_is_there_under_its_short_name(name: str) -> None:
    assert accelerator(name).name == name


@pytest.mark.parametrize("each", accelerators(), ids=lambda each: each.name)
def test_every_figure_of_an_accelerator_is_positive_and_has_a_source_and_a_date(each: Accelerator) -> None:
    assert [key for key, figure in each.figures if not is_sound(figure)] == []
    assert {key: figure.unit for key, figure in each.figures} == UNITS


@pytest.mark.parametrize("each", instances(), ids=lambda each: each.name)
def test_every_price_is_positive_and_has_a_source_and_a_date(each: InstanceType) -> None:
    assert all(is_sound(figure) and figure.unit == "USD/h" for figure in prices(each))
    assert is_sound(Figure(1, "", each.shape_source, each.shape_date))


@pytest.mark.parametrize("each", instances(), ids=lambda each: each.name)
def test_spot_is_never_dearer_than_on_demand(each: InstanceType) -> None:
    assert min(figure.value for figure in prices(each)) == prices(each)[-1].value


@pytest.mark.parametrize("each", instances(), ids=lambda each: each.name)
def test_an_instance_type_holds_a_known_accelerator_by_its_canonical_name(each: InstanceType) -> None:
    assert accelerator(each.accelerator).name == each.accelerator
    assert min(each.count, each.cpus, each.memory_gb, each.network_gbit_s) > 0


@pytest.mark.parametrize("cloud", REQUIRED_FAMILIES)
def test_the_common_families_of_each_cloud_are_there(cloud: str) -> None:
    names = [each.name for each in instances() if each.cloud == cloud]
    missing = [
        family
        for family in REQUIRED_FAMILIES[cloud]
        if not any(re.match(rf"{family}([._-]|$)", name) for name in names)
    ]
    assert missing == []


def test_no_name_or_alias_is_used_twice() -> None:
    keys = [folded(name) for name, _ in EVERY_NAME]
    assert sorted(keys) == sorted(set(keys))
    names = [each.name for each in instances()]
    assert sorted(names) == sorted(set(names))


def test_a_device_without_bf16_says_which_format_its_peak_is_in() -> None:
    noted = [each.name for each in accelerators() if each.peak_note]
    assert noted == ["K80", "P100", "V100", "V100-32", "T4"]


def test_mig_profiles_belong_to_the_devices_that_have_them_and_fit_in_their_memory() -> None:
    with_mig = [each for each in accelerators() if each.mig]
    assert [each.name for each in with_mig] == ["A100-40", "A100-80", "A30", "H100", "H200", "B200", "GB200"]
    for each in with_mig:
        sizes = [re.fullmatch(r"([1-7])g\.(\d+)gb(\+me)?", profile) for profile in each.mig]
        assert all(size and int(size[2]) <= each.memory_gb.value for size in sizes), each.name
        assert each.mig[-1].partition(".")[2] == f"{each.memory_gb.value:g}gb"
        assert list(each.mig) == [profile.name for profile in GEOMETRIES[each.name].profiles]
    assert len(with_mig) == len(GEOMETRIES)


def test_memory_is_faster_than_the_node_and_the_node_at_least_as_fast_as_the_network() -> None:
    for each in accelerators():
        assert each.hbm_gb_s.value > each.in_node_gb_s.value >= each.scale_out_gb_s.value, each.name


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("A100", "A100-80"),
        ("A100-40GB", "A100-40"),
        ("a100-sxm4-40gb", "A100-40"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("tesla_v100-sxm2-32gb", "V100-32"),
        ("tpu v5e", "TPU-v5e"),
        ("gaudi3", "Gaudi3"),
    ],
)
def test_an_accelerator_is_found_by_the_names_that_people_and_drivers_use(asked: str, found: str) -> None:
    assert accelerator(asked).name == found


@given(st.sampled_from(EVERY_NAME), st.sampled_from([str.upper, str.lower, str.title, str.swapcase]))
def test_case_and_separators_make_no_difference(entry: tuple[str, Accelerator], recase: Callable[[str], str]) -> None:
    name, each = entry
    assert accelerator(recase(name)) is each
    assert accelerator(f" {recase(name).replace('-', '_').replace(' ', '--')} ") is each


def test_an_unknown_name_is_refused_with_the_names_that_look_like_it() -> None:
    with pytest.raises(UnknownAccelerator, match="no accelerator 'H10O' in the catalogue: did you mean H100"):
        accelerator("H10O")
    with pytest.raises(ValueError, match="`phalanx hardware` lists them all"):
        accelerator("quantum annealer")


@given(st.text())
def test_text_that_names_nothing_is_refused_with_real_names(name: str) -> None:
    assume(folded(name).strip("-") not in [folded(known) for known, _ in EVERY_NAME])
    with pytest.raises(UnknownAccelerator) as refused:
        accelerator(name)
    assert refused.value.name == name
    assert all(accelerator(close).name == close for close in refused.value.close)


def test_lists_are_the_same_each_time() -> None:
    assert accelerators() is accelerators()
    assert instances() is instances()
