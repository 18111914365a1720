"""Priorities: of leaves, and of the groups that have them."""

from __future__ import annotations

FREE = -2
"""The priority of a free leaf."""

OPPORTUNISTIC = -1
"""The priority of groups that run on what other clusters own and do not use."""

GUARANTEED_MIN, GUARANTEED_MAX = 0, 1000
