"""`phalanx checkpoint`: looks at checkpoints at rest, checks, copies, reshards and compares them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.exit import Exit
from phalanx.cli.output import Column, Output, emit, emit_one, output_option
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.train.checkpoint.store import Source, Step
    from phalanx.train.checkpoint.store.step import Attempted

STEP_COLUMNS = (
    Column("step"),
    Column("term"),
    Column("state"),
    Column("ranks"),
    Column("bytes"),
    Column("committed_at"),
    Column("metrics"),
    Column("path", wide=True),
)
VERIFY_COLUMNS = (Column("step"), Column("term"), Column("state"), Column("problems"), Column("path", wide=True))
WRITTEN_COLUMNS = (Column("path"), Column("step"), Column("ranks"), Column("bytes"))
EXPORT_COLUMNS = (Column("path"), Column("files"))
DIFFERENCE_COLUMNS = (
    Column("name"),
    Column("kind"),
    Column("first"),
    Column("second"),
    Column("elements"),
    Column("largest", "LARGEST DIFFERENCE"),
)

COPY_COLUMNS = (Column("lost"), Column("survived"), Column("of"), Column("probability"))

step_option = click.option("--step", type=int, help="The step. Default: the newest intact one.")
trusted_option = click.option(
    "--trusted",
    is_flag=True,
    help="Load objects of any class. Code in the file can then run: use it only for files you trust.",
)


class TorchMissing(PhalanxError):  # noqa: N818
    """Checkpoints are read with torch, which is not installed."""


@click.group()
def checkpoint() -> None:
    """List, verify, copy, reshard and compare stored checkpoints.

    PATH is a directory or a URL that fsspec supports (s3://…, gs://…). It holds a collection of steps, one step, or a
    checkpoint of torch.distributed.checkpoint.
    """


@checkpoint.command()
@click.argument("path", metavar="PATH")
@output_option
def ls(path: str, output: Output) -> None:
    """List the steps at PATH, oldest first. Reads only their commit marks."""
    with torch_needed():
        from phalanx.train.checkpoint.store.errors import NoSuchStep
        from phalanx.train.checkpoint.store.media.medium import is_url, open_medium
        from phalanx.train.checkpoint.store.reading.source import is_checkpoint, source_at
        from phalanx.train.checkpoint.store.step import attempted
    medium = open_medium(path)
    if is_checkpoint(medium):
        rows = [source_row(source_at(medium))]
    else:
        rows = [attempted_row(each) for each in attempted(medium)]
    if not rows and not (is_url(path) or Path(path).exists()):
        raise NoSuchStep(f"{path}: there is no such directory")
    emit(rows if output in ("json", "yaml") else [for_people(row) for row in rows], STEP_COLUMNS, output)


def for_people(row: dict[str, object]) -> dict[str, object]:
    metrics = row["metrics"]
    assert isinstance(metrics, dict)
    return row | {"metrics": [f"{name}={value:.6g}" for name, value in metrics.items()] or None}


def source_row(source: Source) -> dict[str, object]:
    if source.step:
        return step_row(source.step)
    size = sum(file.bytes for file in source.manifest.files.values())
    row: dict[str, object] = {"step": None, "term": None, "state": "dcp", "ranks": None, "bytes": size}
    return row | {"committed_at": None, "metrics": {}, "path": source.directory.url}


def attempted_row(found: Attempted) -> dict[str, object]:
    from phalanx.train.checkpoint.store import Corrupt
    from phalanx.train.checkpoint.store.layout import MARK

    try:
        return step_row(found.committed())
    except Corrupt:
        state = "unfinished" if found.directory.size(MARK) is None else "damaged"
        row: dict[str, object] = {"step": found.step, "term": found.term, "state": state, "ranks": None, "bytes": None}
        return row | {"committed_at": None, "metrics": {}, "path": found.directory.url}


def step_row(step: Step) -> dict[str, object]:
    when = datetime.fromtimestamp(step.committed_at, UTC).isoformat(timespec="seconds")
    return {
        "step": step.step,
        "term": step.term,
        "state": "committed" if step.mark.whole else "committed in part",
        "ranks": step.world_size,
        "bytes": step.bytes,
        "committed_at": when,
        "metrics": step.metrics,
        "path": step.url,
    }


@checkpoint.command()
@click.argument("path", metavar="PATH")
@click.option("--step", type=int, help="Verify only this step. Default: all steps.")
@click.option("--shallow", is_flag=True, help="Check only commit marks, manifests and sizes; read no data.")
@output_option
def verify(path: str, step: int | None, shallow: bool, output: Output) -> int:
    """Verify the checksums of every step at PATH.

    Names the step that a load would use. The exit code is 1 if a committed step is damaged or no step is intact.
    """
    with torch_needed():
        from phalanx.train.checkpoint.store.media.medium import open_medium
        from phalanx.train.checkpoint.store.step import attempted, find_step
    medium = open_medium(path)
    chosen = attempted(medium) if step is None else [find_step(medium, step)]
    rows = [verified(each, deep=not shallow) for each in chosen] or [verified_alone(path, deep=not shallow)]
    emit(rows, VERIFY_COLUMNS, output)
    intact = [row for row in rows if row["state"] == "intact"]
    if intact:
        click.echo(f"newest intact: step {intact[-1]['step']}", err=True)
    else:
        click.echo("no step is intact", err=True)
    return Exit.OK if intact and all(row["state"] != "damaged" for row in rows) else Exit.ERROR


def verified(found: Attempted, *, deep: bool) -> dict[str, object]:
    from phalanx.train.checkpoint.store import Corrupt, problems
    from phalanx.train.checkpoint.store.layout import MARK

    row: dict[str, object] = {"step": found.step, "term": found.term, "path": found.directory.url}
    click.echo(f"reading {found.directory.url}", err=True)
    try:
        reasons = problems(found.committed(), deep=deep)
    except Corrupt as error:
        reasons = list(error.reasons)
    unfinished = reasons and found.directory.size(MARK) is None
    state = "unfinished" if unfinished else "damaged" if reasons else "intact"
    return row | {"state": state, "problems": reasons}


def verified_alone(path: str, *, deep: bool) -> dict[str, object]:
    """PATH is the directory of one checkpoint."""
    from phalanx.train.checkpoint.store import Corrupt, open_medium, problems
    from phalanx.train.checkpoint.store.errors import NoSuchStep
    from phalanx.train.checkpoint.store.reading.source import is_checkpoint
    from phalanx.train.checkpoint.store.step import holds_dcp, read_step

    medium = open_medium(path)
    if not is_checkpoint(medium):
        raise NoSuchStep(f"{path}: there is no checkpoint")
    if holds_dcp(medium):
        raise PhalanxError(
            f"{path}: torch.distributed.checkpoint keeps no digests, so there is nothing to verify it by"
        )
    row: dict[str, object] = {"step": None, "term": None, "path": medium.url}
    try:
        step = read_step(medium)
        row |= {"step": step.step, "term": step.term}
        reasons = problems(step, deep=deep)
    except Corrupt as error:
        reasons = list(error.reasons)
    return row | {"state": "damaged" if reasons else "intact", "problems": reasons}


@checkpoint.command()
@click.argument("path", metavar="PATH")
@click.argument("destination", metavar="DESTINATION")
@step_option
@click.option(
    "--to",
    "form",
    type=click.Choice(["step", "safetensors"]),
    default="step",
    show_default=True,
    help="Copy the whole step, or only its tensors as safetensors files.",
)
@click.option(
    "--prefix",
    default="",
    help="With --to safetensors: copy only tensors with this prefix, and remove it from their names.",
)
@output_option
def cp(path: str, destination: str, step: int | None, form: str, prefix: str, output: Output) -> None:
    """Copy a step from PATH into the collection DESTINATION and verify every byte.

    With --to safetensors, DESTINATION is a directory for `model.safetensors`, or for several files and their index.
    """
    with torch_needed():
        from phalanx.train.checkpoint.store import StoreError, chosen, copy_step, export_safetensors
    source = chosen(path, step)
    if form == "safetensors":
        files = export_safetensors(source, destination, prefix=prefix)
        emit_one({"path": destination, "files": files}, EXPORT_COLUMNS, output)
        return
    if prefix:
        raise click.UsageError("--prefix goes with --to safetensors")
    if source.step is None:
        raise StoreError(
            f"{path}: torch.distributed.checkpoint wrote it; `phalanx checkpoint reshard` makes a step of it"
        )
    emit_written(copy_step(source.step, destination), output)


@checkpoint.command()
@click.argument("path", metavar="PATH")
@click.argument("destination", metavar="DESTINATION")
@click.option("--ranks", type=click.IntRange(min=1), required=True, help="Number of ranks to write for.")
@step_option
@click.option("--as-step", type=click.IntRange(min=0), help="Step number at DESTINATION. Default: unchanged.")
@trusted_option
@output_option
def reshard(
    path: str,
    destination: str,
    ranks: int,
    step: int | None,
    as_step: int | None,
    trusted: bool,
    output: Output,
) -> None:
    """Rewrite a step for another number of ranks, each with its rows of every tensor.

    Loading does not need this: any number of ranks can load what any other number saved. Checkpoints of DeepSpeed's
    ZeRO are loaded after this.
    """
    with torch_needed():
        from phalanx.train.checkpoint.store import chosen
        from phalanx.train.checkpoint.store import reshard as write_anew
        from phalanx.train.checkpoint.store.reading.deepspeed import holds_deepspeed
        from phalanx.train.checkpoint.store.upkeep.conversion import convert_deepspeed
    if step is None and holds_deepspeed(Path(path)):
        emit_written(convert_deepspeed(Path(path), destination, ranks, step=as_step), output)
        return
    emit_written(write_anew(chosen(path, step), destination, ranks, step=as_step, trusted=trusted), output)


@checkpoint.command()
@click.argument("path", metavar="PATH")
@click.argument("other", metavar="[OTHER]", required=False)
@output_option
def diff(path: str, other: str | None, output: Output) -> int:
    """Compare the checkpoints at PATH and OTHER, or the two newest steps at PATH, tensor by tensor and bit by bit.

    The exit code is 1 if they differ.
    """
    with torch_needed():
        from phalanx.train.checkpoint.store import differences
    first, second = two_newest(path) if other is None else pair(path, other)
    click.echo(f"first:  {first.directory.url}\nsecond: {second.directory.url}", err=True)
    rows = [asdict(each) for each in differences(first, second)]
    emit(rows, DIFFERENCE_COLUMNS, output)
    return Exit.ERROR if rows else Exit.OK


@checkpoint.command()
@click.option("--machines", type=click.IntRange(min=1), required=True, help="Number of machines of the training job.")
@click.option(
    "--copies",
    "copy_count",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Number of machines that hold each snapshot in memory, including its own.",
)
@click.option(
    "--lost",
    "lost_most",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Largest number of machines lost at once.",
)
@output_option
def copies(machines: int, copy_count: int, lost_most: int, output: Output) -> None:
    """Calculate the chance that a training job can restore from the memory of its peers when machines are lost.

    For each number of machines lost at once: the share of combinations that leave a copy of every snapshot. The count
    is exact for the placement that the peer tier uses. Starts nothing.
    """
    from math import comb

    from phalanx.train.checkpoint.copies.replicas import place

    placement = place([[machine] for machine in range(machines)], copy_count)
    rows = []
    for lost in range(1, min(lost_most, machines) + 1):
        chance, ways = placement.recovery_probability(lost), comb(machines, lost)
        rows.append({"lost": lost, "survived": int(chance * ways), "of": ways, "probability": float(chance)})
    emit(rows, COPY_COLUMNS, output)


def pair(path: str, other: str) -> tuple[Source, Source]:
    from phalanx.train.checkpoint.store import chosen

    return chosen(path), chosen(other)


def two_newest(path: str) -> tuple[Source, Source]:
    from phalanx.train.checkpoint.store import NoSuchStep, steps
    from phalanx.train.checkpoint.store.reading.source import source_of

    committed = steps(path)
    if len(committed) < 2:
        raise NoSuchStep(f"{path}: expected two steps to compare, found {len(committed)}; or give OTHER")
    return source_of(committed[-2]), source_of(committed[-1])


def emit_written(step: Step, output: Output) -> None:
    row = {"path": step.url, "step": step.step, "ranks": step.world_size, "bytes": step.bytes}
    emit_one(row, WRITTEN_COLUMNS, output)


@contextmanager
def torch_needed() -> Iterator[None]:
    """What a verb imports of `train` stands in here, so that a missing torch is one line."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise TorchMissing(
            f"checkpoints need {error.name}, which is not installed: pip install '.[train]' in a clone of phalanx"
        ) from error
