"""Claims: what papers say of their policies, and the ratios of a suite's runs that come nearest to that.

The papers' figures are those of their abstracts. What a paper measured and what is measured here is the same kind of
thing; but the jobs and clusters are not the paper's, so that a ratio here need not be its.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phalanx.policy.registry import split
from phalanx.simulate.figures.confidence import interval
from phalanx.simulate.studies.suite import Cell
from phalanx.simulate.studies.table import Better, Measure, duration_text, index_text

WITHIN = 0.2
"""A ratio that is off by no more than this part of the published one agrees with it."""

MEAN_JCT = Measure("mean_jct", ("jct_s", "mean"), Better.LOWER, duration_text, "s")
MAKESPAN = Measure("makespan", ("makespan_s",), Better.LOWER, duration_text, "s", optional=True)
"""Of the same jobs: in how much less time GPUs get the same work done is by how much they are busier. Shares that are
held do not tell it, since of jobs that share a device each holds a part.
"""
WORST_FTF = Measure("worst_ftf", ("fairness", "worst_ftf"), Better.LOWER, index_text, optional=True)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a paper says, as the least and the most of a ratio, and the figure of one policy over that of another here.

    `is_known` says that the paper's jobs are public and its set-up is the one of the workload; otherwise `assumes` says
    what is not alike, and the two ratios cannot be held against each other.
    """

    paper: str
    text: str
    published: tuple[float, float]
    figure: Measure
    over: str
    under: str
    workload: str
    assumes: str
    is_known: bool = False

    @property
    def published_text(self) -> str:
        """The ratio as the paper has it."""
        least, most = self.published
        return f"{least:g}" if least == most else f"{least:g} to {most:g}"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A claim that no run of a suite is about, and what measures it."""

    paper: str
    text: str
    measured_by: str
    assumes: str


CLAIMS = (
    Claim(
        "Tiresias (Gu et al., NSDI 2019), abstract",
        "mean JCT up to 5.5 times better than with a YARN-based manager",
        (5.5, 5.5),
        MEAN_JCT,
        "yarn-cs",
        "tiresias-las",
        "philly",
        "60 P100 and a trace that is not public there; our `yarn-cs` loses no time to gangs that hold what they got",
    ),
    Claim(
        "Gandiva (Xiao et al., OSDI 2018), abstract",
        "GPUs 26 % busier",
        (1.26, 1.26),
        MAKESPAN,
        "fifo",
        "gandiva",
        "philly",
        "180 GPUs and jobs that left them idle within their steps there; here a job alone keeps its GPU busy, and the "
        "longest jobs make up most of the time",
    ),
    Claim(
        "Gavel (Narayanan et al., OSDI 2020), abstract",
        "mean JCT up to 3.5 times better than policies blind to GPU types",
        (3.5, 3.5),
        MEAN_JCT,
        "las",
        "gavel",
        "mixed",
        "108 GPUs and other durations there; nearer to its set-up is `phalanx bench simulate --only heterogeneity`",
    ),
    Claim(
        "Pollux (Qiao et al., OSDI 2021), abstract",
        "mean JCT 37 to 50 % less than of its rivals: of Tiresias",
        (1.59, 2.0),
        MEAN_JCT,
        "tiresias-las",
        "pollux",
        "elastic",
        "64 GPUs and measured models there, all of which tune their batch; here half do, with curves that we made up",
    ),
    Claim(
        "Pollux, abstract",
        "the same: of Optimus",
        (1.59, 2.0),
        MEAN_JCT,
        "optimus",
        "pollux",
        "elastic",
        "the same",
    ),
    Claim(
        "Optimus (Peng et al., EuroSys 2018), abstract",
        "mean JCT 139 % better than of representative schedulers",
        (2.39, 2.39),
        MEAN_JCT,
        "fair",
        "optimus",
        "elastic",
        "9 jobs with parameter servers on 13 machines there; here 400 with all-reduce",
    ),
    Claim(
        "Themis (Mahajan et al., NSDI 2020), abstract",
        "more than 2.25 times fairer: by the worst finish-time fairness, of Tiresias",
        (2.25, 2.25),
        WORST_FTF,
        "tiresias-las",
        "themis",
        "philly",
        "a production trace of apps with several jobs there; here an app is one job, and half of the jobs are shorter "
        "than a lease, for which they wait",
    ),
    Claim(
        "AntMan (Xiao et al., OSDI 2020), abstract",
        "GPUs compute 34 % more",
        (1.34, 1.34),
        MAKESPAN,
        "yarn-cs",
        "antman",
        "openb",
        "thousands of GPUs at Alibaba there, where jobs keep a GPU busy in part; here a job alone keeps it busy, and "
        "the longest jobs make up most of the time",
    ),
)

ELSEWHERE = (
    Elsewhere(
        "HiveD (Zhao et al., OSDI 2020), abstract",
        "by quota tenants wait up to 1,000 minutes longer than on a cluster of their own; by cells never",
        "`phalanx bench cells --only sharing`",
        "the trace is not public: drawn jobs of 11 tenants on as many GPUs",
    ),
    Elsewhere(
        "Gavel, figure 8",
        "mean JCT up to 3.5 times better than the same policy blind to GPU types",
        "`phalanx bench simulate --only heterogeneity`",
        "the authors' cluster and draw of jobs; speeds by family of model; see [results](gavel.md)",
    ),
    Elsewhere(
        "Tiresias, §5",
        "mean JCT up to 5.5 times better than YARN-CS, close to SRTF",
        "`phalanx bench simulate --only published`",
        "the testbed's cluster; jobs are drawn, or Philly's; see [results](tiresias.md)",
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What runs say to a claim: the ratio at each load, in the order of loads."""

    claim: Claim
    ratios: tuple[float, ...]

    @property
    def of_published(self) -> float:
        """The ratio that comes nearest to the published ones, over the nearest of those: 1 if it is one of them."""
        return min((self._of_published(each) for each in self.ratios), key=_distance)

    @property
    def verdict(self) -> str:
        """Whether the two agree, where they can be held against each other."""
        if not self.claim.is_known:
            return "not comparable"
        return "yes" if abs(self.of_published - 1) <= WITHIN else "no"

    def _of_published(self, ratio: float) -> float:
        least, most = self.claim.published
        return ratio / least if ratio < least else ratio / most if ratio > most else 1.0


def found(claim: Claim, cells: Sequence[Cell]) -> Found | None:
    """The ratios of a claim; None where either policy, or the workload, was not run or has no such figure."""
    loads = sorted(dict.fromkeys(cell.load for cell in cells if cell.workload == claim.workload))
    ratios = tuple(_ratios(claim, [cell for cell in cells if cell.workload == claim.workload], loads))
    return Found(claim, ratios) if ratios else None


def _ratios(claim: Claim, cells: Sequence[Cell], loads: Sequence[float]) -> Iterator[float]:
    for load in loads:
        over, under = (
            [value for cell in cells if (value := _value(claim.figure, cell, policy, load)) is not None]
            for policy in (claim.over, claim.under)
        )
        if over and under and interval(under).mean:
            yield interval(over).mean / interval(under).mean


def _value(figure: Measure, cell: Cell, policy: str, load: float) -> float | None:
    return figure.of(cell.summary) if cell.load == load and split(cell.policy)[0] == policy else None


def _distance(ratio: float) -> float:
    return abs(ratio - 1)
