"""The `sweep` of a job file."""

from __future__ import annotations

import re

from phalanx.document import Field, Fields
from phalanx.document.field import nearest
from phalanx.workload.array import MEMBERS_MAX, placeholders
from phalanx.workload.halving import Halving
from phalanx.workload.job import Array
from phalanx.workload.sweep import Choice, Parameter, Range, Sweep, drawn, grid

SWEEP_KEYS = ("parameters", "method", "samples", "seed", "at_once", "halving")
RANGE_KEYS = ("min", "max", "scale")
HALVING_KEYS = ("metric", "goal", "first", "factor")
METHODS = ("grid", "random")
SCALES = ("linear", "log")
GOALS = ("min", "max")

PARAMETERS_MAX = 64
VALUES_MAX = 1000
NUMBER_MAX = 10**15
SEED_MAX = (1 << 63) - 1
STEPS_MAX = 10**12
FACTOR_MAX = 1000

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def read_sweep(field: Field) -> tuple[Sweep, Array]:
    """The points, and the array whose members they are."""
    fields = field.mapping(SWEEP_KEYS)
    parameters = fields.need("parameters", _read_parameters)
    if fields.get("method", lambda method: method.choice(METHODS), METHODS[0]) == "random":
        samples = fields.need("samples", lambda samples: samples.integer(1, MEMBERS_MAX))
        points = drawn(parameters, samples, fields.get("seed", lambda seed: seed.integer(0, SEED_MAX), 0))
    else:
        fields.refuse(("samples", "seed"), "a grid has every combination; for a few of them write method: random")
        points = grid(_choices(fields["parameters"], parameters))
    at_once = fields.get("at_once", lambda count: count.integer(1, MEMBERS_MAX), 0)
    halving = fields.get("halving", _read_halving, None)
    return Sweep(points, halving), Array(tuple(range(len(points))), at_once)


def check_placeholders(sweep: Sweep, command: Field, arguments: tuple[str, ...]) -> None:
    """Raises a DocumentError if a command has a place for a parameter that there is not."""
    known = tuple(name for name, _ in sweep.points[0])
    places = command.items(1, len(arguments)) if command.is_list else (command,) * len(arguments)
    for place, argument in zip(places, arguments, strict=True):
        for name in placeholders(argument):
            if name not in known:
                raise place.error(
                    f"'{{{name}}}' is no parameter of the sweep (the text itself is written '{{{{{name}}}}}'), "
                    + nearest(name, known)
                )


def _read_parameters(field: Field) -> tuple[Parameter, ...]:
    entries = field.entries(PARAMETERS_MAX)
    if not entries:
        raise field.error("expected at least one parameter")
    return tuple(_read_parameter(name, value) for name, value in entries)


def _read_parameter(name: str, field: Field) -> Parameter:
    if not _NAME.fullmatch(name):
        raise field.error("expected a name of small letters, digits and '_', beginning with a letter or '_'")
    if field.is_list:
        return Choice(name, tuple(value.text() for value in field.items(1, VALUES_MAX)))
    fields = field.mapping(RANGE_KEYS)
    return _read_range(name, fields)


def _read_range(name: str, fields: Fields) -> Range:
    least, most = (fields.need(key, lambda end: end.decimal(-NUMBER_MAX, NUMBER_MAX)) for key in ("min", "max"))
    if most < least:
        raise fields["max"].expected(f"at least the min, which is {least}")
    on_log = fields.get("scale", lambda scale: scale.choice(SCALES), SCALES[0]) == "log"
    if on_log and least <= 0:
        raise fields["min"].expected("a number above 0 on a log scale")
    return Range(name, least, most, on_log)


def _choices(field: Field, parameters: tuple[Parameter, ...]) -> tuple[Choice, ...]:
    """The parameters of a grid, which must all have values, and not too many together."""
    count = 1
    choices = []
    for parameter, (_, place) in zip(parameters, field.entries(PARAMETERS_MAX), strict=True):
        if not isinstance(parameter, Choice):
            raise place.error("a grid needs a list of values; to draw from a range write method: random")
        choices.append(parameter)
        count *= len(parameter.values)
    if count > MEMBERS_MAX:
        sizes = " × ".join(str(len(choice.values)) for choice in choices)
        raise field.error(f"expected at most {MEMBERS_MAX} points, got {sizes} = {count}")
    return tuple(choices)


def _read_halving(field: Field) -> Halving:
    fields = field.mapping(HALVING_KEYS)
    return Halving(
        fields.need("metric", Field.title),
        maximize=fields.get("goal", lambda goal: goal.choice(GOALS), GOALS[0]) == "max",
        first=fields.need("first", lambda first: first.integer(1, STEPS_MAX)),
        factor=fields.get("factor", lambda factor: factor.integer(2, FACTOR_MAX), 3),
    )
