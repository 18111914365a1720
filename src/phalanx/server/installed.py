"""Policies that installed packages offer: a server knows them by name from its start on."""

from __future__ import annotations

import logging
from importlib.metadata import entry_points

from phalanx.policy.registry import known
from phalanx.simulate.plugins import ENTRY_POINTS, load_entry_point


def load_installed_policies(log: logging.Logger) -> None:
    """Loads all of them, in whichever process decides. One that cannot be had is told of, and missed if it is named."""
    for name in dict.fromkeys(entry.name for entry in entry_points(group=ENTRY_POINTS)):
        if name in known():
            log.warning(f"the policy {name} of an installed package is not loaded: there is one of this name")
            continue
        try:
            load_entry_point(name)
        except ValueError as error:
            log.warning(str(error))
