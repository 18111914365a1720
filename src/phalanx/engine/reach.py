"""Reaches: what all waiting jobs of a kind have in common for whoever looks for devices and quota."""

from __future__ import annotations

from phalanx.engine.demand import demand_of
from phalanx.engine.records import JobRecord, Reach, WaitingClass, form_of
from phalanx.engine.stake import site_of, stake_of
from phalanx.placement.fit import Fit


def measure(fit: Fit, waiting: WaitingClass, record: JobRecord) -> Reach:
    """Works out the reach of a class by one of its jobs, once."""
    asks = tuple([fit.ask(task, record.asked) for task in record.tasks.values()])
    demand = demand_of(record.gpus_min, record.need, asks, form_of(record))
    group = (record.job.priority, record.job.queue)
    stake = stake_of(site_of(demand.reach), demand.least, group)
    waiting.asks, waiting.reach = asks, (stake, group, demand.gpus, demand.need, demand)
    return waiting.reach
