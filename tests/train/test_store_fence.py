"""Two trainers and one directory: one of them is told, and nothing is mixed up."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest
from layouts import model, pieces_of
from processes import run_alone

from phalanx.train.checkpoint.store import (
    DirectoryInUse,
    Fence,
    FencedOut,
    Retention,
    StoreError,
    claim,
    commit,
    newest_intact,
    retire,
    steps,
    write_step,
)

pytestmark = pytest.mark.needs("torch")


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path) if request.param == "local" else f"memory://fence/{request.node.name}"


def write(root: str, step: int, term: int, seed: int = 1) -> None:
    write_step(root, step, 0, 1, pieces_of(model(seed), "fsdp", 0, 1), {"seed": seed}, term=term)


def test_a_restart_of_the_same_job_takes_over_and_the_one_before_is_told(root: str) -> None:
    before = claim(root, job="4821")
    write(root, 10, before.term)
    after = claim(root, job="4821")
    assert after.term > before.term
    with pytest.raises(FencedOut, match=r"job 4821 on .*, process \d+ has claimed it with term 2, ours is 1"):
        write(root, 20, before.term)
    with pytest.raises(FencedOut):
        commit(root, 10, [0], term=before.term)
    with pytest.raises(FencedOut):
        before.renew()
    assert steps(root) == []


def test_another_job_is_kept_out_while_the_first_is_alive(root: str) -> None:
    first = claim(root, job="4821")
    with pytest.raises(DirectoryInUse, match=r"job 4821 on .*, process \d+ writes here"):
        claim(root, job="4822")
    first.check()
    first.release()
    assert claim(root, job="4822").term == first.term + 1


def test_another_job_gets_in_when_the_first_has_been_silent_too_long(root: str) -> None:
    first = claim(root, job="4821", ttl_s=0.0)
    assert claim(root, job="4822").term == first.term + 1


def claim_for_long(root: str) -> None:
    claim(root, job="4821", ttl_s=3600)


def test_another_job_gets_in_at_once_when_the_first_process_is_dead(tmp_path: Path) -> None:
    run_alone(claim_for_long, str(tmp_path))
    assert claim(tmp_path, job="4822").term == 2


def test_an_unfenced_writer_is_kept_out_of_a_claimed_directory(root: str) -> None:
    claim(root)
    with pytest.raises(FencedOut, match="ours is 0"):
        write(root, 1, term=0)


def test_what_a_fenced_trainer_had_written_never_mixes_with_its_successors(root: str) -> None:
    before = claim(root, job="a")
    write(root, 10, before.term, seed=1)
    after = claim(root, job="a")
    write(root, 10, after.term, seed=2)
    commit(root, 10, [0], term=after.term)
    found = newest_intact(root)
    assert found is not None
    assert found.step.term == after.term
    assert retire(root, Retention(), term=after.term) == []
    assert [each.term for each in steps(root)] == [after.term]


def test_many_who_claim_at_once_get_different_terms(root: str) -> None:
    fences: list[Fence] = []
    failures: list[StoreError] = []

    def take() -> None:
        try:
            fences.append(claim(root, job="same"))
        except StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    terms = [each.term for each in fences]
    assert fences
    assert len(set(terms)) == len(terms)
    max(fences, key=lambda each: each.term).check()


def test_a_fence_can_be_sent_to_another_process(root: str) -> None:
    fence = pickle.loads(pickle.dumps(claim(root, job="a")))
    fence.renew()
    fence.check()
