"""The policies by name: those of phalanx, and those that were registered from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from phalanx.policy.about import About
from phalanx.policy.antman import antman
from phalanx.policy.backfill import backfill
from phalanx.policy.drf import drf
from phalanx.policy.edf import edf
from phalanx.policy.fair import fair
from phalanx.policy.fair_tree import fair_tree
from phalanx.policy.fifo import fifo
from phalanx.policy.gandiva import gandiva
from phalanx.policy.gavel import gavel
from phalanx.policy.guarded import PolicyError, guarded, where
from phalanx.policy.kai import kai
from phalanx.policy.las import las
from phalanx.policy.multifactor import multifactor
from phalanx.policy.optimus import optimus
from phalanx.policy.parameters import Defaults, Parameter, ParameterError, Parameters
from phalanx.policy.phalanx import phalanx
from phalanx.policy.policy import Policy
from phalanx.policy.pollux import pollux
from phalanx.policy.priority import priority
from phalanx.policy.singularity import singularity
from phalanx.policy.sjf import sjf
from phalanx.policy.srtf import srtf
from phalanx.policy.themis import themis
from phalanx.policy.tiresias_gittins import tiresias_gittins
from phalanx.policy.tiresias_las import tiresias_las
from phalanx.policy.volcano import volcano
from phalanx.policy.yarn_cs import yarn_cs

Factory = Callable[[Parameters], Policy]

BUILTIN: Mapping[str, Factory] = {
    "antman": antman,
    "backfill": backfill,
    "drf": drf,
    "edf": edf,
    "fair": fair,
    "fair-tree": fair_tree,
    "fifo": fifo,
    "gandiva": gandiva,
    "gavel": gavel,
    "kai": kai,
    "las": las,
    "multifactor": multifactor,
    "optimus": optimus,
    "phalanx": phalanx,
    "pollux": pollux,
    "priority": priority,
    "singularity": singularity,
    "sjf": sjf,
    "srtf": srtf,
    "themis": themis,
    "tiresias-gittins": tiresias_gittins,
    "tiresias-las": tiresias_las,
    "volcano": volcano,
    "yarn-cs": yarn_cs,
}

_REGISTERED: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Makes a policy from outside known by a name. What it returns is checked, call by call.

    A name that is registered again means the new one; the names of the built-in policies are taken.
    """
    if name in BUILTIN:
        raise ValueError(f"policy {name!r} is built in: register yours under another name")
    if split(name) != (name, ""):
        raise ValueError(f"policy {name!r}: expected a name without ':', or FILE.py:NAME")
    _REGISTERED[name] = factory


def known() -> tuple[str, ...]:
    """The names of all policies, the built-in ones first."""
    return (*BUILTIN, *_REGISTERED)


def split(spec: str) -> tuple[str, str]:
    """The name of a policy and its parameters: `NAME[:key=value,…]` or `FILE.py:NAME[:key=value,…]`."""
    name, _, rest = spec.partition(":")
    if is_file(spec):
        attribute, _, rest = rest.partition(":")
        name = f"{name}:{attribute}"
    return name, rest


def is_file(spec: str) -> bool:
    """Whether a spec names a policy in a file."""
    return spec.partition(":")[0].endswith(".py")


def policy(spec: str) -> Policy:
    """The policy written as NAME or NAME:key=value,…"""
    name, rest = split(spec)
    if not rest and spec != name:
        raise ValueError(f"policy {spec!r}: expected key=value after the last ':', got nothing")
    parameters = Parameters(name, _pairs(spec, rest))
    made = _make(name, parameters)
    parameters.check_all_read()
    return made


def described(name: str) -> tuple[About, tuple[Parameter, ...]]:
    """What a policy says of itself, and the parameters it takes."""
    parameters = Defaults(name)
    return _make(name, parameters).about, parameters.read


def _make(name: str, parameters: Parameters) -> Policy:
    if name in BUILTIN:
        return BUILTIN[name](parameters)
    if name in _REGISTERED:
        return _from_outside(name, parameters)
    raise ValueError(_unknown(name))


def _from_outside(name: str, parameters: Parameters) -> Policy:
    """A registered policy, guarded, under the name it is registered by, so that its spec is what was written."""
    made: object
    try:
        made = _REGISTERED[name](parameters)
    except (ParameterError, PolicyError):
        raise
    except (Exception, SystemExit) as error:
        told = f"{type(error).__name__}: {error}{where(error.__traceback__)}"
        raise PolicyError(f"policy {name}: making it raised {told}") from error
    if not isinstance(made, Policy):
        raise PolicyError(f"policy {name}: making it returned {made!r:.80}: expected a Policy")
    return guarded(replace(made, name=name, parameters=parameters.given))


def _pairs(spec: str, rest: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise ValueError(f"policy {spec!r}: expected key=value, got {pair!r}")
        if key in given:
            raise ValueError(f"policy {spec!r}: {key} is given twice, as {given[key]!r} and as {value!r}")
        given[key] = value
    return given


def _unknown(name: str) -> str:
    if is_file(name):
        return f"policy {name!r}: its file has not been loaded; hand the policy to resolve_policy first"
    return f"unknown policy {name!r} (known: {', '.join(known())}; or yours as ./FILE.py:NAME)"
