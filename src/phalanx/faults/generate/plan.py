"""A plan of failures: what to make by chance, as people write it: `rsc-1:scale=2,burst=0.1,lemons=4,detect=1m`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from phalanx.document.error import brief
from phalanx.document.units import duration_ms
from phalanx.faults.taxonomy.cause import Profile
from phalanx.faults.taxonomy.choose import KEYS, ProfileError, changed, named

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to make by chance. Rates of what has a `_days` in its name are: once in so many days for each node.

    `shape` is that of the Weibull times between failures of a node: 1 is without memory. `burst` is the share of
    failures that take a whole domain, at `level`. So many `lemons` fail `lemon_factor` times as often. 0 is never.
    """

    profile: Profile
    shape: float = 1.0
    detect_ms: int = 60_000
    repair_ms: int = DAY_MS
    burst: float = 0.0
    level: str = ""
    lemons: int = 0
    lemon_factor: float = 20.0
    silent_days: float = 0.0
    silent_detect_ms: int = 3_600_000
    slow_days: float = 0.0
    slow_factor: float = 0.5
    slow_ms: int = 3_600_000
    maintenance_days: float = 0.0
    maintenance_ms: int = 7_200_000
    partition_days: float = 0.0
    partition_ms: int = 600_000
    reclaim_hours: float = 0.0
    reclaim_ms: int = 3_600_000
    notice_ms: int = 120_000
    days: float = 0.0


SETTINGS = tuple(field.name for field in fields(Plan) if field.name != "profile")
WRITTEN = {name.removesuffix("_ms"): name for name in SETTINGS}
"""What people write, by the field it sets: times are written without their unit, as in `detect=1m`."""

LEAST = {"shape": 0.05, "lemon_factor": 1.0, "slow_factor": 0.01}
MOST = {"burst": 1.0, "slow_factor": 1.0, "shape": 20.0}


def plan_of(text: str) -> Plan:
    """The plan that a text describes; ProfileError names what is wrong with it."""
    name, _, rest = text.partition(":")
    ours: dict[str, Any] = {}
    theirs: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, separator, value = part.partition("=")
        if not separator:
            raise ProfileError(f"{brief(text)}: expected key=value after the colon, got {brief(part)!r}")
        if key in theirs or WRITTEN.get(key) in ours:
            raise ProfileError(f"{brief(text)}: {key} is given twice")
        if key in KEYS:
            theirs[key] = value
        elif key in WRITTEN:
            ours[WRITTEN[key]] = _value(text, key, WRITTEN[key], value)
        else:
            known = ", ".join((*KEYS, *WRITTEN))
            raise ProfileError(f"{brief(text)}: there is no setting {brief(key)!r} of failures (there is: {known})")
    return Plan(changed(named(name), theirs, text), **ours)


def _value(text: str, key: str, field: str, value: str) -> Any:
    if field == "level":
        return value
    if field.endswith("_ms"):
        time_ms = duration_ms(value)
        if time_ms is None:
            raise ProfileError(f"{brief(text)}: {key} is {brief(value)!r}: expected a time such as 90s or 2h")
        return time_ms
    return _number(text, key, field, value)


def _number(text: str, key: str, field: str, value: str) -> float | int:
    least, most = LEAST.get(field, 0.0), MOST.get(field, float("inf"))
    try:
        number = int(value) if field == "lemons" else float(value)
    except ValueError:
        number = -1
    if not (isfinite(number) and least <= number <= most):
        upper = f" and at most {most:g}" if isfinite(most) else ""
        kind = "a whole number" if field == "lemons" else "a number"
        raise ProfileError(f"{brief(text)}: {key} is {brief(value)!r}: expected {kind} of at least {least:g}{upper}")
    return number
