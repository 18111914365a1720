"""Closed formulas of queueing theory, for one server, Poisson arrivals at `arrival_rate` and load below 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import pairwise


def mm1_fifo_wait(arrival_rate: float, service_rate: float) -> float:
    """Mean time in the queue in M/M/1: ρ/(μ − λ). Kleinrock, Queueing Systems 1 (1975), §3.2."""
    return load(arrival_rate, 1 / service_rate) / (service_rate - arrival_rate)


def mm1_fifo_response(arrival_rate: float, service_rate: float) -> float:
    """Mean time in the system in M/M/1: 1/(μ − λ). Kleinrock, Queueing Systems 1 (1975), §3.2.

    With exponential sizes it is the same for every order that knows no sizes and does not idle, preemptive or not: the
    number of jobs is the same Markov chain in all of them. Conway, Maxwell, Miller, Theory of Scheduling (1967).
    """
    return mm1_fifo_wait(arrival_rate, service_rate) + 1 / service_rate


def mg1_fifo_wait(arrival_rate: float, mean_size: float, mean_squared_size: float) -> float:
    """Mean time in the queue in M/G/1: λE[S²]/(2(1 − ρ)). Pollaczek (1930), Khinchine (1932); Kleinrock 1, §5.6."""
    return arrival_rate * mean_squared_size / (2 * (1 - load(arrival_rate, mean_size)))


def mg1_fifo_response(arrival_rate: float, mean_size: float, mean_squared_size: float) -> float:
    """Mean time in the system in M/G/1: the wait and the size."""
    return mg1_fifo_wait(arrival_rate, mean_size, mean_squared_size) + mean_size


def mg1_srpt_response(
    arrival_rate: float, density: Callable[[float], float], longest: float, steps: int = 20_000
) -> float:
    """Mean time in the system in M/G/1 under shortest remaining processing time, preemptive.

    Schrage and Miller, "The queue M/G/1 with the shortest remaining processing time discipline", Operations Research 14
    (1966): a job of size x takes

        λ(∫₀ˣ t²f(t)dt + x²(1 − F(x))) / (2(1 − ρ(x))²) + ∫₀ˣ dt/(1 − ρ(t)),   ρ(x) = λ∫₀ˣ t f(t)dt,

    and the mean is over x. Midpoint rule on [0, longest]; sizes beyond `longest` are left out, so choose it far out.
    """
    width = longest / steps
    below = first_moment = second_moment = residence = response = 0.0
    for step in range(steps):
        size = (step + 0.5) * width
        mass = density(size) * width
        # Half of this step's mass lies below its midpoint.
        rho = arrival_rate * (first_moment + size * mass / 2)
        work = second_moment + size**2 * mass / 2 + size**2 * (1 - below - mass / 2)
        waiting = arrival_rate * work / (2 * (1 - rho) ** 2)
        response += mass * (waiting + residence + width / 2 / (1 - rho))
        residence += width / (1 - rho)
        below += mass
        first_moment += size * mass
        second_moment += size**2 * mass
    load(arrival_rate, first_moment)
    return response


class Hazard(StrEnum):
    """How the rate of ending, f/(1 − F), changes with the service attained."""

    DECREASING = "decreasing"
    CONSTANT = "constant"
    INCREASING = "increasing"
    MIXED = "mixed"


def hazard_of(rates: Sequence[float], tolerance: float = 1e-9) -> Hazard:
    """The trend of hazard rates taken at rising service."""
    steps = [later - earlier for earlier, later in pairwise(rates)]
    if all(abs(step) <= tolerance for step in steps):
        return Hazard.CONSTANT
    if all(step <= tolerance for step in steps):
        return Hazard.DECREASING
    if all(step >= -tolerance for step in steps):
        return Hazard.INCREASING
    return Hazard.MIXED


def gittins_order(hazard: Hazard) -> str:
    """The order that the Gittins index comes to, which has the least mean response of all that know no sizes in M/G/1.

    Decreasing hazard (heavy tails: Pareto, hyperexponential): least attained service, "las". Increasing hazard
    (deterministic, uniform): whoever began goes on, "fifo". Constant hazard (exponential): all have the same index,
    and any order that does not idle has the same mean. Mixed: none of these in general.
    Aalto, Ayesta, Righter, "On the Gittins index in the M/G/1 queue", Queueing Systems 63 (2009); Gittins (1989).
    """
    orders = {Hazard.DECREASING: "las", Hazard.CONSTANT: "any", Hazard.INCREASING: "fifo", Hazard.MIXED: "index"}
    return orders[hazard]


def load(arrival_rate: float, mean_size: float) -> float:
    """ρ = λE[S], which must be below 1 for the means to exist."""
    rho = arrival_rate * mean_size
    if not 0 <= rho < 1:
        raise ValueError(f"the load is {rho:g}; expected at least 0 and below 1")
    return rho
