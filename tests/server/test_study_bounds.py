"""The process of studies: what takes too long is ended, what is old goes, and a user has so many and no more."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from running import eventually

from phalanx.server.options import Options
from phalanx.server.studies import process
from phalanx.server.studies.asked import Asked
from phalanx.server.studies.limits import STUDIES_OF_ONE, STUDY_KEPT_MS
from phalanx.server.studies.process import Studies
from phalanx.server.studies.shelf import COURSE, TRACE, Course, Shelf, Study, StudyState, write

NOW_MS = 10 * STUDY_KEPT_MS
LOG = logging.getLogger("phalanx.studies")
CLUSTER = "nodes: [{count: 1, gpus: 8}]"
LONG = "synthetic:jobs=1000000,load=0.9"


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """An empty shelf."""
    return Shelf(tmp_path / "studies")


@pytest.fixture
def studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Studies]:
    """The studies of a server at a moment; none of them outlives the test."""
    monkeypatch.setattr(process, "wall_ms", lambda: NOW_MS)
    studies = Studies(Options(data=str(tmp_path)), LOG)
    yield studies
    studies.end()


def asked(user: str = "ada", created_ms: int = NOW_MS) -> Asked:
    return Asked(kind="compare", user=user, created_ms=created_ms, source=LONG, trace="made", cluster=CLUSTER)


def put(shelf: Shelf, state: StudyState, user: str = "ada", created_ms: int = NOW_MS) -> str:
    name = shelf.put(asked(user, created_ms), None)
    write(shelf.folder(name) / COURSE, msgspec.json.encode(Course(state)))
    return name


def found(shelf: Shelf, name: str) -> Study:
    study = shelf.study(name)
    assert study is not None
    return study


def test_a_study_that_takes_too_long_is_ended_and_says_what_to_do(
    shelf: Shelf, studies: Studies, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = shelf.put(asked(), None)
    studies.turn()
    assert found(shelf, name).course.state is StudyState.RUNNING
    monkeypatch.setattr(process, "TIME_S_MAX", 0)
    studies.turn()
    course = found(shelf, name).course
    assert course.state is StudyState.FAILED
    assert course.error.startswith("it took longer than")


def test_of_three_users_two_have_a_study_that_runs_and_the_third_is_next(shelf: Shelf, studies: Studies) -> None:
    names = [shelf.put(asked(user, NOW_MS + at), None) for at, user in enumerate(("ada", "ada", "bob", "eve"))]

    def states() -> list[str]:
        return [found(shelf, name).course.state.value for name in names]

    studies.turn()
    assert states() == ["running", "queued", "running", "queued"]
    shelf.mark(names[2], "cancel")
    studies.turn()
    assert states() == ["running", "queued", "cancelled", "running"]


def test_a_process_that_cannot_be_started_is_told_of_and_not_tried_for_ever(
    shelf: Shelf, studies: Studies, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refuse)
    name = shelf.put(asked(), None)
    studies.turn()
    course = found(shelf, name).course
    assert course.state is StudyState.FAILED
    assert course.error == "its process could not be started: Resource temporarily unavailable"


def test_old_studies_go_and_of_each_user_the_newest_stay(shelf: Shelf, studies: Studies) -> None:
    old = put(shelf, StudyState.DONE, "bob", NOW_MS - STUDY_KEPT_MS - 1)
    many = [put(shelf, StudyState.DONE, created_ms=NOW_MS - 100 + at) for at in range(STUDIES_OF_ONE + 2)]
    young = put(shelf, StudyState.FAILED, "bob")
    studies.turn()
    assert {each.id for each in shelf.studies()} == {young, *many[2:]}
    assert shelf.study(old) is None


def test_what_ran_when_the_server_ended_has_failed_and_a_draft_is_gone(shelf: Shelf, tmp_path: Path) -> None:
    name = put(shelf, StudyState.RUNNING)
    draft = shelf.folder("0" * 16).with_suffix(".draft")
    draft.mkdir()
    Studies(Options(data=str(tmp_path)), LOG)
    assert found(shelf, name).course.error == "the server was stopped while it ran: begin it again"
    assert not draft.exists()


def test_a_trace_stays_with_its_study_until_that_has_ended(shelf: Shelf, studies: Studies, tmp_path: Path) -> None:
    upload = tmp_path / "content"
    upload.write_bytes(b"job_id,submit_s,duration_s,gpus\n")
    name = shelf.put(msgspec.structs.replace(asked(), source="upload"), upload)
    upload.unlink()
    assert (shelf.folder(name) / TRACE).exists()

    def has_ended() -> bool:
        studies.turn()
        return not found(shelf, name).is_under_way

    eventually(has_ended)
    assert "has no job to run" in found(shelf, name).course.error
    assert not (shelf.folder(name) / TRACE).exists()
