"""Costs: the time that starting, stopping and moving jobs takes in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from phalanx.document.units import duration_ms
from phalanx.errors import PhalanxError
from phalanx.protocol.event import SuspendRates
from phalanx.workload.job import Job


class CostsError(PhalanxError):
    """A cost that there is not, or that is no time."""


@dataclass(frozen=True, slots=True)
class Costs:
    """How long things take. `locality` says whether a job's speed depends on where it lies, `own` whether a checkpoint
    of a job that says what it costs takes that long. With `suspend_mb_s` and `resume_mb_s` the backend suspends jobs
    that save nothing, and moves so much device memory a second to the host and back.

    The defaults are what sites report of containers that are in the image cache and checkpoints of a few GB: tens of
    seconds for a start, and as much again to load a checkpoint.
    """

    start_ms: int = 10_000
    checkpoint_ms: int = 10_000
    restore_ms: int = 10_000
    stop_ms: int = 1_000
    resize_ms: int = 10_000
    repartition_ms: int = 5_000
    locality: bool = True
    own: bool = True
    suspend_mb_s: int = 0
    resume_mb_s: int = 0

    @property
    def suspend(self) -> SuspendRates | None:
        """How fast jobs are suspended; None where that frees no devices."""
        if not self.suspend_mb_s or not self.resume_mb_s:
            return None
        return SuspendRates(self.suspend_mb_s, self.resume_mb_s)

    def charge(self, job: Job) -> Job:
        """The job as it is under these costs: without what it says of its checkpoints where that does not count."""
        if self.own or not job.checkpoint.cost_ms:
            return job
        return replace(job, checkpoint=replace(job.checkpoint, cost_ms=0))

    def text(self) -> str:
        """The costs as they are written on a command line."""
        if self in (NO_COSTS, DEFAULT_COSTS):
            return "none" if self == NO_COSTS else "default"
        times = (f"{name.removesuffix('_ms')}={getattr(self, name)}ms" for name in TIMES)
        own = () if self.own else ("own=false",)
        rates = (f"{name}={getattr(self, name)}" for name in RATES if getattr(self, name))
        return ",".join((*times, f"locality={'true' if self.locality else 'false'}", *own, *rates))


TIMES = tuple(each.name for each in fields(Costs) if each.name.endswith("_ms"))
SWITCHES = ("locality", "own")
RATES = ("suspend_mb_s", "resume_mb_s")
DEFAULT_COSTS = Costs()
NO_COSTS = Costs(0, 0, 0, 0, 0, 0, locality=False, own=False)


def costs_of(text: str) -> Costs:
    """Costs as they are written on a command line: `default`, `none`, or either changed by name=time,…"""
    costs = Costs()
    given: dict[str, str] = {}
    for number, part in enumerate(filter(None, text.split(","))):
        if part in ("default", "none"):
            if number:
                raise CostsError(f"--costs: {part} comes first, as in {part},start=30s; got {text}")
            costs = Costs() if part == "default" else NO_COSTS
            continue
        name, _, value = part.partition("=")
        if name in given:
            raise CostsError(f"--costs: {name} is given twice, as {given[name]} and as {value}")
        given[name] = value
        costs = replace(costs, **{_field(name): _value(name, value)})  # type: ignore[arg-type]
    return costs


def _field(name: str) -> str:
    known = {each.name.removesuffix("_ms"): each.name for each in fields(Costs)}
    if name not in known:
        raise CostsError(f"--costs: there is no cost {name!r} (there is: none, default, {', '.join(known)})")
    return known[name]


def _value(name: str, text: str) -> int | bool:
    if name in SWITCHES:
        if text not in ("true", "false"):
            raise CostsError(f"--costs: {name}={text}: expected true or false")
        return text == "true"
    if name in RATES:
        if not text.isascii() or not text.isdigit() or not int(text):
            raise CostsError(f"--costs: {name}={text}: expected megabytes a second, such as 2000")
        return int(text)
    value = duration_ms(text)
    if value is None:
        raise CostsError(f"--costs: {name}={text}: expected a time such as 30s or 2m")
    return value
