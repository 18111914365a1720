"""Claims: what papers say of their policies, and the ratios of a suite's runs that come nearest to that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from phalanx.simulate.ranking import Ranking


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim, and the figure (of `ranking.FIGURES`) of one policy over that of another on a workload."""

    text: str
    figure: str
    over: str
    under: str
    workload: str


CLAIMS = (
    Claim(
        "Tiresias: mean JCT up to 5.5 times better than YARN-CS on its testbed",
        "mean_jct",
        "yarn-cs",
        "tiresias-las",
        "philly",
    ),
    Claim("Gandiva: utilisation 26 % higher", "allocated", "gandiva", "fifo", "philly"),
    Claim(
        "Gavel: mean JCT up to 3.5 times better than policies blind to hardware", "mean_jct", "las", "gavel", "mixed"
    ),
    Claim("the same", "mean_jct", "fifo", "gavel", "mixed"),
    Claim(
        "Pollux: mean JCT 37 to 50 % less than of its rivals, with elastic jobs",
        "mean_jct",
        "tiresias-las",
        "pollux",
        "elastic",
    ),
    Claim("the same, of Optimus", "mean_jct", "optimus", "pollux", "elastic"),
    Claim("Optimus: mean JCT 2.4 times better than fair shares", "mean_jct", "fair", "optimus", "elastic"),
    Claim("Themis: more than twice as fair", "jain", "themis", "tiresias-las", "philly"),
    Claim("AntMan: a third more use of GPUs", "mean_jct", "yarn-cs", "antman", "openb"),
)
"""The papers' figures are quoted from memory of their abstracts."""


def ratios(claim: Claim, ranking: Ranking) -> Iterator[tuple[float, float]]:
    """Loads, and the ratio at each: nothing where either policy, or the workload, was not run."""
    names = {policy.partition(":")[0]: policy for policy in reversed(ranking.policies)}
    over, under = names.get(claim.over, ""), names.get(claim.under, "")
    for (workload, load), means in ranking.means[claim.figure].items():
        if workload == claim.workload and over in means and under in means and means[under].mean:
            yield load, means[over].mean / means[under].mean
