"""The reference page names everything that users may import."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest

from phalanx.cli.checkpoint import checkpoint
from phalanx.train import checkpoint as in_the_job
from phalanx.train.checkpoint import store
from phalanx.train.checkpoint.checkpointer import Checkpointer
from phalanx.train.checkpoint.tiers import Device, Host, Local, Peer, Shared

pytestmark = pytest.mark.needs("torch")

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "checkpoint.md").read_text("utf-8")

# Types that only say what is handed in or out; what they hold is told where they occur.
IN_PASSING = {"Broken", "Difference", "Intact", "Loaded", "Medium", "Mismatch", "Root", "Step", "Written"}


def test_every_public_name_is_on_the_page() -> None:
    names = {*in_the_job.__all__, *store.__all__} - IN_PASSING
    assert [name for name in sorted(names) if f"`{name}" not in PAGE] == []


def test_every_argument_and_member_of_the_checkpointer_is_on_the_page() -> None:
    arguments = [name for name in inspect.signature(Checkpointer).parameters if name != "agreement"]
    members = [name for name in vars(Checkpointer) if not name.startswith("_")]
    assert [name for name in (*arguments, *members) if f"`{name}" not in PAGE] == []


@pytest.mark.parametrize("tier", [Device, Host, Peer, Local, Shared])
def test_every_field_of_a_tier_is_on_its_line(tier: type) -> None:
    line = next(each for each in PAGE.splitlines() if each.startswith(f"| `{tier.__name__}`"))
    assert [each.name for each in dataclasses.fields(tier) if f"`{each.name}`" not in line] == []


def test_every_verb_and_option_is_on_the_page() -> None:
    for name, command in checkpoint.commands.items():
        line = next(each for each in PAGE.splitlines() if each.startswith(f"| `{name} "))
        options = [each.opts[-1] for each in command.params if each.opts[-1].startswith("--")]
        assert [option for option in options if option not in line and option != "--output"] == []
