"""The page of a suite as Markdown: the ranking, one policy beside the best, and what papers claim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from phalanx.policy.registry import described, split
from phalanx.simulate.claims import CLAIMS, ratios
from phalanx.simulate.ranking import FIGURES, NEAR, Distance, Place, Ranking
from phalanx.simulate.report.scripts import ReportError
from phalanx.simulate.suite import Cell, Suite

WITHIN = f"{round(100 * (NEAR - 1))} %"

KEPT = "<!-- what stands below this line is kept -->"
"""What people write below this line of a page stays when the page is written again."""


def write_suite_markdown(suite: Suite, cells: Sequence[Cell], ranking: Ranking, path: str, command: str) -> None:
    """Writes the page, with what a page that is there says below the line."""
    file = Path(path)
    try:
        before = file.read_text("utf-8") if file.exists() else ""
        _, line, kept = before.partition(KEPT)
        text = "\n".join((*suite_markdown(suite, cells, ranking, command), ""))
        file.write_text("\n".join((text, line + kept)) if line else text, "utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def suite_markdown(suite: Suite, cells: Sequence[Cell], ranking: Ranking, command: str) -> Iterator[str]:
    """The lines of the page."""
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
    yield from _beside(ranking)
    yield from _claims(ranking)


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
    given = sorted(policy for policy in ranking.policies if split(policy)[1])
    if given:
        yield ""
        yield f"With parameters: {_listed([f'`{policy}`' for policy in given])}."


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
        yield _row(_place(place), *times, *("-" if each is None else _name(each.best) for each in found))
    yield ""
    yield from _not_near(subject, distances)


def _summary(ranking: Ranking, subject: str, distances: Sequence[Distance]) -> Iterator[str]:
    place = 1 + [each.policy for each in ranking.standings].index(subject)
    equals = [each.policy for each in ranking.standings if not each.foresees]
    among = f", {1 + equals.index(subject)} of {len(equals)} without foresight" if subject in equals else ""
    near, near_equals = sum(each.is_near for each in distances), sum(each.is_near_equals for each in distances)
    yield f"By the mean rank it is {place} of {len(ranking.standings)}{among}. Of {len(distances)} figures {near} are"
    yield f"within {WITHIN} of the best of all, and {near_equals} within {WITHIN} of the best without"
    yield "foresight. Each as a multiple of the best of all and, in brackets, of the best without foresight:"


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


def _claims(ranking: Ranking) -> Iterator[str]:
    found = [(claim, ", ".join(f"{ratio:.2f}" for _, ratio in ratios(claim, ranking))) for claim in CLAIMS]
    if not any(told for _, told in found):
        return
    yield ""
    yield "## Published claims beside these runs"
    yield ""
    yield from _table("claim, from the paper", "here", "at each load")
    titles = {figure.key: figure.title for figure in FIGURES}
    for claim, told in found:
        if told:
            here = f"{titles[claim.figure]}, `{claim.over}` / `{claim.under}`, {claim.workload}"
            yield _row(claim.text, here, told)


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
