"""The batch of a training that is resized: what the job file may say, and what ranks make of it."""

from __future__ import annotations

from math import sqrt

import pytest

from phalanx.document import DocumentError
from phalanx.errors import PhalanxError
from phalanx.train.data import Batch, Member
from phalanx.words.batch import batch_words
from phalanx.workload.batch import BatchRule, LearningRate, OnResize, parse_rule
from phalanx.workload.formats.native import read_job

ELASTIC = "gang: [{replicas: {min: 2, max: 6}, gpus: 1}]\n"
UNEVEN = "is not shared out evenly, some have a sample more than others"


def variable(text: str) -> str:
    return dict(read_job(text, "job.yaml").execution.env)["PHALANX_BATCH"]


def error_of(text: str) -> str:
    with pytest.raises(DocumentError) as caught:
        read_job(text, "job.yaml")
    return str(caught.value)


def batch_of(text: str, world_size: int, monkeypatch: pytest.MonkeyPatch) -> Batch:
    monkeypatch.setenv("PHALANX_BATCH", variable(text))
    return Batch.of_this_job(member=Member(0, world_size))


def test_the_rule_is_handed_to_ranks_in_a_variable_that_keeps_its_form() -> None:
    assert variable(ELASTIC + "batch: {global: 12}") == "global=12,full=6,on_resize=constant,lr=same,ranks_each=1"
    rule = BatchRule(48, 6, OnResize.SCALE, LearningRate.SQRT, ranks_each=4)
    assert rule.text() == "global=48,full=6,on_resize=scale,lr=sqrt,ranks_each=4"
    assert parse_rule(rule.text()) == rule


def test_a_job_without_the_key_has_no_variable() -> None:
    assert read_job(ELASTIC, "job.yaml").execution.env == ()


def test_a_constant_batch_is_the_same_at_any_size_and_only_the_accumulation_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = [batch_of(ELASTIC + "batch: {global: 24}", world, monkeypatch) for world in (2, 3, 4, 6)]
    assert [(size.global_batch, size.lr_factor) for size in sizes] == [(24, 1.0)] * 4
    assert [size.share for size in sizes] == [12, 8, 6, 4]
    assert [size.accumulation(4) for size in sizes] == [3, 2, 2, 1]


@pytest.mark.parametrize(("lr", "factors"), [("linear", [0.5, 1]), ("sqrt", [sqrt(0.5), 1]), ("same", [1, 1])])
def test_a_scaled_batch_keeps_each_ranks_share_and_the_learning_rate_follows_its_rule(
    lr: str, factors: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{ELASTIC}batch: {{global: 24, on_resize: scale, lr: {lr}}}"
    sizes = [batch_of(text, world, monkeypatch) for world in (3, 6)]
    assert [(size.global_batch, size.share) for size in sizes] == [(12, 4), (24, 4)]
    assert [size.lr_factor for size in sizes] == factors


def test_ranks_of_one_replica_of_the_model_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "gang: [{replicas: {min: 1, max: 4}, gpus: 4}]\nparallel: {tp: 2, pp: 2, dp: 4}\nbatch: {global: 24}"
    assert variable(text) == "global=24,full=4,on_resize=constant,lr=same,ranks_each=4"
    size = batch_of(text, 8, monkeypatch)
    assert (size.replicas, size.share) == (2, 12)
    with pytest.raises(PhalanxError, match="6 ranks are not whole replicas of the model, which have 4 each"):
        batch_of(text, 6, monkeypatch)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "gang: [{replicas: {min: 4, max: 6}, gpus: 1}]\nbatch: {global: 7}",
            "a batch of 7 is divided by none of the sizes that the gang may have, 4, 5, 6 ranks: give a multiple of",
        ),
        (
            "gang: [{replicas: {min: 2, max: 2}, gpus: 4}]\nparallel: {tp: 4, pp: 1, dp: 2}\nbatch: {global: 7}",
            "2 replicas of 4 ranks: give a multiple of one of them",
        ),
        (ELASTIC + "batch: {global: 8, on_resize: scale, lr: linear}", "is not divided by its 6 ranks"),
        (ELASTIC + "batch: {global: 12, on_resize: scale}", "the key 'lr' is missing"),
        (ELASTIC + "batch: {global: 12, lr: linear}", "needs no other learning rate, leave it out"),
        (ELASTIC + "batch: {global: 12, on_resize: scale, lr: cubic}", "expected one of linear, sqrt, same"),
        (ELASTIC + "batch: {global: 5}", "a batch of 5 has no sample for some of 6 ranks: give at least 6"),
        (ELASTIC + "batch: {}", "key 'batch': the key 'global' is missing"),
        ("kind: service\ngpus: 1\nbatch: {global: 4}", "only a training has batches, and this is a service job"),
        (
            "gang: [{role: a, gpus: 1}, {role: b, gpus: 1}]\nbatch: {global: 4}",
            "expected a gang of one role of single tasks beside 'batch'",
        ),
    ],
)
def test_a_batch_that_cannot_be_is_refused_when_the_job_is_submitted(text: str, told: str) -> None:
    assert told in error_of(text)


def test_a_constant_batch_is_shared_out_at_a_size_that_does_not_divide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    size = batch_of(ELASTIC + "batch: {global: 24}", 5, monkeypatch)
    assert (size.global_batch, size.share, size.accumulation(2)) == (24, 5, 3)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            ELASTIC + "batch: {global: 24}",
            f"at 5 ranks its batch of 24 {UNEVEN}; one of 60 is",
        ),
        (
            "gang: [{replicas: {min: 1, max: 3}, gpus: 8}]\nparallel: {tp: 8, pp: 1, dp: 3}\nbatch: {global: 64}",
            f"at 3 replicas of 8 ranks its batch of 64 {UNEVEN}; one of 66 is",
        ),
        # No batch that divides them all is near.
        (
            "gang: [{replicas: {min: 1, max: 16}, gpus: 1}]\nbatch: {global: 1024}",
            f"at 3, 5, 6, 7, 9, 10, …, 15 ranks its batch of 1024 {UNEVEN}",
        ),
        (ELASTIC + "batch: {global: 60}", ""),
        (ELASTIC + "batch: {global: 24, on_resize: scale, lr: same}", ""),
        (ELASTIC + "env: {PHALANX_BATCH: mine}", ""),
        ("gpus: 1", ""),
    ],
)
def test_sizes_at_which_a_batch_is_not_shared_out_evenly_are_told(text: str, told: str) -> None:
    assert batch_words(read_job("name: pretrain\n" + text, "job.yaml")) == (told and f"pretrain: {told}")


def test_more_ranks_than_a_batch_has_samples_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PhalanxError, match="batch of 24 has no sample for some of 25 ranks"):
        batch_of(ELASTIC + "batch: {global: 24}", 25, monkeypatch)


def test_a_training_without_a_job_file_names_its_batch_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PHALANX_BATCH", raising=False)
    assert Batch.of_this_job(256, Member(0, 4)) == Batch(256, 4)
    with pytest.raises(PhalanxError, match="give the job file a key 'batch'"):
        Batch.of_this_job(member=Member(0, 4))


def test_a_variable_that_is_no_rule_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_BATCH", "global=many")
    with pytest.raises(PhalanxError, match="PHALANX_BATCH is 'global=many', which is no rule of a job file"):
        Batch.of_this_job(member=Member(0, 4))
