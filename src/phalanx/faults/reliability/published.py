"""What was printed, beside what the model gives: where they differ, the model is not the whole truth."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.faults.reliability.course import Course
from phalanx.faults.reliability.ettr import exact_ettr, published_ettr
from phalanx.faults.reliability.monte_carlo import simulated
from phalanx.faults.taxonomy.cause import Profile
from phalanx.faults.taxonomy.fleet import Fleet
from phalanx.faults.taxonomy.published import RSC_1

SIXTEEN_K = 16_000
"""What the paper's 16k GPUs are: RSC-1 has 2,000 nodes of 8. Its projection of 1.8 h is of 16,384."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A printed figure beside that of the model, and what is known of the difference."""

    what: str
    printed: float
    model: float
    unit: str
    note: str

    @property
    def off(self) -> float:
        """By how much the model is above the print, as a part of it."""
        return self.model / self.printed - 1


_SMALL = "measured; small jobs fail about 3.5 times as often as nodes alone explain, by their own programs too"
_MTTF = ((8, 47.7 * 24, _SMALL), (1024, 7.9, _SMALL), (16_384, 1.8, "projected"), (131_072, 0.23, "projected"))
_ETTR = ((60, 0.70), (5, 0.93))


def compared(failures: int = 20_000) -> list[Compared]:
    """Meta's points (Kokolis et al., HPCA 2025): time to failure by size, and the ratio at two intervals."""
    times = [Compared(f"MTTF of {gpus:,} GPUs", printed, mttf(RSC_1, gpus), "h", note) for gpus, printed, note in _MTTF]
    return [*times, *(each for minutes, printed in _ETTR for each in _ratios(minutes, printed, failures))]


def mttf(profile: Profile, gpus: int) -> float:
    """Mean time to failure of a job of a size, in hours."""
    return profile.mttf_hours(Fleet(gpus))


def _ratios(minutes: int, printed: float, failures: int) -> list[Compared]:
    course = Course(RSC_1.per_hour(Fleet(SIXTEEN_K)), interval_s=minutes * 60.0, restart_s=300.0)
    what = f"ETTR of 16k GPUs, a save every {minutes} min"
    first = (
        "the paper's formula, which is of first order: it lets a failure lose half an interval even when others follow"
    )
    return [
        Compared(f"{what}: formula", printed, published_ettr(course), "", first),
        Compared(f"{what}: exact", printed, exact_ettr(course), "", "saves free of cost, failures exponential"),
        Compared(f"{what}: by chance", printed, simulated(course, failures).split.work, "", f"{failures:,} failures"),
    ]
