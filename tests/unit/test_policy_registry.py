"""Policies by name, and what their parameters say when they are wrong."""

from __future__ import annotations

import pytest

from phalanx.policy.registry import BUILTIN, policy


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
        ("fifo:skip", "expected key=value, got 'skip'"),
        ("fifo:skip=", "expected key=value, got 'skip='"),
        ("fifo:speed=1", r"policy fifo has no parameter 'speed' \(it has: skip\)"),
        ("priority:production=high", "policy priority: production=high: expected a whole number"),
    ],
)
def test_a_wrong_policy_is_named_with_what_was_expected(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy(spec)
