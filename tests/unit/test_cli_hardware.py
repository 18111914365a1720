"""`phalanx hardware` and the page of the reference that is made from the same data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from phalanx.cli.hardware import hardware, reference_page
from phalanx.cli.main import run
from phalanx.cluster.catalogue import accelerators, instances

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "hardware.md"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    return Call(capsys)


class Call:
    """Runs the verb and gives back exit code, standard output and standard error."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        code = run(hardware, arguments)
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err


def test_the_table_has_a_line_for_each_accelerator(call: Call) -> None:
    code, out, err = call()
    header, *lines = out.splitlines()
    assert (code, err) == (0, "")
    assert header.split()[0] == "NAME"
    assert [line.split()[0] for line in lines] == [each.name for each in accelerators()]


def test_wide_adds_mig_profiles_and_aliases(call: Call) -> None:
    assert "1g.10gb" not in call()[1]
    assert "1g.10gb" in call("-o", "wide")[1]


def test_names_are_printed_one_a_line(call: Call) -> None:
    assert call("-o", "name")[1].split() == [each.name for each in accelerators()]
    assert call("--instances", "-o", "name")[1].split() == [each.name for each in instances()]


def test_json_gives_each_figure_with_its_source_and_date(call: Call) -> None:
    rows = json.loads(call("-o", "json")[1])
    assert [row["name"] for row in rows] == [each.name for each in accelerators()]
    assert all(sorted(row["memory_gb"]) == ["date", "source", "unit", "value"] for row in rows)


def test_yaml_and_json_say_the_same(call: Call) -> None:
    for arguments in ([], ["H100"], ["--instances"]):
        as_json = json.loads(call(*arguments, "-o", "json")[1])
        assert yaml.safe_load(call(*arguments, "-o", "yaml")[1]) == as_json


def test_one_accelerator_is_shown_in_full_with_sources_and_dates(call: Call) -> None:
    code, out, _ = call("nvidia h100 80gb hbm3")
    assert code == 0
    for key, figure in accelerators()[[each.name for each in accelerators()].index("H100")].figures:
        (line,) = [line for line in out.splitlines() if line.startswith(f"{key} ")]
        assert figure.source in line
        assert figure.date in line
        assert f"{figure.value:g}" in line
    assert "7g.80gb" in out
    assert json.loads(call("H100", "-o", "json")[1])["name"] == "H100"


def test_what_an_accelerator_does_not_have_takes_no_line(call: Call) -> None:
    assert "MIG" not in call("K80")[1]
    assert "PEAK NOTE" in call("K80")[1]
    assert "PEAK NOTE" not in call("H100")[1]


def test_instances_can_be_narrowed_to_one_accelerator(call: Call) -> None:
    rows = json.loads(call("A100", "--instances", "-o", "json")[1])
    assert {row["accelerator"] for row in rows} == {"A100-80"}
    assert "p4de.24xlarge" in [row["name"] for row in rows]


@pytest.mark.parametrize("arguments", [["p5.48xlarge"], ["P5.48xlarge", "--instances"]])
def test_an_instance_type_is_found_by_its_name(call: Call, arguments: list[str]) -> None:
    code, out, err = call(*arguments)
    assert (code, err) == (0, "")
    (one,) = [each for each in instances() if each.name == "p5.48xlarge"]
    assert one.on_demand_usd_h.source in out
    assert one.shape_source in out
    found = json.loads(call(*arguments, "-o", "json")[1])
    assert (found["name"], found["accelerator"], found["count"]) == ("p5.48xlarge", "H100", 8)
    assert yaml.safe_load(call(*arguments, "-o", "yaml")[1]) == found
    assert call(*arguments, "-o", "name")[1].split() == ["p5.48xlarge"]


def test_what_nothing_is_called_is_refused_with_what_looks_like_it(call: Call) -> None:
    code, _, err = call("p5.48xlrge")
    assert code == 3
    assert "no accelerator or instance type 'p5.48xlrge' in the catalogue: did you mean" in err
    assert "p5.48xlarge" in err
    assert "`phalanx hardware` and `phalanx hardware --instances` list them all" in call("zzzzzzzzzzzzzzzz")[2]


def test_a_spot_price_nobody_knows_is_a_dash_and_null(call: Call) -> None:
    (line,) = [line for line in call("--instances")[1].splitlines() if line.startswith("gpu_8x_h100_sxm5")]
    assert line.split()[-1] == "-"
    rows = json.loads(call("H100", "--instances", "-o", "json")[1])
    assert [row["name"] for row in rows if row["spot_usd_h"] is None] == ["gpu_8x_h100_sxm5"]


@pytest.mark.parametrize("arguments", [["H10"], ["H10", "--instances"], ["H10", "-o", "json"]])
def test_an_unknown_name_exits_with_3_and_says_what_is_close(call: Call, arguments: list[str]) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (3, "")
    assert err.startswith("phalanx: no accelerator or instance type 'H10' in the catalogue: did you mean H100")


def test_the_page_of_the_reference_is_made_from_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference_page(), (
        "run `python -m phalanx.cli.hardware > docs/reference/hardware.md`"
    )
