"""`phalanx checkpoint`: what people and scripts see of checkpoints at rest."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from layouts import all_same_bits, blank, model, pieces_of, same_bits, save
from safetensors.torch import load_file

from phalanx.cli.checkpoint import checkpoint
from phalanx.cli.main import VERBS, run
from phalanx.train.checkpoint.contents.piece import Piece
from phalanx.train.checkpoint.store import Corrupt, chosen, claim, commit, export_safetensors, load_into, write_step

pytestmark = pytest.mark.needs("torch")


class Call:
    """Runs the verb and gives back exit code, standard output and standard error."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        code = run(checkpoint, [str(each) for each in arguments])
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return Call(capsys)


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    """Two good steps and a save that did not end."""
    root = tmp_path / "run"
    for step in (100, 200):
        save(str(root), step, model(step), "fsdp", world=2)
    write_step(root, 300, 0, 2, pieces_of(model(300), "fsdp", 0, 2), {})
    return root


def harm(root: Path, step: int) -> None:
    file = root / f"step-{step:08d}" / "__1_0.distcp"
    file.write_bytes(file.read_bytes()[:-1])


def save_with_dcp(state: dict[str, object], directory: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=directory)


def test_ls_shows_every_step_and_how_it_stands(call: Call, run_directory: Path) -> None:
    code, out, err = call("ls", run_directory, "-o", "json")
    rows = json.loads(out)
    assert (code, err) == (0, "")
    assert [(row["step"], row["state"], row["ranks"]) for row in rows] == [
        (100, "committed", 2),
        (200, "committed", 2),
        (300, "unfinished", None),
    ]
    assert rows[1]["metrics"] == {"loss": pytest.approx(1 / 201)}
    assert (
        rows[1]["bytes"]
        == sum(each.stat().st_size for each in run_directory.joinpath("step-00000200").iterdir())
        - (run_directory / "step-00000200" / "COMMITTED").stat().st_size
    )
    assert call("ls", run_directory, "-o", "name")[1].split() == ["100", "200", "300"]
    assert call("ls", run_directory)[1].splitlines()[0].split() == [
        "STEP", "TERM", "STATE", "RANKS", "BYTES", "COMMITTED", "AT", "METRICS",
    ]  # fmt: skip


def test_ls_shows_one_step_and_one_that_dcp_wrote(call: Call, run_directory: Path, tmp_path: Path) -> None:
    assert json.loads(call("ls", run_directory / "step-00000100", "-o", "json")[1])[0]["step"] == 100
    save_with_dcp({"w": torch.zeros(4)}, tmp_path / "dcp")
    assert json.loads(call("ls", tmp_path / "dcp", "-o", "json")[1])[0]["state"] == "dcp"


def test_ls_of_an_empty_directory_is_an_empty_list_and_of_none_is_not_found(call: Call, tmp_path: Path) -> None:
    assert call("ls", tmp_path, "-o", "json") == (0, "[]\n", "")
    assert call("ls", "memory://empty", "-o", "json") == (0, "[]\n", "")
    assert call("ls", tmp_path / "nothing")[0] == 3


def test_verify_reads_all_and_names_the_newest_intact_step(call: Call, run_directory: Path) -> None:
    code, out, err = call("verify", run_directory, "-o", "json")
    assert code == 0
    assert [(row["step"], row["state"]) for row in json.loads(out)] == [
        (100, "intact"),
        (200, "intact"),
        (300, "unfinished"),
    ]
    assert "newest intact: step 200" in err


@pytest.mark.parametrize("options", [[], ["--shallow"]])
def test_verify_says_what_is_wrong_with_a_damaged_step(call: Call, run_directory: Path, options: list[str]) -> None:
    harm(run_directory, 200)
    code, out, err = call("verify", run_directory, "-o", "json", *options)
    assert code == 1
    damaged = json.loads(out)[1]
    assert damaged["state"] == "damaged"
    assert "__1_0.distcp has" in damaged["problems"][0]
    assert "newest intact: step 100" in err
    assert call("verify", run_directory, "--step", 100)[0] == 0
    assert call("verify", run_directory / "step-00000200")[0] == 1


