"""M/M/k: requests that come at random, wait in one line, and are served by k servers for exponential times.

Erlang C and the waiting time: Gross, Shortle, Thompson, Harris, Fundamentals of Queueing Theory, 4th ed. (2008), §2.3;
Kleinrock, Queueing Systems 1 (1975), §3.5. Erlang B by its recursion, which is stable for thousands of servers: Cooper,
Introduction to Queueing Theory, 2nd ed. (1981), ch. 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf

BISECTIONS = 80


@dataclass(frozen=True, slots=True)
class Queue:
    """`arrivals` a second come to so many servers, each of which serves `service` a second."""

    arrivals: float
    service: float
    servers: int

    @property
    def load(self) -> float:
        """Offered load in Erlang: servers that are busy on average, if they suffice."""
        return self.arrivals / self.service

    @property
    def utilisation(self) -> float:
        """The part of the servers that is busy; from 1 on the line grows for ever."""
        return self.load / self.servers

    @property
    def waits(self) -> float:
        """The probability that a request has to wait: C = kB / (k − a(1 − B)), with Erlang's B."""
        if self.utilisation >= 1:
            return 1.0
        blocked = 1.0
        for count in range(1, self.servers + 1):
            blocked = self.load * blocked / (count + self.load * blocked)
        return self.servers * blocked / (self.servers - self.load * (1 - blocked))

    @property
    def mean_s(self) -> float:
        """Mean time in the system: 1/μ + C/(kμ − λ)."""
        if self.utilisation >= 1:
            return inf
        return 1 / self.service + self.waits / self._drain

    @property
    def _drain(self) -> float:
        """How fast the line shortens while all servers are busy: kμ − λ."""
        return self.servers * self.service - self.arrivals

    def later_than(self, seconds: float) -> float:
        """The probability that a request takes longer: it is served at once (1 − C), or waits for a time that is
        exponential with kμ − λ and is then served, which together is hypoexponential.
        """
        if self.utilisation >= 1:
            return 1.0
        mu, theta, waits = self.service, self._drain, self.waits
        served = exp(-mu * seconds)
        if abs(theta - mu) < 1e-9 * mu:
            both = served * (1 + mu * seconds)
        else:
            both = (theta * served - mu * exp(-theta * seconds)) / (theta - mu)
        return (1 - waits) * served + waits * both

    def quantile_s(self, quantile: float) -> float:
        """The time within which such a part of all requests is answered."""
        if self.utilisation >= 1:
            return inf
        low, high = 0.0, self.mean_s
        while self.later_than(high) > 1 - quantile:
            high *= 2
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.later_than(middle) > 1 - quantile else (low, middle)
        return high
