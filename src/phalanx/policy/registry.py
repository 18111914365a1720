"""The policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phalanx.policy.fifo import fifo
from phalanx.policy.las import las
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Policy
from phalanx.policy.priority import priority
from phalanx.policy.sjf import sjf
from phalanx.policy.srtf import srtf
from phalanx.policy.tiresias import tiresias_gittins, tiresias_las

BUILTIN: Mapping[str, Callable[[Parameters], Policy]] = {
    "fifo": fifo,
    "las": las,
    "priority": priority,
    "sjf": sjf,
    "srtf": srtf,
    "tiresias-gittins": tiresias_gittins,
    "tiresias-las": tiresias_las,
}


def policy(spec: str) -> Policy:
    """The policy written as NAME or NAME:key=value,…"""
    name, _, rest = spec.partition(":")
    if name not in BUILTIN:
        raise ValueError(f"unknown policy {name!r} (known: {', '.join(BUILTIN)})")
    given: dict[str, str] = {}
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise ValueError(f"policy {spec!r}: expected key=value, got {pair!r}")
        given[key] = value
    parameters = Parameters(name, given)
    made = BUILTIN[name](parameters)
    parameters.check_all_read()
    return made
