"""Arrays: indices as people write them, and the members they stand for."""

from __future__ import annotations

import pytest

from phalanx.workload.array import ArrayError, members, parse_indices
from phalanx.workload.gang import Gang, Role
from phalanx.workload.job import Array, Job


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("0-3", Array((0, 1, 2, 3))),
        ("0-3%2", Array((0, 1, 2, 3), 2)),
        ("7", Array((7,))),
        ("5-6,1,3", Array((1, 3, 5, 6))),
        ("0-100:50", Array((0, 50, 100))),
        (" 1, 2 ", Array((1, 2))),
    ],
)
def test_indices_are_read(text: str, array: Array) -> None:
    assert parse_indices(text) == array


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected indices such as 0-31"),
        ("a", "expected indices such as 0-31"),
        ("-1", "expected indices such as 0-31"),
        ("1,,2", "expected indices such as 0-31"),
        ("1:2", "expected indices such as 0-31"),
        ("3-1", "expected a range that goes up"),
        ("1-3:0", "expected a range that goes up"),
        ("1-3,2", "the index 2 is given twice"),
        ("1-3%0", "expected a whole number from 1 to 999999999 after '%'"),
        ("1-3%", "expected a whole number from 1 to 999999999 after '%'"),
        ("0-999999999", "expected at most 10000 members"),
        ("0-9999,10000", "expected at most 10000 members"),
        ("1," * 40_000, "expected at most 65536 characters"),
    ],
)
def test_what_names_no_members_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ArrayError, match=expected):
        parse_indices(text)


def test_members_have_ids_of_their_own_and_know_their_array() -> None:
    job = Job("4821", Gang((Role(),)), name="sweep", array=Array((0, 7), 4))
    first, second = members(job)
    assert (first.id, second.id) == ("4821.0", "4821.7")
    assert first.array_of == second.array_of == "4821"
    assert second.array == Array((7,), 4)
    assert second.name == "sweep"


def test_a_job_that_is_no_array_is_its_own_only_member() -> None:
    job = Job("1", Gang((Role(),)))
    assert members(job) == (job,)


def test_a_member_is_its_own_only_member() -> None:
    member = members(Job("1", Gang((Role(),)), array=Array((3,))))[0]
    assert members(member) == (member,)
