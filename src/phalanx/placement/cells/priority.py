"""Priorities: of leaves, and of those who have them."""

from __future__ import annotations

FREE = -2
"""The priority of a leaf that nobody has."""

OPPORTUNISTIC = -1
"""The priority of those who run on what others own and do not use."""

GUARANTEED_MIN, GUARANTEED_MAX = 0, 1000
