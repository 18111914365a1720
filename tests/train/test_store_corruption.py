"""Five hundred accidents to files at rest: never wrong bytes, always the newest intact step named."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from layouts import all_same_bits, blank, model, pieces_of, save

from phalanx.train.checkpoint.store import NoSuchStep, load_into, newest_intact

pytestmark = pytest.mark.needs("torch")

STEPS = (100, 200, 300)
ACCIDENTS = 500
BATCHES = 10


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three good steps."""
    root = tmp_path_factory.mktemp("pristine")
    for step in STEPS:
        save(str(root), step, model(step), "fsdp", world=2)
    return root


def truncate(file: Path, draw: random.Random, root: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: draw.randrange(len(content))])


def flip(file: Path, draw: random.Random, root: Path) -> None:
    content = bytearray(file.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)


def drop(file: Path, draw: random.Random, root: Path) -> None:
    file.unlink()


def reorder(file: Path, draw: random.Random, root: Path) -> None:
    """Two stretches of a file change places, as after blocks written out of order."""
    content = file.read_bytes()
    size = max(1, len(content) // 4)
    first = draw.randrange(max(1, len(content) - 2 * size))
    second = first + size
    file.write_bytes(
        content[:first] + content[second : second + size] + content[first:second] + content[second + size :]
    )


def swap(file: Path, draw: random.Random, root: Path) -> None:
    """Two files of a step change names."""
    other = draw.choice(sorted(file.parent.iterdir()))
    one, two = file.read_bytes(), other.read_bytes()
    file.write_bytes(two)
    other.write_bytes(one)


def stale(file: Path, draw: random.Random, root: Path) -> None:
    """A file is what it was, or will be, in another step: its mark above all."""
    other = draw.choice([each for each in sorted(root.iterdir()) if each != file.parent])
    name = draw.choice(["COMMITTED", file.name])
    if (other / name).exists():
        shutil.copy(other / name, file.parent / name)


def stale_step(file: Path, draw: random.Random, root: Path) -> None:
    """A whole directory is a copy of another step's."""
    other = draw.choice([each for each in sorted(root.iterdir()) if each != file.parent])
    shutil.rmtree(file.parent)
    shutil.copytree(other, file.parent)


def blank_out(file: Path, draw: random.Random, root: Path) -> None:
    """The right length, and zeros: what some file systems leave after a power cut."""
    file.write_bytes(bytes(file.stat().st_size))


def extend(file: Path, draw: random.Random, root: Path) -> None:
    file.write_bytes(file.read_bytes() + bytes(draw.randrange(1, 100)))


KINDS: list[Callable[[Path, random.Random, Path], None]] = [
    truncate,
    flip,
    flip,
    drop,
    reorder,
    swap,
    stale,
    stale_step,
    blank_out,
    extend,
]


def harm(root: Path, draw: random.Random) -> list[str]:
    """One to three accidents, more often to newer steps."""
    done = []
    for _ in range(draw.randint(1, 3)):
        step = draw.choices(STEPS, weights=(1, 2, 4))[0]
        files = sorted((root / f"step-{step:08d}").iterdir())
        file = draw.choice([each for each in files if each.stat().st_size] or files)
        if file.stat().st_size:
            kind = draw.choice(KINDS)
            kind(file, draw, root)
            done.append(f"{kind.__name__} {step}/{file.name}")
    return done


def contents(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in directory.iterdir()}


def newest_unharmed(root: Path, pristine: Path) -> int | None:
    """What the answer should be, by comparing bytes with the good copies."""
    for step in reversed(STEPS):
        name = f"step-{step:08d}"
        if contents(root / name) == contents(pristine / name):
            return step
    return None


@pytest.mark.parametrize("batch", range(BATCHES))
def test_after_any_accident_the_newest_intact_step_is_named_and_no_wrong_byte_is_loaded(
    batch: int, pristine: Path, tmp_path: Path
) -> None:
    for number in range(ACCIDENTS // BATCHES):
        draw = random.Random(f"{batch} {number}")
        root = tmp_path / str(number)
        shutil.copytree(pristine, root)
        done = harm(root, draw)
        check(root, newest_unharmed(root, pristine), done)
        shutil.rmtree(root)


def check(root: Path, expected: int | None, done: list[str]) -> None:
    found = newest_intact(root)
    assert (found.step.step if found else None) == expected, done
    if found:
        newer = [step for step in reversed(STEPS) if step > found.step.step]
        assert [each.step for each in found.passed_over] == newer, done
        assert all(each.reasons for each in found.passed_over)
    tensors = blank()
    pieces = pieces_of(tensors, "replicated", 0, 1)
    try:
        loaded = load_into(root, found.step if found else None, pieces)
    except NoSuchStep:
        assert expected is None, done
        return
    assert loaded.step is not None
    # Without a step that is intact to the last byte, one whose tensors all are may still be found.
    assert all_same_bits(tensors, model(loaded.step.step)), done
    assert loaded.objects["step"] == loaded.step.step, done


@pytest.mark.parametrize("batch", range(BATCHES))
def test_loading_the_newest_falls_back_by_itself_and_never_gives_wrong_bytes(
    batch: int, pristine: Path, tmp_path: Path
) -> None:
    """Without checking first: damage to what is needed comes to light while loading."""
    for number in range(20):
        draw = random.Random(f"load {batch} {number}")
        root = tmp_path / str(number)
        shutil.copytree(pristine, root)
        done = harm(root, draw)
        tensors = blank()
        expected = newest_unharmed(root, pristine)
        try:
            loaded = load_into(root, None, pieces_of(tensors, "replicated", 0, 1))
        except NoSuchStep:
            assert expected is None, done
            continue
        assert loaded.step is not None
        assert loaded.step.step >= (expected or 0), done
        assert all_same_bits(tensors, model(loaded.step.step)), done
        assert torch.equal(loaded.objects["rng.rank1"], torch.arange(4)), done
        shutil.rmtree(root)