def test_verify_of_nothing_and_of_a_step_that_is_not_there_are_not_found(call: Call, run_directory: Path) -> None:
    assert call("verify", run_directory / "nothing")[0] == 3
    code, _, err = call("verify", run_directory, "--step", 7)
    assert code == 3
    assert "no step 7; there are: 100, 200, 300" in err


def test_cp_copies_the_newest_intact_step_to_another_store(call: Call, run_directory: Path) -> None:
    harm(run_directory, 200)
    code, out, _ = call("cp", run_directory, "memory://copies/run", "-o", "json")
    assert code == 0
    assert json.loads(out)["step"] == 100
    found = blank()
    loaded = load_into("memory://copies/run", None, pieces_of(found, "replicated", 0, 1))
    assert all_same_bits(found, model(100))
    assert loaded.step is not None
    assert loaded.step.step == 100
    code, _, err = call("cp", run_directory, "memory://copies/run", "--step", 100)
    assert code == 4
    assert "already there" in err


def test_cp_of_a_damaged_step_is_refused_and_leaves_no_step(call: Call, run_directory: Path, tmp_path: Path) -> None:
    file = run_directory / "step-00000200" / "__0_0.distcp"
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    code, _, err = call("cp", run_directory, tmp_path / "copy", "--step", 200)
    assert code == 1
    assert "__0_0.distcp is damaged" in err
    assert json.loads(call("ls", tmp_path / "copy", "-o", "json")[1])[0]["state"] == "unfinished"


def test_cp_keeps_out_of_a_directory_that_a_trainer_writes_to(call: Call, run_directory: Path, tmp_path: Path) -> None:
    claim(tmp_path / "busy", job="4821")
    code, _, err = call("cp", run_directory, tmp_path / "busy")
    assert code == 4
    assert "job 4821" in err


def test_cp_to_safetensors_exports_the_tensors(call: Call, run_directory: Path, tmp_path: Path) -> None:
    code, out, _ = call("cp", run_directory, tmp_path / "out", "--to", "safetensors", "-o", "json")
    assert code == 0
    assert json.loads(out)["files"] == ["model.safetensors"]
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert all_same_bits({name: found[name] for name in model(200)}, model(200))


def test_cp_to_safetensors_takes_only_a_prefix_and_drops_it(call: Call, run_directory: Path, tmp_path: Path) -> None:
    call("cp", run_directory, tmp_path / "out", "--to", "safetensors", "--prefix", "block.")
    assert sorted(load_file(tmp_path / "out" / "model.safetensors")) == ["attention.weight", "experts", "norm.bias"]
    assert call("cp", run_directory, tmp_path / "out", "--to", "safetensors", "--prefix", "none.")[0] == 3
    assert call("cp", run_directory, tmp_path / "out", "--prefix", "block.")[0] == 2


def test_large_exports_are_spread_over_files_with_an_index(run_directory: Path, tmp_path: Path) -> None:
    files = export_safetensors(chosen(run_directory), tmp_path / "out", shard_bytes=600)
    *shards, index = files
    assert len(shards) > 1
    where = json.loads((tmp_path / "out" / index).read_text())["weight_map"]
    found = {name: load_file(tmp_path / "out" / file)[name] for name, file in where.items()}
    assert all(same_bits(found[name], tensor) for name, tensor in model(200).items())


@pytest.mark.parametrize("ranks", [1, 3])
def test_reshard_writes_the_step_anew_for_other_ranks(
    call: Call, run_directory: Path, tmp_path: Path, ranks: int
) -> None:
    code, out, _ = call("reshard", run_directory, tmp_path / "out", "--ranks", ranks, "-o", "json")
    assert code == 0
    assert json.loads(out)["ranks"] == ranks
    assert len(list((tmp_path / "out").glob("*/__*_0.distcp"))) == ranks
    found = blank()
    loaded = load_into(tmp_path / "out", 200, pieces_of(found, "replicated", 0, 1))
    assert all_same_bits(found, model(200))
    assert torch.equal(loaded.objects["rng.rank1"], torch.arange(4))
    assert call("diff", run_directory / "step-00000200", tmp_path / "out")[0] == 0
    assert call("reshard", run_directory, tmp_path / "out", "--ranks", ranks)[0] == 4


