"""Staying with jobs: Ctrl-C ends the waiting, and says that the jobs go on."""

from __future__ import annotations

from typing import Any, cast

import pytest

from phalanx.cli import attend
from phalanx.cli.client import Client


def test_ctrl_c_says_how_to_cancel_the_jobs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(attend, "_follow", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attend.follow_all(cast("Client", None), [{"id": "7"}, {"id": "8"}])
    assert "`phalanx cancel 7 8`" in capsys.readouterr().err
