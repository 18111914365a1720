"""Folders that the server and its clients agree on."""

from __future__ import annotations

import os

ROOTS_DATA = "/var/lib/phalanx"


def default_data() -> str:
    """Where the data is kept if `up` is not told: of root, where tasks of other Unix users can pass."""
    if os.getuid() == 0 and not os.environ.get("XDG_STATE_HOME"):
        return ROOTS_DATA
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "phalanx")
