"""Dependencies and sizes as options say them."""

from __future__ import annotations

from typing import Any

import click
import pytest

from phalanx.cli.dependencies import dependencies, replicas
from phalanx.cli.job_wish import NODE_NAME
from phalanx.placement import fit

NONE: dict[str, Any] = {
    "after": (),
    "after_any": (),
    "after_failure": (),
    "after_start": (),
    "dependency": (),
    "keep_unmet": False,
}


def test_each_option_waits_for_its_outcome() -> None:
    given = NONE | {"after": ("1",), "after_any": ("2", "3"), "after_failure": ("4",), "after_start": ("5",)}
    assert dependencies(given) == [
        "1",
        {"job": "2", "on": "end"},
        {"job": "3", "on": "end"},
        {"job": "4", "on": "failure"},
        {"job": "5", "on": "start"},
    ]


def test_dependencies_of_sbatch_mean_the_same_and_can_be_kept_where_they_are_not_met() -> None:
    given = NONE | {"dependency": ("afterok:12:13,afterany:14", "afternotok:15", "after:16")}
    assert dependencies(given | {"keep_unmet": True}) == [
        {"job": job, "on": on, "otherwise": "keep"}
        for job, on in (("12", "success"), ("13", "success"), ("14", "end"), ("15", "failure"), ("16", "start"))
    ]


@pytest.mark.parametrize("text", ["afterok", "afterok:", "afterok:1::2", "singleton", "after:1,", "12"])
def test_what_sbatch_would_not_take_either_is_refused_with_what_it_would(text: str) -> None:
    with pytest.raises(click.UsageError, match=f"--dependency {text}: expected some of afterok:ID, afterany:ID"):
        dependencies(NONE | {"dependency": (text,)})


def test_nothing_is_kept_without_a_dependency() -> None:
    with pytest.raises(click.UsageError, match="--keep-unmet is about dependencies"):
        dependencies(NONE | {"keep_unmet": True})


def test_tasks_are_a_number_or_a_range() -> None:
    assert (replicas("4"), replicas("2:8"), replicas("3:3")) == (4, {"min": 2, "max": 8}, {"min": 3, "max": 3})


@pytest.mark.parametrize("text", ["0", "-1", "8:2", "2:", ":8", "two", "1:2:3", "9999999999", ""])
def test_a_number_of_tasks_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="expected a number of at least 1, or MIN:MAX"):
        replicas(text)


def test_the_label_of_a_nodes_name_is_that_of_the_placement() -> None:
    assert NODE_NAME == fit.NODE_NAME
