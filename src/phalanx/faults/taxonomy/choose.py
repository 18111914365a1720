"""Choosing a profile by what people write: `rsc-1`, `llama-3:scale=0.5`, `byterobust:per_1000_node_days=3`."""

from __future__ import annotations

import difflib
from math import isfinite

from phalanx.document.error import brief
from phalanx.errors import PhalanxError
from phalanx.faults.taxonomy.cause import Profile
from phalanx.faults.taxonomy.published import PROFILES

KEYS = ("scale", "per_1000_node_days")


class ProfileError(PhalanxError):
    """A profile that there is not, or a figure of it that is none."""


def profile_of(text: str) -> Profile:
    """The profile that a text names."""
    name, _, rest = text.partition(":")
    given = dict(_pair(text, part) for part in rest.split(",") if part)
    return changed(named(name), given, text)


def named(name: str) -> Profile:
    """The published profile of a name."""
    found = PROFILES.get(name)
    if found is None:
        near = difflib.get_close_matches(name, PROFILES, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise ProfileError(f"there is no profile of failures {brief(name)!r}{meant} (there is: {', '.join(PROFILES)})")
    return found


def changed(profile: Profile, given: dict[str, str], text: str) -> Profile:
    """A profile with what was given beside its name."""
    for key in given:
        if key not in KEYS:
            raise ProfileError(f"{brief(text)}: there is no setting {brief(key)!r} (there is: {', '.join(KEYS)})")
    if "per_1000_node_days" in given:
        profile = profile.at(_positive(text, "per_1000_node_days", given))
    if profile.mix:
        raise ProfileError(
            f"{profile.name} gives shares and no rate: write {profile.name}:per_1000_node_days=2.3 with a rate of yours"
        )
    return profile.times(_positive(text, "scale", given)) if "scale" in given else profile


def _pair(text: str, part: str) -> tuple[str, str]:
    key, separator, value = part.partition("=")
    if not separator:
        raise ProfileError(f"{brief(text)}: expected key=value after the colon, got {brief(part)!r}")
    return key.strip(), value.strip()


def _positive(text: str, key: str, given: dict[str, str]) -> float:
    try:
        value = float(given[key])
    except ValueError:
        value = -1.0
    if not (isfinite(value) and value > 0):
        raise ProfileError(f"{brief(text)}: {key} is {brief(given[key])!r}: expected a number above 0")
    return value
