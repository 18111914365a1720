"""What the verbs of runs share: their options, the study these describe, and the runs of it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from phalanx.cli.exit import Exit
from phalanx.cli.output import Column
from phalanx.cli.progress import bar
from phalanx.cli.trace import skip_bad_rows_option, tell_bad_rows
from phalanx.errors import PhalanxError
from phalanx.simulate.entry import PLACEMENTS, Options, study_of, until_of
from phalanx.simulate.figures.never_fit import never_fit_notes
from phalanx.simulate.figures.result import Result
from phalanx.simulate.report import Repeat, RunOf, write_report
from phalanx.simulate.simulation import COUNT, Simulation
from phalanx.simulate.studies.batch import run_cases
from phalanx.simulate.studies.source import Recorded
from phalanx.simulate.studies.study import Case, Study
from phalanx.simulate.studies.table import duration_text, measures_of
from phalanx.simulate.studies.vary import Curve, Variation
from phalanx.simulate.submission import as_pool
from phalanx.simulate.traces.open import has_cluster
from phalanx.simulate.world.throughputs import gaps

WIDE = ("p95_wait", "slowdown", "makespan", "goodput", "jain", "mean_late", "premium_sla", "standard_sla")
"""Columns of a comparison that only `-o wide` has."""

Decorated = TypeVar("Decorated", bound=Callable[..., object])
Option: TypeAlias = Callable[[Any], Any]

_STUDY = (
    click.option(
        "--cluster",
        metavar="FILE",
        help="The cluster: a cluster file, a Tiresias cluster CSV or a Philly machine list. "
        "Default: that of the trace, if this is a journal.",
    ),
    click.option(
        "--trace", metavar="FILE", help="The trace: a file of any supported format, or synthetic:jobs=1000,load=0.9,…"
    ),
    click.option(
        "--placement",
        type=click.Choice(PLACEMENTS),
        default="topology",
        show_default=True,
        help="How nodes are chosen; count treats the cluster as one pool of GPUs without nodes.",
    ),
    click.option(
        "--costs",
        default="default",
        show_default=True,
        help="How long starts, stops and checkpoints take: default, none, start=30s,…",
    ),
    click.option(
        "--seed",
        type=int,
        default=0,
        show_default=True,
        help="Seed of synthetic traces, random placement and estimates.",
    ),
    click.option(
        "--faults",
        metavar="FILE|NAME",
        help="Failures: a CSV of at_s,node,health[,reason] or of `reliability draw`, or a profile as rsc-1:scale=2.",
    ),
    click.option(
        "--checkpoint-every",
        metavar="TIME",
        help="Every job saves its work so often and stands still meanwhile. Default: only when it is stopped.",
    ),
    click.option(
        "--quarantine",
        metavar="SHARE[,time=30m][,canary=10m]",
        help="Have nodes on which more fails than on others take no new work, as `up --quarantine`. Default: none.",
    ),
    click.option(
        "--throughputs",
        metavar="FILE",
        help="Measured throughputs: JSON of steps per second by model, batch size, GPUs and GPU type.",
    ),
    click.option(
        "--estimates",
        metavar="MODEL",
        help="Estimated durations: exact, factor=1.3, spread=0.3, f=4 or round. Default: as in the trace.",
    ),
    click.option(
        "--window",
        metavar="FROM:TO",
        help="Count only jobs submitted in this time, such as 1d:6d or 10%:90%. Default: all.",
    ),
    click.option(
        "--load",
        metavar="X|+30%",
        help="Scale the trace to this offered load, requested over available GPU time, or by so much. "
        "Default: no scaling.",
    ),
    click.option(
        "--workers", type=click.IntRange(1), help="Number of processes that share several runs. Default: one per CPU."
    ),
    skip_bad_rows_option,
)

_RUNS = (
    click.option(
        "--until",
        metavar="TIME",
        help="Stop at this virtual time, such as 12h or 3d. Default: the end of the run.",
    ),
    click.option(
        "--vary", metavar="KEY=FROM:TO:STEP", help="Run once for each value of a range: load=0.5:1.2:0.1, nodes=8:16."
    ),
    click.option(
        "--seeds",
        type=click.IntRange(1),
        default=1,
        help="Run with this many seeds and print confidence intervals. Default: 1.",
    ),
    click.option("--report", metavar="FILE", help="Write an HTML page with charts; it needs no network."),
)


class PastError(PhalanxError):
    """A moment before that at which a run was saved."""


class TargetError(PhalanxError):
    """Something that cannot be written."""


def run_options(function: Decorated) -> Decorated:
    """Gives a verb the options that say what to run."""
    return study_options(_with(_RUNS, function))


def study_options(function: Decorated) -> Decorated:
    """Gives a verb the options that say what all its runs have in common."""
    return _with(_STUDY, function)


def _with(options: Sequence[Option], function: Decorated) -> Decorated:
    for option in reversed(options):
        function = option(function)
    return function


def study_from(given: dict[str, Any]) -> Study:
    """The study that options describe. A journal tells its cluster as well as its jobs."""
    if given["cluster"] is None and given["trace"] is not None and has_cluster(given["trace"]):
        given = {**given, "cluster": given["trace"]}
    for name in ("cluster", "trace"):
        if given[name] is None:
            raise click.UsageError(f"Missing option '--{name}'.")
    options = Options(**{name: given[name] for name in Options.__annotations__ if name in given})  # type: ignore[typeddict-item]
    study = study_of(given["cluster"], given["trace"], options)
    if isinstance(study.source, Recorded):
        for note in study.source.trace.notes:
            tell_note(note)
        tell_bad_rows(study.source.trace)
    for note in _not_measured(study):
        tell_note(note)
    return study


def _not_measured(study: Study) -> Iterable[str]:
    if study.throughputs is None:
        return ()
    if isinstance(study.source, Recorded):
        trace = study.source.trace
    else:
        # Which models jobs have is the same at every load.
        trace = study.source.at(study.cluster.gpus, study.load or 1.0, study.seed, study.seed)
    # A cluster that is taken as a number of GPUs has no types.
    cluster = as_pool(study.cluster) if study.placement == COUNT else study.cluster
    return gaps(study.throughputs, trace, cluster)


def variation_from(given: dict[str, Any]) -> Variation | None:
    """What `--vary` asks for."""
    return Variation.parse(given["vary"]) if given["vary"] else None


def one_policy(policies: Sequence[str], why: str) -> str | None:
    """The policy where only one has a meaning; None if none is given."""
    if len(policies) > 1:
        raise click.UsageError(f"--policy is given {len(policies)} times ({', '.join(policies)}): {why}.")
    return policies[0] if policies else None


def until_after(simulation: Simulation, until: str | None, path: str) -> int | None:
    """The moment up to which a saved run is to go on; one that has passed is an error."""
    until_ms = until_of(until)
    if until_ms is not None and until_ms < simulation.now_ms:
        saved = f"{duration_text(simulation.now_ms / 1000)} ({simulation.now_ms / 1000:,.15g} s)"
        raise PastError(f"--until {until}: {path} was saved at {saved} of virtual time, and no run goes back")
    return until_ms


def check_targets(given: dict[str, Any], names: Iterable[str]) -> None:
    """Finds out before a long run whether what it is to write could be written."""
    for name in names:
        if given.get(name) is None:
            continue
        path = Path(given[name])
        if path.is_dir() or not path.parent.is_dir():
            reason = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise TargetError(f"--{name.replace('_', '-')} {path}: {reason}")
    if given.get("report") and find_spec("plotly") is None:
        raise TargetError("--report needs plotly: pip install plotly")


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs that finished, in order; whether they were interrupted; and what went wrong with others."""

    finished: list[tuple[Case, Result]]
    interrupted: bool = False
    error: PhalanxError | None = None

    def end(self, cases: int) -> int | None:
        """Ends a verb that has shown what finished: names what did not."""
        if self.error is not None:
            if self.finished:
                tell_note(f"{len(self.finished)} of {cases} runs are finished; the others are not in what is shown")
            raise self.error
        if self.interrupted:
            click.echo(f"phalanx: interrupted; {len(self.finished)} of {cases} runs are finished", err=True)
            return Exit.INTERRUPTED
        return None


