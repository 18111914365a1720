"""The notebook of the examples runs from its first cell to its last, and jobs of a run are a table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.simulate.figures.result import FrameError
from results import a_job_result, a_result

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.needs("polars")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_to_its_end(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    cells = [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 1
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        assert cell["outputs"] == [], "notebooks are kept without what they print"
        exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)


def test_a_result_tells_itself_in_a_line() -> None:
    text = repr(a_result("backfill", jobs=1_500))
    assert text.startswith("<Result backfill: 1,500 of 1,500 completed, mean JCT ")
    assert len(text) < 120


@pytest.mark.needs("polars")
def test_the_jobs_of_a_result_are_a_table_of_polars() -> None:
    frame = a_result(jobs=20).to_polars()
    assert frame.height == 20
    assert frame.columns == list(a_job_result().__struct_fields__)
    assert frame["nodes"].to_list()[0] == list(a_result(jobs=20).jobs[0].nodes)


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FrameError, match="this needs pandas: pip install 'pandas'"):
        a_result(jobs=1).to_pandas()
