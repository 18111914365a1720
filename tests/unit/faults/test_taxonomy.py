"""What breaks: published counts come out, rates scale to any fleet, and codes have causes."""

from __future__ import annotations

import pytest

from phalanx.faults.taxonomy.cause import Recovery, shares
from phalanx.faults.taxonomy.choose import ProfileError, profile_of
from phalanx.faults.taxonomy.fleet import Fleet, FleetError, Rate, Unit
from phalanx.faults.taxonomy.published import BYTEROBUST_SHARES, LLAMA_3, LLAMA_COUNTS
from phalanx.faults.taxonomy.xid import UnknownXidError, xid, xid_of_line


def test_the_counts_of_llama_3_sum_to_what_its_text_says() -> None:
    assert sum(count for *_, count in LLAMA_COUNTS) == 419
    assert LLAMA_3.per_hour(Fleet(16_384)) * 54 * 24 == pytest.approx(419)


def test_a_faulty_gpu_is_35_3_percent_and_not_the_30_1_that_is_printed() -> None:
    cause, share = shares(LLAMA_3, Fleet(16_384))[0]
    assert cause.name == "faulty GPU"
    assert share == pytest.approx(148 / 419)


def test_the_shares_of_byterobust_sum_to_100() -> None:
    assert sum(share for *_, share in BYTEROBUST_SHARES) == pytest.approx(100)


@pytest.mark.parametrize(("gpus", "hours"), [(16_384, 1.803), (131_072, 0.2254), (1_024, 28.85)])
def test_time_to_failure_goes_with_one_over_the_size(gpus: int, hours: float) -> None:
    assert profile_of("rsc-1").mttf_hours(Fleet(gpus)) == pytest.approx(hours, rel=1e-3)


def test_the_course_table_comes_out_at_its_own_size_and_scales_by_gpu_node_and_link() -> None:
    profile = profile_of("course-10k")
    every_hours = {cause.name: 1 / cause.rate.of(Fleet(10_000)) for cause in profile.causes}
    assert every_hours["GPU memory error"] == pytest.approx(12)
    assert every_hours["NIC failure"] == pytest.approx(24)
    assert every_hours["node crash"] == pytest.approx(48)
    single_link = Fleet(10_000, links_per_node=1)
    assert 1 / profile.causes[1].rate.of(single_link) == pytest.approx(24 * 8)


def test_a_rate_is_of_its_unit() -> None:
    fleet = Fleet(20, gpus_per_node=8, links_per_node=2)
    assert [Rate(1.0, unit).of(fleet) for unit in (Unit.GPU, Unit.NODE, Unit.LINK)] == [20, 3, 6]


def test_ways_of_recovery_add_up_to_the_whole_rate() -> None:
    fleet = Fleet(16_384)
    by_recovery = LLAMA_3.per_hour_by_recovery(fleet)
    assert list(by_recovery) == list(Recovery)
    assert sum(by_recovery.values()) == pytest.approx(LLAMA_3.per_hour(fleet))


def test_a_mix_takes_the_rate_that_it_is_given() -> None:
    profile = profile_of("byterobust:per_1000_node_days=2.3")
    assert profile.per_hour(Fleet(8_000)) * 24 == pytest.approx(2.3)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rsc1", "did you mean rsc-1"),
        ("byterobust", "byterobust:per_1000_node_days=2.3"),
        ("rsc-1:scale=0", "expected a number above 0"),
        ("rsc-1:scale=nan", "expected a number above 0"),
        ("rsc-1:speed=2", "there is no setting 'speed'"),
        ("rsc-1:scale", "expected key=value"),
    ],
)
def test_a_profile_that_there_is_not_is_an_error_that_helps(text: str, told: str) -> None:
    with pytest.raises(ProfileError, match=told):
        profile_of(text)


def test_a_fleet_has_at_least_one_gpu() -> None:
    with pytest.raises(FleetError, match="at least 1 GPU"):
        Fleet(0)


def test_a_gpu_off_the_bus_blames_its_node_and_a_page_fault_its_program() -> None:
    assert xid(79).recovery is Recovery.NODE
    assert xid(79).blames_node
    assert not xid(31).blames_node


def test_an_unknown_xid_blames_no_node_and_says_so() -> None:
    with pytest.raises(UnknownXidError, match="blames no node"):
        xid(9999)


def test_a_code_is_read_from_the_kernel_log() -> None:
    line = "[52612.4] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus."
    assert xid_of_line(line) == ("0000:3b:00", 79)
    assert xid_of_line("eth0: link is up") is None
