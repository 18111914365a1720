"""Policies from outside: in a file of a user's own, or from an installed package; and files that parameters name.

The deciding core reads no files. What a policy is given is spelled out here, so that a journal says it all.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from math import isfinite
from pathlib import Path
from types import ModuleType

from phalanx.document import Field
from phalanx.policy.guarded import PolicyError, where
from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Policy
from phalanx.policy.registry import Factory, is_file, known, policy, register, split

ENTRY_POINTS = "phalanx.policies"
"""The group under which installed packages offer policies: `name = "package.module:policy"`."""

SPELLED_OUT = re.compile(r"[0-9]+(/[0-9]+)*")

EXPECTED = "a Policy, or a function of no argument or of its Parameters that returns one"


def resolve_policy(spec: str) -> str:
    """The spec as the engine takes it: its policy is loaded, files it names are read, its parameters hold.

    What is wrong raises PolicyError, which names the file, the attribute or the parameter.
    """
    name, _ = split(spec)
    if is_file(spec):
        load_policy_file(spec)
    elif name not in known():
        load_entry_point(name)
    spec = expand_policy(spec)
    try:
        policy(spec)
    except PolicyError:
        raise
    except ValueError as error:
        raise PolicyError(str(error)) from error
    return spec


def read_policy(field: Field) -> str:
    """The policy that a file names, as it is written there; one that cannot be had is an error at that place."""
    spec = field.title()
    try:
        resolve_policy(spec)
    except PolicyError as error:
        raise field.error(str(error)) from error
    return spec


def load_policy_file(spec: str) -> str:
    """Loads `FILE.py:NAME[:…]` and registers it under `FILE.py:NAME`, which is returned."""
    name, _ = split(spec)
    file, _, attribute = name.partition(":")
    if not attribute:
        raise PolicyError(f"policy {spec!r}: expected FILE.py:NAME, where NAME is {EXPECTED}")
    module = _import(file)
    if not hasattr(module, attribute):
        offered = ", ".join(_offered(module)) or "nothing that could be one"
        raise PolicyError(f"{file} has no {attribute!r}: expected {EXPECTED} (it has: {offered})")
    register(name, _factory(getattr(module, attribute), f"{attribute} in {file}"))
    return name


def load_entry_point(name: str) -> None:
    """Loads and registers the policy of this name that an installed package offers, if any does."""
    for entry in entry_points(group=ENTRY_POINTS, name=name):
        try:
            offered = entry.load()
        except (Exception, SystemExit) as error:
            raise PolicyError(f"policy {name}: {entry.value} cannot be loaded: {_told(error)}") from error
        register(name, _factory(offered, f"{entry.value}, the entry point {name}"))
        return


def load_entry_points() -> None:
    """Loads and registers every policy that installed packages offer."""
    for entry in entry_points(group=ENTRY_POINTS):
        load_entry_point(entry.name)


def expand_policy(spec: str) -> str:
    """The spec with `samples=FILE` of tiresias-gittins spelled out as numbers, sorted."""
    name, rest = split(spec)
    if name != "tiresias-gittins":
        return spec
    pairs = [_expanded(pair) for pair in rest.split(",")]
    return f"{name}:{','.join(pairs)}" if rest else name


def read_samples(file: str) -> tuple[int, ...]:
    """Total GPU-seconds of past jobs: one number a line, rounded, sorted. The first line may be a header."""
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PolicyError(f"policy tiresias-gittins: samples={file}: {told}") from error
    samples: list[int] = []
    for number, line in enumerate(lines, start=1):
        sample = _number(line)
        if sample is not None:
            samples.append(sample)
        elif line.strip() and number > 1:
            raise PolicyError(f"{file}, line {number}: {line.strip()[:40]!r}: expected one number that is not negative")
    if not samples:
        raise PolicyError(f"{file}: expected total GPU-seconds of past jobs, one a line; found none")
    return tuple(sorted(samples))


def _expanded(pair: str) -> str:
    key, _, value = pair.partition("=")
    if key != "samples" or not value or SPELLED_OUT.fullmatch(value):
        return pair
    return f"samples={'/'.join(map(str, read_samples(value)))}"


def _number(line: str) -> int | None:
    try:
        value = float(line)
    except ValueError:
        return None
    return round(value) if isfinite(value) and value >= 0 else None


def _import(file: str) -> ModuleType:
    path = Path(file)
    if not path.is_file():
        raise PolicyError(f"{file}: there is no such file (from {Path.cwd()})")
    # The whole path is its name, so that two files called alike do not take each other's place. It is compiled here,
    # since a compiled file that is kept can be older than the text without notice.
    module = ModuleType(f"phalanx_policy_{path.resolve().as_posix()}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise PolicyError(f"{file} cannot be loaded: {_told(error)}") from error
    return module


def _told(error: BaseException) -> str:
    place = "" if isinstance(error, SyntaxError) else where(error.__traceback__)
    return f"{type(error).__name__}: {error}{place}"


def _offered(module: ModuleType) -> list[str]:
    """What of a module could be meant: its policies, and functions defined in it."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, Policy) or (inspect.isfunction(value) and value.__module__ == module.__name__)
    ]


def _factory(offered: object, what: str) -> Factory:
    if isinstance(offered, Policy):
        return lambda parameters: offered
    if not callable(offered):
        raise PolicyError(f"{what} is {offered!r:.80}: expected {EXPECTED}")
    takes = _argument_count(offered, what)
    make: Callable[..., Policy] = offered

    def factory(parameters: Parameters) -> Policy:
        return make(parameters) if takes else make()

    return factory


def _argument_count(offered: Callable[..., object], what: str) -> int:
    """How many arguments a function is to be called with: none, or its Parameters."""
    try:
        parameters = inspect.signature(offered).parameters.values()
    except (TypeError, ValueError):
        raise PolicyError(f"{what} is {offered!r:.80}: expected {EXPECTED}") from None
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_POSITIONAL]
    needed = [each for each in needed if each.kind is not each.VAR_KEYWORD]
    if len(needed) > 1 or (needed and needed[0] not in positional):
        raise PolicyError(f"{what} needs {len(needed)} arguments: expected {EXPECTED}")
    return min(len(positional), 1)
