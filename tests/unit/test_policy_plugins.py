"""Policies in files and packages of others, and files that parameters name."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from builders import World, a_job, starts
from phalanx.cli.main import cli, run
from phalanx.cluster.cluster import flat
from phalanx.policy import registry
from phalanx.policy.guarded import PolicyError
from phalanx.policy.policy import Policy
from phalanx.policy.registry import policy
from phalanx.simulate import plugins
from phalanx.simulate.plugins import load_entry_points, read_samples, resolve_policy

HEADER = "from phalanx.policy.policy import Policy, Targets\n"
VALUE = HEADER + "Newest = Policy('newest', order=lambda job, at: (-job.number,))\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    return tmp_path


def written(text: str, name: str = "mine.py") -> str:
    Path(name).write_text(text)
    return f"./{name}"


def refused(spec: str) -> str:
    with pytest.raises(PolicyError) as error:
        resolve_policy(spec)
    return str(error.value)


def test_a_policy_in_a_file_runs_in_the_engine() -> None:
    spec = resolve_policy(f"{written(VALUE)}:Newest")
    assert spec == "./mine.py:Newest"
    assert policy(spec).spec == spec
    world = World(flat(1, 1), spec)
    assert starts(world.submit(a_job("old"), a_job("new"))) == ["new"]


@pytest.mark.parametrize("is_submission", ["isinstance(event, JobSubmitted)", "type(event).__name__ == 'JobSubmitted'"])
def test_a_policy_in_a_file_tells_events_apart_by_type_or_by_name(is_submission: str) -> None:
    text = (
        "from phalanx.protocol.event import JobSubmitted\n"
        "def observe(memory, event, now):\n"
        f"    if {is_submission}:\n"
        "        memory['submitted'] = memory.get('submitted', 0) + 1\n"
        "Counting = Policy('counting', order=lambda job, at: (job.number,), observe=observe)\n"
    )
    world = World(flat(1, 1), resolve_policy(f"{written(HEADER + text)}:Counting"))
    world.submit(a_job("one"), a_job("two"))
    assert world.state.memory == {"submitted": 2}


def test_a_file_may_hold_a_function_that_makes_the_policy() -> None:
    file = written(HEADER + "def newest():\n    return Policy('newest', order=lambda job, at: (-job.number,))\n")
    assert resolve_policy(f"{file}:newest") == "./mine.py:newest"


def test_a_function_may_take_parameters() -> None:
    text = "def mine(parameters):\n    hard = parameters.boolean('hard', default=False)\n"
    text += "    return Policy('m', targets=Targets.RANK if hard else Targets.KEEP)\n"
    spec = resolve_policy(f"{written(HEADER + text)}:mine:hard=true")
    assert spec == "./mine.py:mine:hard=true"
    assert policy(spec).preempts
    assert "hard=often: expected true or false" in refused("./mine.py:mine:hard=often")
    assert refused("./mine.py:mine:soft=1") == "policy ./mine.py:mine has no parameter 'soft' (it has: hard)"


def test_a_policy_without_parameters_takes_none() -> None:
    assert "has no parameter 'x' (it has: none)" in refused(f"{written(VALUE)}:Newest:x=1")


def test_a_file_that_was_changed_is_read_again() -> None:
    resolve_policy(f"{written(VALUE)}:Newest")
    resolve_policy(f"{written(VALUE.replace('-job', '+job'))}:Newest")
    assert starts(World(flat(1, 1), "./mine.py:Newest").submit(a_job("old"), a_job("new"))) == ["old"]


def test_dataclasses_of_a_file_work() -> None:
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    text += "@dataclass(frozen=True)\nclass Weights:\n    a: int = 1\n" + VALUE
    assert resolve_policy(f"{written(text)}:Newest")


@pytest.mark.parametrize(
    ("text", "attribute", "told"),
    [
        (VALUE, "Oldest", "./mine.py has no 'Oldest': expected a Policy, or a function of no argument or of its "),
        (VALUE, "Oldest", "(it has: Newest)"),
        ("x = 1", "y", "(it has: nothing that could be one)"),
        ("x = 1", "x", "x in ./mine.py is 1: expected a Policy, or a function"),
        ("def f(a, b): ...", "f", "f in ./mine.py needs 2 arguments: expected a Policy, or a function"),
        ("def f(*, a): ...", "f", "f in ./mine.py needs 1 arguments: expected a Policy, or a function"),
        ("def f(): return 3", "f", "policy ./mine.py:f: making it returned 3: expected a Policy"),
        ("def f(): return 1 / 0", "f", "policy ./mine.py:f: making it raised ZeroDivisionError: division by zero ("),
        ("import no_such_thing", "f", "./mine.py cannot be loaded: ModuleNotFoundError: No module named 'no_such_thi"),
        ("x = 1\nx.y", "f", "(mine.py, line 2)"),
        ("def f(:", "f", "./mine.py cannot be loaded: SyntaxError: "),
        ("raise SystemExit(0)", "f", "./mine.py cannot be loaded: SystemExit: 0"),
        (VALUE, "", "policy './mine.py:': expected FILE.py:NAME, where NAME is a Policy, or a function"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(text: str, attribute: str, told: str) -> None:
    assert told in refused(f"{written(text)}:{attribute}")


def test_a_missing_file_is_named() -> None:
    assert refused("./none.py:Mine").startswith("./none.py: there is no such file (from ")
    assert refused("./none.py").startswith("policy './none.py': expected FILE.py:NAME")


def test_a_policy_of_a_file_that_nobody_loaded_is_refused() -> None:
    with pytest.raises(ValueError, match=r"policy './mine.py:Newest': its file has not been loaded"):
        policy("./mine.py:Newest")


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    assert refused("lottery").startswith("unknown policy 'lottery' (known: ")


def test_built_in_policies_are_left_as_they_are() -> None:
    assert resolve_policy("fifo:skip=true") == "fifo:skip=true"
    assert refused("fifo:skip=maybe") == "policy fifo: skip=maybe: expected true or false"


def offer(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """As if an installed package offered a policy."""
    entry = EntryPoint("newest", value, plugins.ENTRY_POINTS)
    monkeypatch.setattr(plugins, "entry_points", lambda **chosen: EntryPoints([entry]).select(**chosen))


def test_an_installed_package_can_offer_a_policy(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(VALUE, "offered_policies.py")
    monkeypatch.syspath_prepend(here)
    offer(monkeypatch, "offered_policies:Newest")
    assert resolve_policy("newest") == "newest"
    assert starts(World(flat(1, 1), "newest").submit(a_job("old"), a_job("new"))) == ["new"]


def test_all_offered_policies_can_be_listed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(VALUE, "listed_policies.py")
    monkeypatch.syspath_prepend(here)
    offer(monkeypatch, "listed_policies:Newest")
    load_entry_points()
    assert registry.known()[-1] == "newest"


def test_an_entry_point_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "no_such_package:Newest")
    assert refused("newest").startswith("policy newest: no_such_package:Newest cannot be loaded: ModuleNotFoundError")


def test_an_entry_point_that_ends_the_program_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written("raise SystemExit(4)", "ending_policies.py")
    monkeypatch.syspath_prepend(here)
    offer(monkeypatch, "ending_policies:Newest")
    assert refused("newest").startswith("policy newest: ending_policies:Newest cannot be loaded: SystemExit: 4")


def test_an_entry_point_that_is_no_policy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "math:pi")
    assert refused("newest").startswith("math:pi, the entry point newest is 3.14")


def test_a_file_of_samples_is_spelled_out_sorted() -> None:
    Path("past.csv").write_text("duration\n30\n2.6\n\n1\n")
    spec = resolve_policy("tiresias-gittins:samples=past.csv,quantum=5")
    assert spec == "tiresias-gittins:samples=1/3/30,quantum=5"
    assert policy(spec).spec == spec
    assert resolve_policy(spec) == spec


def test_samples_need_no_header() -> None:
    Path("past.csv").write_text("5\n4")
    assert read_samples("past.csv") == (4, 5)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "past.csv: expected total GPU-seconds of past jobs, one a line; found none"),
        (b"duration\n", "past.csv: expected total GPU-seconds of past jobs, one a line; found none"),
        (b"1\nx\n", "past.csv, line 2: 'x': expected one number that is not negative"),
        (b"1\n2,3\n", "past.csv, line 2: '2,3': expected one number that is not negative"),
        (b"1\n-2\n", "past.csv, line 2: '-2': expected one number that is not negative"),
        (b"1\nnan\n", "past.csv, line 2: 'nan': expected one number that is not negative"),
        (b"\xff\xfe", "policy tiresias-gittins: samples=past.csv: it is not UTF-8 text"),
    ],
)
def test_a_bad_file_of_samples_is_refused(content: bytes, told: str) -> None:
    Path("past.csv").write_bytes(content)
    assert refused("tiresias-gittins:samples=past.csv") == told


def test_a_missing_file_of_samples_is_refused() -> None:
    told = "policy tiresias-gittins: samples=none.csv: No such file or directory"
    assert refused("tiresias-gittins:samples=none.csv") == told
    assert refused("tiresias-gittins").startswith("policy tiresias-gittins: samples= is missing: expected a FILE")
    assert refused("tiresias-gittins:samples=").endswith("expected key=value, got 'samples='")


def test_a_policy_value_can_be_given_to_the_registry_directly() -> None:
    registry.register("mine", lambda parameters: Policy("mine"))
    assert resolve_policy("mine") == "mine"


def test_a_plan_can_be_made_with_a_policy_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    examples = Path(__file__).parents[2] / "examples"
    files = [str(examples / "cluster-small.yaml"), str(examples / "job-single-gpu.yaml")]
    assert run(cli, ["plan", "--policy", f"{written(VALUE)}:Newest", "--cluster", *files, "-o", "name"]) == 0
    assert capsys.readouterr().out == "1\n"
    assert run(cli, ["plan", "--policy", "./none.py:Newest", "--cluster", *files]) == 1
    assert capsys.readouterr().err.startswith("phalanx: ./none.py: there is no such file")
