"""Finding out what is wrong with a study before it is begun, as far as that shows without its trace."""

from __future__ import annotations

from phalanx.errors import PhalanxError
from phalanx.server.refusal import Refusal
from phalanx.server.studies.asked import Asked


def need_readable(asked: Asked) -> None:
    """Refuses what no run could be made of."""
    # A worker of the API that is asked for no study has none of this in memory.
    from phalanx.capacity.question import numbers_of
    from phalanx.capacity.target import Target
    from phalanx.faults.generate.plan import plan_of
    from phalanx.server.studies.sources import need_no_file
    from phalanx.simulate.entry import placement_of, policies_of, until_of
    from phalanx.simulate.estimates import estimates_of
    from phalanx.simulate.figures.window import Window
    from phalanx.simulate.traces.load import load_of
    from phalanx.simulate.world.costs import costs_of

    try:
        for spec in asked.policies:
            need_no_file(spec)
        policies_of(asked.policies)
        placement_of(asked.placement)
        costs_of(asked.costs)
        until_of(asked.until or None)
        for target in asked.targets:
            Target.parse(target)
        for text, parse in ((asked.window, Window.parse), (asked.estimates, estimates_of), (asked.nodes, numbers_of)):
            if text:
                parse(text)
        if asked.faults:
            plan_of(asked.faults)
        if asked.load:
            load_of(asked.load, 1.0)
    except (PhalanxError, ValueError) as error:
        raise Refusal("invalid", str(error)) from error
