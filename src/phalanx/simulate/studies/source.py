"""Sources of traces: a trace that was recorded, or one that is made from a seed. Both can be brought to a load."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Protocol

from phalanx.document.error import brief
from phalanx.simulate.trace import Trace
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.load import at_load, offered_load
from phalanx.simulate.traces.open import read_trace
from phalanx.simulate.traces.redraw import redrawn
from phalanx.simulate.traces.synthetic import Synthetic, synthesize

SYNTHETIC = "synthetic:"
FIELDS = {field.name: field for field in fields(Synthetic)}
_KINDS = {"int": (int, "a whole number"), "float": (float, "a number"), "str": (str, "a word")}


@dataclass(frozen=True, slots=True)
class Recorded:
    """A trace that was recorded."""

    trace: Trace

    def at(self, gpus: int, load: float | None, seed: int, first_seed: int) -> Trace:
        """The trace as it is for the first seed, with its arrivals drawn anew for every other; at a load, if given."""
        trace = self.trace if seed == first_seed else redrawn(self.trace, seed)
        return trace if load is None else at_load(trace, gpus, load)

    def load(self, gpus: int) -> float:
        """Its offered load on so many GPUs."""
        return offered_load(self.trace, gpus)


@dataclass(frozen=True, slots=True)
class Made:
    """A trace that is made: what is given of a `Synthetic`."""

    given: tuple[tuple[str, int | float | str], ...]

    def at(self, gpus: int, load: float | None, seed: int, first_seed: int) -> Trace:
        """The trace of a seed, at its own load or another."""
        return synthesize(self._spec(gpus, load), seed)

    def load(self, gpus: int) -> float:
        """The load it is to be made at."""
        return self._spec(gpus, None).load

    def _spec(self, gpus: int, load: float | None) -> Synthetic:
        values: dict[str, object] = {"gpus": gpus, **dict(self.given)}
        if load is not None:
            values["load"] = load
        for name, field in FIELDS.items():
            if name not in values and field.default is MISSING:
                raise TraceError(self.text(), f"{name}= is missing, as in {SYNTHETIC}jobs=1000,load=0.9")
        return Synthetic(**values)  # type: ignore[arg-type]

    def text(self) -> str:
        """As it is written on a command line."""
        return SYNTHETIC + ",".join(f"{name}={value}" for name, value in self.given)


class Source(Protocol):
    """Where the trace of a run comes from."""

    def at(self, gpus: int, load: float | None, seed: int, first_seed: int) -> Trace:
        """The trace of a seed, at its own load or another."""

    def load(self, gpus: int) -> float:
        """Its own offered load on so many GPUs."""


def source_of(text: str, skip_bad_rows: bool = False) -> Source:
    """The source written as the name of a file or as `synthetic:jobs=1000,load=0.9,…`."""
    if text.startswith(SYNTHETIC):
        return _made(text)
    trace = read_trace(text, skip_bad_rows)
    if not trace.jobs:
        first = trace.bad_rows[:1]
        dropped = (f"bad rows that were dropped: {trace.dropped:,}, the first being {first[0]}",) if first else ()
        reasons = "; ".join((*trace.notes, *dropped))
        raise TraceError(text, "has no job to run" + (f" ({reasons})" if reasons else ""))
    return Recorded(trace)


def _made(text: str) -> Made:
    given: dict[str, int | float | str] = {}
    for pair in filter(None, text.removeprefix(SYNTHETIC).split(",")):
        name, equals, value = pair.partition("=")
        if not equals or name not in FIELDS:
            raise TraceError(brief(text), f"{brief(pair)}: expected key=value, where key is one of {', '.join(FIELDS)}")
        if name in given:
            raise TraceError(brief(text), f"{name} is given twice, as {given[name]} and as {brief(value)}")
        given[name] = _value(text, name, value)
    return Made(tuple(given.items()))


def _value(text: str, name: str, value: str) -> int | float | str:
    kind, expected = _KINDS[str(FIELDS[name].type).partition(" ")[0]]
    try:
        read: int | float | str = kind(value)
    except ValueError:
        raise TraceError(brief(text), f"{name}={brief(value)}: expected {expected}") from None
    return read
