"""Times on the command line: what is taken, and what is refused rather than guessed at."""

from __future__ import annotations

import click
import pytest

from phalanx.cli.drain import drain
from phalanx.cli.when import now_ms, past


@pytest.mark.parametrize("number", ["5", "300", " 5 ", "1.5", "1e3"])
def test_a_past_time_that_is_a_bare_number_is_refused_with_both_ways_to_write_it(number: str) -> None:
    with pytest.raises(click.UsageError, match=rf"--since {number}: .* such as 5m or 24h, or .*2026-01-31T08:00Z"):
        past(number, "--since")


def test_a_past_time_may_be_seconds_since_1970() -> None:
    assert past("1700000000", "--since") == 1_700_000_000_000


def test_a_past_time_is_how_long_ago_or_a_time_with_its_zone() -> None:
    assert now_ms() - 310_000 < past("5m", "--since") <= now_ms() - 300_000
    assert past("2020-01-31T08:00Z", "--since") == 1_580_457_600_000


def test_a_node_is_not_drained_by_a_time_that_is_over() -> None:
    with pytest.raises(click.UsageError, match=r"--by 30: expected a time to come, such as \+30m"):
        drain.main(["n0", "--evict", "--by", "30"], standalone_mode=False)
