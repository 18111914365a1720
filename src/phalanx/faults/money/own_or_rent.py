"""Own or rent: what GPUs cost month by month if they are bought, and if only what is used is rented."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite

from phalanx.errors import PhalanxError

HOURS_PER_MONTH = 365.25 * 24 / 12


class PriceError(PhalanxError):
    """A price or share that there cannot be."""


@dataclass(frozen=True, slots=True)
class Offer:
    """`utilisation` is the part of their time for which GPUs are in use: what is rented is paid for that long only.

    A GPU with its part of node, network and room costs `purchase_usd`, and draws `power_kw` times the overhead of
    cooling (`pue`) while it is owned. Upkeep is a part of the price a year.
    """

    gpus: int
    utilisation: float
    rent_usd_gpu_h: float
    purchase_usd: float
    power_kw: float = 1.3
    pue: float = 1.3
    usd_kwh: float = 0.10
    staff_usd_year: float = 0.0
    upkeep_share_year: float = 0.05

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (isfinite(value) and value >= 0):
                raise PriceError(f"{field.name} is {value}: expected a number of at least 0")
        if self.gpus < 1 or self.utilisation > 1:
            raise PriceError(
                f"{self.gpus} GPUs, used {self.utilisation:g} of the time: expected 1 or more, and at most 1"
            )

    @property
    def purchase(self) -> float:
        """What is paid at first."""
        return self.gpus * self.purchase_usd

    @property
    def owning_month(self) -> float:
        """Power, staff and upkeep of a month."""
        power = self.gpus * self.power_kw * self.pue * self.usd_kwh * HOURS_PER_MONTH
        return power + (self.staff_usd_year + self.purchase * self.upkeep_share_year) / 12

    @property
    def renting_month(self) -> float:
        """What is used, rented for a month."""
        return self.gpus * self.utilisation * self.rent_usd_gpu_h * HOURS_PER_MONTH

    @property
    def break_even_months(self) -> float | None:
        """After how many months owning has cost less; None if never."""
        saved = self.renting_month - self.owning_month
        return self.purchase / saved if saved > 0 else None

    def after(self, months: float) -> tuple[float, float]:
        """What owning and renting have cost by then."""
        return self.purchase + months * self.owning_month, months * self.renting_month

    def break_even_utilisation(self, months: float) -> float:
        """How much GPUs must be used for owning to pay within so many months; above 1 it never does."""
        rent = self.gpus * self.rent_usd_gpu_h * HOURS_PER_MONTH * months
        return self.after(months)[0] / rent if rent else float("inf")
