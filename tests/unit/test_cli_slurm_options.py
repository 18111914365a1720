"""Options that users of Slurm try: each is answered with what it is called here."""

from __future__ import annotations

import re

import click
import pytest

from phalanx.cli.main import cli
from phalanx.cli.run import run
from phalanx.cli.slurm_options import HERE, hint
from phalanx.cli.submit import submit


@pytest.mark.parametrize("verb", [submit, run])
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--time", "03:00:00"], "No such option '--time'. Slurm's --time is here: `--max-run 3h`"),
        (["-t", "30"], "a number alone is seconds"),
        (["--partition=gpu"], "`--queue QUEUE`; `phalanx queues` lists them"),
        (["-p", "gpu"], "`--queue QUEUE`"),
        (["--gres=gpu:4"], "`--gpus N` for each task, with `--gpu-type TYPE`"),
        (["--ntasks", "4"], "`--tasks N` equal tasks"),
        (["-N2"], "a task of all GPUs of a node has it alone"),
        (["--nodes", "2"], "`--tasks N` equal tasks"),
        (["-d", "afterok:1"], "`--dependency KIND:ID`"),
    ],
)
def test_an_option_of_slurm_is_answered_with_the_one_here(verb: click.Command, arguments: list[str], told: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        verb.make_context("phalanx", [*arguments, "--", "true"])
    assert told in refused.value.message
    assert "If it is one of a command" not in refused.value.message, "the command is set apart already"


def test_no_option_that_there_is_has_another_meaning_in_the_hints() -> None:
    known = {name for option in submit.params for name in (*option.opts, *option.secondary_opts)}
    assert not known & set(HERE)


def test_every_option_and_verb_that_a_hint_names_is_there() -> None:
    known = {name for option in submit.params for name in (*option.opts, *option.secondary_opts)} | {"--alerts"}
    for told in HERE.values():
        assert set(re.findall(r"(?<![\w-])--[a-z-]+", told)) <= known, told
        assert set(re.findall(r"`phalanx ([a-z-]+)", told)) <= set(cli.list_commands(click.Context(cli))), told


def test_an_option_that_slurm_has_not_gets_no_hint() -> None:
    assert hint("--lr") == ""
