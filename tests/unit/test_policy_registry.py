"""Policies by name, and what their parameters say when they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import World, a_job
from phalanx.cluster.cluster import flat
from phalanx.policy.policy import no_measures
from phalanx.policy.registry import BUILTIN, policy

MEASURES = (Path(__file__).parents[2] / "docs" / "reference" / "why.md").read_text().partition("## Measures")[2]


@pytest.mark.parametrize("spec", ["fifo", "fifo:skip=true", "priority", "priority:production=100,monitoring=250"])
def test_a_policy_is_written_as_it_is_read(spec: str) -> None:
    assert policy(spec).spec == spec


def test_every_policy_has_the_name_it_is_known_by() -> None:
    needed = {"tiresias-gittins": ":samples=1/2"}
    assert [policy(name + needed.get(name, "")).name for name in BUILTIN] == list(BUILTIN)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lottery", r"unknown policy 'lottery' \(known: .*fifo"),
        ("", "unknown policy ''"),
        ("fifo:skip=maybe", "policy fifo: skip=maybe: expected true or false"),
        ("fifo:", "policy 'fifo:': expected key=value after the last ':', got nothing"),
        ("fifo:skip", "expected key=value, got 'skip'"),
        ("fifo:skip=", "expected key=value, got 'skip='"),
        (
            "fifo:skip=true,skip=false",
            "policy 'fifo:skip=true,skip=false': skip is given twice, as 'true' and as 'false'",
        ),
        ("fifo:speed=1", r"policy fifo has no parameter 'speed' \(it has: skip\)"),
        ("priority:production=high", "policy priority: production=high: expected a whole number"),
    ],
)
def test_a_wrong_policy_is_named_with_what_was_expected(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy(spec)


SPECS = [name if name != "tiresias-gittins" else f"{name}:samples=1/2/3" for name in BUILTIN]


@pytest.mark.parametrize("spec", [*SPECS, "volcano:queues=hdrf", "fair:half_life=1d"])
def test_a_policy_that_orders_queues_shows_by_what_and_the_page_says_what_that_is(spec: str) -> None:
    named, world = policy(spec), World(flat(2, 8), spec)
    world.run(a_job("a", 8, queue="x"), a_job("b", 4, queue="y"))
    for measure in named.measures("x", world.state.usage("x"), world.state):
        assert f"`{measure.name}`" in MEASURES
    assert not named.orders_queues or named.measures is not no_measures
