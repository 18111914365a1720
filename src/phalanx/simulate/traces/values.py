"""Values of a field of a trace, read from text. What does not fit raises ValueError."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from sys import intern

from phalanx.simulate.trace import Ending
from phalanx.workload.job import PRIORITY_MAX, PRIORITY_MIN, Kind
from phalanx.workload.tier import Tier

SECONDS_MAX = 10_000_000_000
"""Beyond it a number is no time of a trace: seconds since 1970 stay below it until the year 2286."""

GPUS_MAX = 1_000_000

SECONDS = f"seconds, 0 to {SECONDS_MAX:,}"
GPUS = f"a whole number of GPUs, 0 to {GPUS_MAX:,}"
MILLI = "thousandths of a GPU, 0 to 1,000"
MEMORY_MB_MAX = 1_000_000_000
MEMORY_MB = f"a whole number of MB, 0 to {MEMORY_MB_MAX:,}"
ZONED = "a time such as 2023-04-08 10:05:06+08:00"
MOMENT = "a time such as 2017-10-09 07:01:55"

ENDINGS = {ending.value: ending for ending in Ending} | {"succeeded": Ending.COMPLETED}
"""`succeeded` is what the engine calls the state of a job that completed."""

KINDS = {kind.value: kind for kind in Kind}

TIERS = tuple(each.value for each in Tier)
BATCHES = ("fixed", "adaptive")

_EPOCH = datetime(1970, 1, 1)
_MILLISECOND = timedelta(milliseconds=1)


def milliseconds(text: str) -> int:
    """Seconds as milliseconds."""
    seconds = float(text)
    # An id such as 4821_7 is a number to Python.
    if 0 <= seconds <= SECONDS_MAX and "_" not in text:
        return int(seconds * 1000 + 0.5)
    raise ValueError(text)


def whole(text: str) -> int:
    """A whole number, also one that a table of floats wrote as 4.0."""
    try:
        number = int(text)
    except ValueError:
        fraction = float(text)
        if not fraction.is_integer():
            raise
        number = int(fraction)
    if "_" in text:
        raise ValueError(text)
    return number


def within(text: str, least: int, most: int) -> int:
    """A whole number that is neither too small nor too large."""
    number = whole(text)
    if least <= number <= most:
        return number
    raise ValueError(text)


def span(least: int, most: int) -> str:
    """What `within` expects, in words."""
    return f"a whole number, {least:,} to {most:,}"


def gpus(text: str) -> int:
    """A number of GPUs."""
    return within(text, 0, GPUS_MAX)


def milli(text: str) -> int:
    """A part of a GPU; all of it is none."""
    return within(text, 0, 1000) % 1000


def memory_mb(text: str) -> int:
    """Memory."""
    return within(text, 0, MEMORY_MB_MAX)


def priority(text: str) -> int:
    """A job's priority."""
    return within(text, PRIORITY_MIN, PRIORITY_MAX)


def identity(text: str) -> str:
    """A job's id."""
    if not text:
        raise ValueError(text)
    return text


def text(words: str) -> str:
    """Text as it is; the same text is kept once."""
    return intern(words)


def ending(text: str) -> Ending:
    """How a job ended."""
    if text not in ENDINGS:
        raise ValueError(text)
    return ENDINGS[text]


def kind(text: str) -> Kind:
    """What a job is for."""
    if text not in KINDS:
        raise ValueError(text)
    return KINDS[text]


def moment_ms(text: str) -> int:
    """A local time of day as milliseconds from some fixed moment."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        raise ValueError(text)
    return (moment - _EPOCH) // _MILLISECOND


def batch(text: str) -> str:
    """How a job's batch is set."""
    if text not in BATCHES:
        raise ValueError(text)
    return text


def zoned_ms(text: str) -> int:
    """A time of day, with or without its distance from UTC, as milliseconds from some fixed moment."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // _MILLISECOND


def tier(text: str) -> str:
    """What its owner was promised."""
    if text not in TIERS:
        raise ValueError(text)
    return text
