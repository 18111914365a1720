"""Options that say what the cluster is at the first start: later they are compared with what there is, and told."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import Server, eventually

FIRST = ("--simulate", "--nodes", "2", "--gpus", "4", "--policy", "fifo")


def second_start(folder: Path, *options: str) -> str:
    """What a server tells that is started again with other options."""
    Server(folder, *FIRST).start().stop()
    server = Server(folder, *options).start()
    noted = folder / "run" / "unheeded"
    eventually(noted.exists)
    told = noted.read_text()
    if told:
        assert told in server.told()
    server.stop()
    return told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--policy", "srtf"), "--policy srtf is not heeded: this folder has a server with policy fifo"),
        (("--simulate", "--nodes", "3", "--gpus", "4"), "--simulate --nodes 3 --gpus 4 is not heeded"),
    ],
)
def test_an_option_of_the_first_start_that_says_otherwise_later_is_told(
    folder: Path, options: tuple[str, ...], told: str
) -> None:
    line = second_start(folder, *options)
    assert told in line
    assert "`phalanx apply" in line


def test_a_cluster_file_that_says_otherwise_is_told(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes: [{count: 3, gpus: 8}]\n")
    line = second_start(folder, "--cluster", str(file))
    assert f"--cluster {file} is not heeded" in line
    assert f"`phalanx apply {file}` changes it" in line


@pytest.mark.parametrize("options", [FIRST, ()])
def test_what_is_as_it_was_is_no_news(folder: Path, options: tuple[str, ...]) -> None:
    assert second_start(folder, *options) == ""