def test_reshard_makes_a_step_of_what_dcp_wrote(call: Call, tmp_path: Path) -> None:
    save_with_dcp({"model": model(5), "epoch": 3}, tmp_path / "dcp")
    code, _, err = call("reshard", tmp_path / "dcp", tmp_path / "out", "--ranks", 2)
    assert code == 1
    assert "has no step number" in err
    assert call("reshard", tmp_path / "dcp", tmp_path / "out", "--ranks", 2, "--as-step", 40)[0] == 0
    found = blank()
    pieces = [Piece.whole(f"model.{name}", tensor) for name, tensor in found.items()]
    assert load_into(tmp_path / "out", 40, pieces).objects == {"epoch": 3}
    assert all_same_bits(found, model(5))


def test_diff_of_the_two_newest_steps_names_what_changed(call: Call, tmp_path: Path) -> None:
    for step, tensors in (
        (1, {"same": torch.ones(5), "moved": torch.zeros(4), "old": torch.ones(1), "grown": torch.ones(2)}),
        (
            2,
            {
                "same": torch.ones(5),
                "moved": torch.tensor([0, 0.5, 0, -2]),
                "new": torch.ones(1),
                "grown": torch.ones(3),
            },
        ),
    ):
        pieces = [Piece.whole(name, each) for name, each in tensors.items()]
        write_step(tmp_path, step, 0, 1, pieces, {"epoch": step, "lr": 0.1})
        commit(tmp_path, step, [0])
    code, out, err = call("diff", tmp_path, "-o", "json")
    assert code == 1
    assert "step-00000001" in err
    rows = {row["name"]: row for row in json.loads(out)}
    assert {name: row["kind"] for name, row in rows.items()} == {
        "grown": "shape",
        "moved": "values",
        "new": "only in second",
        "old": "only in first",
        "epoch": "object",
    }
    assert (rows["moved"]["elements"], rows["moved"]["largest"]) == (2, 2.0)
    assert (rows["grown"]["first"], rows["grown"]["second"]) == ("float32 [2]", "float32 [3]")


def test_diff_of_a_step_with_itself_is_empty(call: Call, run_directory: Path) -> None:
    step = run_directory / "step-00000100"
    assert call("diff", step, step, "-o", "json")[:2] == (0, "[]\n")


def test_diff_of_values_that_are_no_numbers_is_still_json(call: Call, tmp_path: Path) -> None:
    for step, value in ((1, 0.0), (2, float("inf"))):
        write_step(tmp_path, step, 0, 1, [Piece.whole("w", torch.full((3,), value))], {})
        commit(tmp_path, step, [0])
    code, out, _ = call("diff", tmp_path, "-o", "json")
    assert code == 1
    assert json.loads(out)[0]["largest"] is None


def test_diff_needs_two_steps(call: Call, tmp_path: Path) -> None:
    code, _, err = call("diff", tmp_path)
    assert code == 3
    assert "expected two steps" in err


def test_a_broken_step_cannot_be_chosen_by_number(run_directory: Path) -> None:
    harm(run_directory, 200)
    with pytest.raises(Corrupt, match=r"__1_0\.distcp has"):
        chosen(run_directory, 200)


def test_the_verb_is_known_and_its_help_loads_no_torch() -> None:
    assert VERBS["checkpoint"].load() is checkpoint
    code = "import sys, phalanx.cli.checkpoint; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_copies_tells_exactly_what_memory_survives(call: Call) -> None:
    code, out, _ = call("copies", "--machines", 6, "--copies", 2, "--lost", 9, "-o", "json")
    rows = json.loads(out)
    assert code == 0
    assert [(row["lost"], row["survived"], row["of"]) for row in rows[:3]] == [(1, 6, 6), (2, 12, 15), (3, 8, 20)]
    assert rows[1]["probability"] == 0.8
    assert len(rows) == 6, "no more than all machines can be lost"
