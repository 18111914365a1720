"""Options that the verbs about reliability share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from phalanx.faults.reliability.course import Course
    from phalanx.faults.taxonomy.cause import Profile
    from phalanx.faults.taxonomy.fleet import Fleet

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Seconds(click.ParamType):  # type: ignore[type-arg]  # older versions of click have no arguments for it
    """A duration such as 90s or 2m, as seconds."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from phalanx.document.units import duration_ms

        if isinstance(value, float):
            return value
        found = duration_ms(str(value))
        if found is None:
            self.fail(f"{value!r} is no duration: expected 90s, 2m or 1h30m.", param, ctx)
        return found / 1000


SECONDS = Seconds()

gpus_option = click.option("--gpus", type=click.IntRange(1, 10_000_000), required=True, help="GPUs of the job.")
profile_option = click.option(
    "--profile", default="rsc-1", show_default=True, metavar="NAME", help="Failure rates: a published profile."
)
node_option = click.option(
    "--gpus-per-node", type=click.IntRange(1, 1024), default=8, show_default=True, help="GPUs of a node."
)

_TIMES = (
    ("--detect", "detect_s", "60s", "Time until a failure is noticed."),
    ("--queue", "queue_s", "0s", "Time until the job has a place again."),
    ("--restart", "restart_s", "5m", "Time to start the job again."),
    ("--reload", "reload_s", "0s", "Time to load the last checkpoint."),
    ("--save", "save_s", "10s", "Time for which a checkpoint stops the work."),
)


def course_options(function: Decorated) -> Decorated:
    """The options that describe a job and its recoveries."""
    for flag, name, default, text in reversed(_TIMES):
        option = click.option(flag, name, type=SECONDS, default=default, show_default=True, metavar="TIME", help=text)
        function = option(function)
    every = click.option(
        "--every", type=SECONDS, metavar="TIME", help="Work between two checkpoints. Default: the best interval."
    )
    return gpus_option(profile_option(node_option(every(function))))


def fleet_of(gpus: int, gpus_per_node: int) -> Fleet:
    """A fleet whose nodes have a link for each GPU."""
    from phalanx.faults.taxonomy.fleet import Fleet

    return Fleet(gpus, gpus_per_node, gpus_per_node)


def course_of(given: dict[str, Any]) -> tuple[Profile, Fleet, Course]:
    """What the options describe; without an interval, the one that is best."""
    from phalanx.faults.reliability.course import Course
    from phalanx.faults.reliability.intervals import exact_s
    from phalanx.faults.taxonomy.choose import profile_of

    profile = profile_of(given["profile"])
    fleet = fleet_of(given["gpus"], given["gpus_per_node"])
    per_hour = profile.per_hour(fleet)
    interval_s = given["every"]
    if interval_s is None:
        if not given["save_s"]:
            raise click.UsageError("--save is 0: without --every there is no best interval, since saves are free.")
        interval_s = exact_s(given["save_s"], 3600 / per_hour)
    times = {name: given[name] for _, name, _, _ in _TIMES}
    return profile, fleet, Course(per_hour, interval_s, **times)