def run_all(study: Study, cases: Sequence[Case], workers: int | None) -> Runs:
    """Runs cases. One that goes wrong leaves the others what they are."""
    results: dict[int, Result] = {}
    interrupted, failure = False, None
    with bar(len(cases), "runs") as tell, closing(run_cases(study, cases, workers)) as runs:
        try:
            if tell is not None:
                tell(0, "")
            for number, result in runs:
                results[number] = result
                if tell is not None:
                    tell(len(results), str(result.summary["policy"]))
        except KeyboardInterrupt:
            interrupted = True
        except PhalanxError as error:
            failure = error
    return Runs([(cases[number], results[number]) for number in sorted(results)], interrupted, failure)


def report(
    given: dict[str, Any],
    results: Sequence[Result],
    title: str,
    curves: Sequence[Curve] = (),
    runs: Sequence[tuple[Case, Result]] = (),
) -> None:
    """Writes the report of results, if one is wanted; `runs` are all that the curves are of."""
    if given["report"] is not None and results:
        of = tuple(
            RunOf(case.policy, case.load, case.seed, str(result.summary["digest"]), case.nodes) for case, result in runs
        )
        write_report(results, given["report"], title, curves, Repeat(command_line(), of))


def command_line() -> str:
    """The command as it was given, option by option."""
    context = click.get_current_context()
    words = ["phalanx", str(context.info_name)]
    for option in context.command.params:
        if option.name is None or context.get_parameter_source(option.name) is not ParameterSource.COMMANDLINE:
            continue
        value, name = context.params[option.name], max(option.opts, key=len)
        for each in value if isinstance(value, tuple) else (value,):
            words.extend((name,) if each is True else (name, str(each)))
    return shlex.join(words)


def measure_columns(results: Sequence[Result]) -> list[Column]:
    """The columns of a comparison, without those that say nothing of these results."""
    return [Column(each.key, each.title.upper(), wide=each.key in WIDE) for each in measures_of(results)]


def note_never_fit(results: Sequence[Result]) -> None:
    """Tells of jobs that the cluster, their queue or their virtual cluster can never hold."""
    for result in results[:1]:
        for note in never_fit_notes(result.summary):
            tell_note(note)


def note_kept_advice(results: Sequence[Result]) -> None:
    """Tells of solvers that gave no answer."""
    for result in results:
        times = result.setup["advice_kept"]
        if times:
            often = "once" if times == 1 else f"{times:,} times"
            policy = result.summary["policy"]
            tell_note(f"policy {policy}: its solver found no answer {often}; the last advice was kept")


def tell_note(note: str) -> None:
    click.echo(f"note: {note}", err=True)
