"""Which steps stay: the last, every k-th, the best; and always one that is good."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import model, pieces_of, save

from phalanx.train.checkpoint.store import Retention, Step, claim, newest_intact, open_medium, retire, steps, write_step
from phalanx.train.checkpoint.store.manifest import Mark
from phalanx.train.checkpoint.store.step import attempted

pytestmark = pytest.mark.needs("torch")


def numbers(root: Path) -> list[int]:
    return [each.step for each in steps(root)]


def keep(root: Path, *saved: int) -> None:
    for step in saved:
        save(str(root), step, {"embed.weight": model(step)["embed.weight"]}, world=1)


def harm(root: Path, step: int) -> None:
    file = root / f"step-{step:08d}" / "__0_0.distcp"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def test_the_last_and_every_kth_and_the_best_stay(tmp_path: Path) -> None:
    keep(tmp_path, 100, 200, 250, 300, 400, 450)
    removed = retire(tmp_path, Retention(last=2, every=200, best=0))
    assert [each.step for each in removed] == [100, 250, 300]
    assert numbers(tmp_path) == [200, 400, 450]


def test_the_best_by_a_metric_stay(tmp_path: Path) -> None:
    keep(tmp_path, 1, 2, 3, 4)  # the loss falls with the step
    retire(tmp_path, Retention(last=1, best=1, lowest=False))
    assert numbers(tmp_path) == [1, 4]


def test_the_newest_stays_though_nothing_is_asked_to(tmp_path: Path) -> None:
    keep(tmp_path, 1, 2)
    retire(tmp_path, Retention(last=0))
    assert numbers(tmp_path) == [2]


def test_the_only_good_step_is_never_taken_away(tmp_path: Path) -> None:
    keep(tmp_path, 1, 2, 3)
    harm(tmp_path, 3)
    assert [each.step for each in retire(tmp_path, Retention(last=1))] == [1]
    found = newest_intact(tmp_path)
    assert found is not None
    assert found.step.step == 2


def test_nothing_is_taken_away_where_nothing_is_good(tmp_path: Path) -> None:
    keep(tmp_path, 1, 2)
    harm(tmp_path, 1)
    harm(tmp_path, 2)
    assert retire(tmp_path, Retention(last=1)) == []
    assert numbers(tmp_path) == [1, 2]


def test_the_newest_good_step_stays_though_an_older_one_is_kept(tmp_path: Path) -> None:
    keep(tmp_path, 10, 11, 12, 13)
    harm(tmp_path, 13)
    assert [each.step for each in retire(tmp_path, Retention(last=1, every=10))] == [11]
    assert numbers(tmp_path) == [10, 12, 13]


def test_parts_that_others_do_not_have_yet_do_not_count_as_good(tmp_path: Path) -> None:
    keep(tmp_path, 1, 2, 3)
    assert retire(tmp_path, Retention(last=1), upto=-1) == []
    assert [each.step for each in retire(tmp_path, Retention(last=1), upto=2)] == [1]
    harm(tmp_path, 2)
    keep(tmp_path, 4)
    assert retire(tmp_path, Retention(last=1), upto=2) == [], "the newest that all have is damaged here"


def test_a_step_that_is_being_taken_away_is_told_when_its_mark_is_gone(tmp_path: Path) -> None:
    keep(tmp_path, 1, 2)
    seen = []
    retire(tmp_path, Retention(last=1), on_removal=lambda url: seen.append((url, numbers(tmp_path))))
    assert seen == [(str(tmp_path / "step-00000001"), [2])]


HARMS = ("flip", "cut", "drop", "mark", "manifest")


def harmed(root: Path, step: int, how: str) -> None:
    directory = root / f"step-{step:08d}"
    file = directory / {"mark": "COMMITTED", "manifest": "manifest.json"}.get(how, "__0_0.distcp")
    content = bytearray(file.read_bytes()) if file.exists() else bytearray(1)
    if how == "drop":
        file.unlink(missing_ok=True)
    elif how == "cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 1
        file.write_bytes(content)


@given(
    history=st.lists(
        st.one_of(
            st.just(("save",)),
            st.tuples(st.just("harm"), st.integers(0, 30), st.sampled_from(HARMS)),
            st.tuples(st.just("retire"), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)),
        ),
        min_size=1,
        max_size=14,
    )
)
def test_whatever_is_damaged_when_the_newest_good_step_outlives_every_tidying(history: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        saved = 0
        for what, *details in history:
            there = [each.step for each in attempted(root)]
            if what == "save":
                saved += 1
                keep(root, saved)
            elif what == "harm" and there:
                harmed(root, there[details[0] % len(there)], details[1])
            elif what == "retire":
                before = newest_intact(root)
                last, every, best = details
                gone = retire(root, Retention(last=last, every=every, best=best))
                after = newest_intact(root)
                assert (after and after.step.order) == (before and before.step.order)
                assert before is None or all(each.order < before.step.order for each in gone)


def test_what_dead_trainers_left_unfinished_goes_and_what_is_being_written_stays(tmp_path: Path) -> None:
    pieces = pieces_of(model(1), "fsdp", 0, 1)
    dead = claim(tmp_path, job="a")
    write_step(tmp_path, 10, 0, 1, pieces, {}, term=dead.term)
    alive = claim(tmp_path, job="a")
    write_step(tmp_path, 20, 0, 1, pieces, {}, term=alive.term)
    keep_in_term(tmp_path, 15, alive.term)
    retire(tmp_path, Retention(last=1), term=alive.term)
    names = sorted(each.name for each in tmp_path.iterdir() if not each.name.startswith("."))
    assert names == ["step-00000015.t2", "step-00000020.t2"]


def keep_in_term(root: Path, step: int, term: int) -> None:
    from phalanx.train.checkpoint.store import commit

    write_step(root, step, 0, 1, pieces_of(model(1), "fsdp", 0, 1), {}, term=term)
    commit(root, step, [0], term=term)


def test_a_step_that_is_being_taken_away_does_not_pass_for_one(tmp_path: Path) -> None:
    keep(tmp_path, 1, 2)
    (tmp_path / "step-00000002" / "COMMITTED").unlink()
    found = newest_intact(tmp_path)
    assert found is not None
    assert found.step.step == 1


@given(
    saved=st.lists(st.tuples(st.integers(0, 50), st.floats(0, 9)), min_size=1, max_size=20, unique_by=lambda x: x[0]),
    last=st.integers(0, 5),
    every=st.integers(0, 7),
    best=st.integers(0, 3),
)
def test_what_is_kept_is_what_the_rule_says(saved: list[tuple[int, float]], last: int, every: int, best: int) -> None:
    place = open_medium("memory://rule")
    committed = [Step(place, Mark(step, 0, 1, True, 0, 0.0, {"loss": loss}, "")) for step, loss in sorted(saved)]
    kept = {each.step for each in Retention(last, every, best).kept(committed)}
    present = [each.step for each in committed]
    assert set(present[-max(1, last) :]) <= kept
    assert {step for step in present if every and step % every == 0} <= kept
    losses = sorted(each.metrics["loss"] for each in committed)
    worst_kept = losses[best - 1] if 0 < best <= len(losses) else (math.inf if best else -math.inf)
    for each in committed:
        if each.metrics["loss"] < worst_kept:
            assert each.step in kept
    assert len(kept) <= max(1, last) + best + sum(1 for step in present if every and step % every == 0)


@pytest.mark.parametrize("name", ["last", "every", "best"])
def test_a_negative_number_to_keep_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected 0 or more, got -1"):
        Retention(**{name: -1})
