"""The `needs` marker itself: skipped with a hint here, failed where everything is demanded."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).parents[1] / "conftest.py"


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite where `absent` cannot be had and `present` can."""
    monkeypatch.delenv("PHALANX_REQUIRE", raising=False)
    pytester.makeconftest(
        CONFTEST.read_text()
        + """
NEEDS["absent"] = Need(lambda: False, "buy one")
NEEDS["present"] = Need(lambda: True, "look again")
NEEDS["machine"] = Need(lambda: False, "another machine", is_of_machine=True)
NEEDS["minutes"] = Need(lambda: True, "take your time", by_name=True)
"""
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.needs("absent")
        def test_one(): ...

        @pytest.mark.needs("present", "absent")
        def test_two(): ...

        @pytest.mark.needs("present")
        def test_three(): ...
        """
    )
    return pytester


def test_what_is_missing_is_skipped_with_one_line_that_says_how_to_get_it(suite: pytest.Pytester) -> None:
    result = suite.runpytest("--strict-markers")
    result.assert_outcomes(passed=1, skipped=2)
    assert result.outlines.count("skipped 2 that need absent; to run them: buy one") == 1


@pytest.mark.long
def test_the_line_is_printed_once_when_the_tests_run_in_several_processes(suite: pytest.Pytester) -> None:
    result = suite.runpytest("-n", "2")
    result.assert_outcomes(passed=1, skipped=2)
    assert result.outlines.count("skipped 2 that need absent; to run them: buy one") == 1


@pytest.mark.parametrize("demand", ["all", "absent", "torch,absent"])
def test_what_is_missing_fails_when_it_is_demanded(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, demand: str
) -> None:
    monkeypatch.setenv("PHALANX_REQUIRE", demand)
    result = suite.runpytest()
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["*needs absent, which PHALANX_REQUIRE demands: buy one*"])


def test_what_is_missing_is_skipped_when_something_else_is_demanded(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_REQUIRE", "present")
    suite.runpytest().assert_outcomes(passed=1, skipped=2)


@pytest.mark.parametrize(("demand", "outcome"), [("all", "skipped"), ("machine", "errors")])
def test_what_only_some_machines_have_is_demanded_by_its_name_alone(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, demand: str, outcome: str
) -> None:
    suite.makepyfile("import pytest\n@pytest.mark.needs('machine')\ndef test_four(): ...")
    monkeypatch.setenv("PHALANX_REQUIRE", demand)
    suite.runpytest().assert_outcomes(**{outcome: 1})


@pytest.mark.parametrize(("demand", "outcome"), [("", "skipped"), ("all", "skipped"), ("all,minutes", "passed")])
def test_what_takes_minutes_runs_only_where_its_name_is_demanded(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, demand: str, outcome: str
) -> None:
    suite.makepyfile("import pytest\n@pytest.mark.needs('minutes')\ndef test_four(): ...")
    monkeypatch.setenv("PHALANX_REQUIRE", demand)
    suite.runpytest().assert_outcomes(**{outcome: 1})


def test_a_misspelled_need_stops_the_run(suite: pytest.Pytester) -> None:
    suite.makepyfile("import pytest\n@pytest.mark.needs('trch')\ndef test_four(): ...")
    result = suite.runpytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_four needs 'trch', which is not one of polars, *"])


@pytest.mark.long
def test_bytes_that_differ_from_worker_to_worker_are_the_same_tests_in_each(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile(
        """
        import os
        import pytest

        @pytest.mark.parametrize("packed", [os.urandom(8), os.urandom(8)])
        def test_one(packed): ...
        """
    )
    pytester.runpytest("-n", "2").assert_outcomes(passed=2)
