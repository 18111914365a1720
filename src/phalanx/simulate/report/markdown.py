"""The page of a suite as Markdown: the ranking, one policy beside the best, and what papers claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from phalanx.policy.registry import described, split
from phalanx.simulate.figures.confidence import Interval
from phalanx.simulate.report.scripts import ReportError
from phalanx.simulate.report.sketch import sketch
from phalanx.simulate.studies.claims import CLAIMS, ELSEWHERE, found
from phalanx.simulate.studies.claims import WITHIN as AGREES
from phalanx.simulate.studies.ranking import DRAWN_MAX, FIGURES, MEAN_JCT, NEAR, Distance, Place, Ranking
from phalanx.simulate.studies.suite import Cell, Suite, Workload
from phalanx.simulate.studies.table import Measure

WITHIN = f"{round(100 * (NEAR - 1))} %"

KEPT = "<!-- what stands below this line is kept -->"
"""What people write below this line of a page stays when the page is written again."""


def write_suite_markdown(suite: Suite, cells: Sequence[Cell], ranking: Ranking, path: str, command: str) -> None:
    """Writes the page, with what a page that is there says below the line, and beside it a picture of each workload."""
    file = Path(path)
    try:
        before = file.read_text("utf-8") if file.exists() else ""
        _, line, kept = before.partition(KEPT)
        drawn = {workload.name: _picture(workload.name, ranking) for workload in suite.workloads}
        pictures = {name: f"{file.stem}-{name}.svg" for name, picture in drawn.items() if picture}
        for name, picture in pictures.items():
            file.with_name(picture).write_text(drawn[name], "utf-8")
        text = "\n".join((*suite_markdown(suite, cells, ranking, command, pictures), ""))
        file.write_text("\n".join((text, line + kept)) if line else text, "utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def suite_markdown(
    suite: Suite, cells: Sequence[Cell], ranking: Ranking, command: str, pictures: Mapping[str, str]
) -> Iterator[str]:
    """The lines of the page; `pictures` are the files of workloads that have one."""
    minutes = sum(cell.summary["run"]["wall_s"] for cell in cells) / 60
    yield f"# The {suite.name} suite"
    yield ""
    yield f"`{command} --markdown FILE` writes this page: {len(ranking.policies)} policies on"
    yield f"{_listed([workload.name for workload in suite.workloads])}, at loads of"
    yield f"{_listed([f'{load:g}' for load in suite.loads])}, with {_counted(suite.seeds, 'seed')} each."
    yield f"The {len(cells):,} runs took {minutes:,.0f} minutes in all, each on one processor."
    yield ""
    yield from _standings(ranking)
    yield ""
    yield from _tuned(suite)
    yield from _beside(ranking)
    for workload in suite.workloads:
        yield from _workload(workload, ranking, pictures)
    yield from _claims(cells)


def _standings(ranking: Ranking) -> Iterator[str]:
    yield "Figures are multiples of the best policy in each place (workload and load), 1 being the best, by the"
    yield "geometric mean over all places; the mean rank is over all places and figures. *Near* is within"
    yield f"{WITHIN}: of the best of all, and of the best without foresight, which is knowledge that no real"
    yield "cluster has."
    yield ""
    titles = [figure.title for figure in FIGURES]
    yield from _table("policy", "knows beforehand", "foresight", "mean rank", *titles, "near", "near without foresight")
    for each in ranking.standings:
        knows = described(split(each.policy)[0])[0].prior_knowledge
        figures = [f"{each.ratios[figure.key]:.2f}" if figure.key in each.ratios else "-" for figure in FIGURES]
        near = f"{each.near} of {ranking.compared}", f"{each.near_equals} of {ranking.compared}"
        foresight = "yes" if each.foresees else "no"
        yield _row(_name(each.policy), knows, foresight, f"{each.rank:.1f}", *figures, *near)
    if ranking.failures:
        yield ""
        yield "Failed, and in none of these figures:"
        yield ""
        yield from (f"- {str(failure).replace('|', '/')}" for failure in ranking.failures)
    if ranking.caveats:
        yield ""
        yield "To be known of these figures:"
        yield ""
        yield from (f"- {caveat.replace('|', '/')}" for caveat in ranking.caveats)
    given = sorted(policy for policy in ranking.policies if split(policy)[1])
    if given:
        yield ""
        yield f"With parameters: {_listed([f'`{policy}`' for policy in given])}."


def _tuned(suite: Suite) -> Iterator[str]:
    """What was tried of each policy, where the suite tunes them."""
    if not suite.tuned:
        return
    yield "## How policies were tuned"
    yield ""
    yield "On the earlier half of each trace, of which no other figure here is. Times are mean JCT ÷ that of the best"
    yield "setting of the policy, the first of its row, which is the one that is measured."
    yield ""
    yield from _table("policy", "tried")
    for best, tried in suite.tuned.items():
        order = sorted(tried, key=lambda setting: (setting != best, tried[setting]))
        yield _row(_name(split(best)[0]), ", ".join(f"`{setting}` {tried[setting]:.2f}" for setting in order))
    yield ""


def _beside(ranking: Ranking) -> Iterator[str]:
    subject = ranking.subject
    distances = list(ranking.distances(subject))
    yield f"## {_name(subject)} beside the best"
    yield ""
    yield from _summary(ranking, subject, distances)
    yield ""
    titles = [figure.title for figure in FIGURES]
    yield from _table("workload, load", *titles, *(f"best {title}" for title in titles))
    for place in ranking.places:
        here = {each.figure.key: each for each in distances if each.place == place}
        found = [here.get(figure.key) for figure in FIGURES]
        times = ["-" if each is None else f"{each.ratio:.2f} ({each.ratio_equals:.2f})" for each in found]
        yield _row(_place(place), *times, *("-" if each is None else _best(ranking, each) for each in found))
    yield ""
    yield from _not_near(subject, distances)


def _summary(ranking: Ranking, subject: str, distances: Sequence[Distance]) -> Iterator[str]:
    place = 1 + [each.policy for each in ranking.standings].index(subject)
    equals = [each.policy for each in ranking.standings if not each.foresees]
    among = f", {1 + equals.index(subject)} of {len(equals)} without foresight" if subject in equals else ""
    near, near_equals = sum(each.is_near for each in distances), sum(each.is_near_equals for each in distances)
    yield f"By the mean rank it is {place} of {len(ranking.standings)}{among}. Of {len(distances)} figures {near} are"
    yield f"within {WITHIN} of the best of all, and {near_equals} within {WITHIN} of the best without"
    close = [ranking.not_told_apart(each.figure, each.place) for each in distances]
    if any(close):
        told = sum(subject in own for own in close)
        alone = sum(own == (subject,) for own in close)
        yield f"foresight. By paired differences over seeds it is told from all others as the best in {alone}, and not"
        yield f"told from the best in {told}. A best that is not told from others is not named as one below."
        yield "Each as a multiple of the best of all and, in brackets, of the best without foresight:"
        return
    yield "foresight. Each as a multiple of the best of all and, in brackets, of the best without foresight:"


def _best(ranking: Ranking, found: Distance) -> str:
    """The best, where it is told from all others."""
    close = ranking.not_told_apart(found.figure, found.place)
    return _name(found.best) if len(close) < 2 else f"one of {len(close)}"


def _not_near(subject: str, distances: Sequence[Distance]) -> Iterator[str]:
    far = [each for each in distances if not each.is_near_equals]
    if not far:
        yield f"Nowhere is {_name(subject)} further than that from the best without foresight."
        return
    yield "Further than that from the best without foresight:"
    yield ""
    yield from _table("figure", "workload, load", "times", "of")
    for figure in FIGURES:
        for each in far:
            if each.figure is figure:
                yield _row(figure.title, _place(each.place), f"{each.ratio_equals:.2f}", _name(each.best_equal))


def _picture(workload: str, ranking: Ranking) -> str:
    best = [each.policy for each in ranking.standings][:DRAWN_MAX]
    curves = [each for each in ranking.curves(workload, best, (MEAN_JCT,)) if all(at.mean > 0 for _, at in each.points)]
    return sketch(f"{workload}: {MEAN_JCT.title} against the load", curves) if curves else ""


def _workload(workload: Workload, ranking: Ranking, pictures: Mapping[str, str]) -> Iterator[str]:
    """Every figure of every policy, with its interval where there are several seeds."""
    places = [place for place in ranking.places if place[0] == workload.name]
    if not places:
        return
    yield ""
    yield f"## On {workload.name}"
    yield ""
    sure = any(found.high is not None for found in ranking.means[MEAN_JCT.key][places[0]].values())
    yield f"{workload.about}; {workload.cluster.gpus} GPUs. Means{' ± 95 % confidence, over seeds' * sure}:"
    yield ""
    columns = [(figure, place) for figure in FIGURES for place in places]
    yield from _table("policy", *(f"{figure.title} at {place[1]:g}" for figure, place in columns))
    for each in ranking.standings:
        own = [(figure, ranking.means[figure.key][place].get(each.policy)) for figure, place in columns]
        if any(found is not None for _, found in own):
            yield _row(_name(each.policy), *("-" if found is None else _mean(figure, found) for figure, found in own))
    if workload.name in pictures:
        yield ""
        yield f"![{MEAN_JCT.title} on {workload.name} against the load]({pictures[workload.name]})"


def _mean(figure: Measure, found: Interval) -> str:
    return figure.text(found.mean) + ("" if found.high is None else f" ± {figure.text(found.high - found.mean)}")


def _claims(cells: Sequence[Cell]) -> Iterator[str]:
    rows = [each for each in (found(claim, cells) for claim in CLAIMS) if each is not None]
    if not rows:
        return
    yield ""
    yield "## Published claims beside these runs"
    yield ""
    yield "The papers' ratios are of their abstracts; *ours* are at each load, and *÷ published* is the nearest of"
    yield "them over the paper's, 1 if it is within what the paper says. Where a paper's jobs or set-up are not"
    yield "public or not these, the two cannot be held against each other, and the last column says why."
    yield ""
    within = f"within ±{100 * AGREES:.0f} %"
    yield from _table("paper", "claim", "published", "here", "ours", "÷ published", within, "what is not alike")
    for each in rows:
        claim = each.claim
        here = f"{claim.figure.title}, `{claim.over}` / `{claim.under}`, {claim.workload}"
        ours = ", ".join(f"{ratio:.2f}" for ratio in each.ratios)
        told = (claim.published_text, here, ours, f"{each.of_published:.2f}", each.verdict, claim.assumes)
        yield _row(claim.paper, claim.text, *told)
    yield ""
    yield "Measured by other commands:"
    yield ""
    yield from _table("paper", "claim", "measured by", "assumed")
    for other in ELSEWHERE:
        yield _row(other.paper, other.text, other.measured_by, other.assumes)


def _table(*titles: str) -> Iterator[str]:
    yield _row(*titles)
    yield "|" + "---|" * len(titles)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _name(policy: str) -> str:
    """A policy without its parameters, which are told once."""
    return f"`{split(policy)[0]}`"


def _place(place: Place) -> str:
    return f"{place[0]}, {place[1]:g}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
