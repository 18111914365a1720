"""What was saved and is asked later: journals, snapshots, debug bundles, and policies in files that they name."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from builders import World, a_job
from phalanx.cli.exit import Exit
from phalanx.cli.files import save_journal
from phalanx.cli.main import cli, run
from phalanx.cluster.cluster import Cluster, Node, flat
from phalanx.cluster.device import Mode, Portion
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.fold.snapshot import dump
from phalanx.engine.state.journal import Journal, Record
from phalanx.engine.turn import replay
from phalanx.placement.placement import Placement, Slot
from phalanx.policy import registry
from phalanx.protocol.event import ClusterDefined, ForeignUse, JobSubmitted
from phalanx.protocol.plan import Claim, Plan
from phalanx.simulate.plugins import resolve_policy
from phalanx.workload.job import Job
from phalanx.workload.share import fraction_ask

MINE = """from phalanx.policy.policy import Policy
Newest = Policy('newest', order=lambda job, at: (-job.number,))
"""


@pytest.fixture
def world() -> World:
    """a has the only node until 100 s, b waits for all of it."""
    made = World(flat(1, 8), "fifo")
    made.run(a_job("a", 8, duration_ms=100_000))
    made.submit(a_job("b", 8, duration_ms=50_000), after_ms=10_000)
    return made


def bundled(path: Path, world: World, *, first: int = 0, snapshot: bytes | None = None) -> str:
    """A debug bundle as a server writes one, with the records from `first` on."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README", "A debug bundle of phalanx.\n")
        archive.writestr("snapshot.bin", dump(world.state) if snapshot is None else snapshot)
        archive.writestr("journal.jsonl", b"".join(line + b"\n" for line in list(world.journal.lines())[first:]))
        if first:
            archive.writestr("start.bin", dump(replay(Journal(world.journal.records[:first]))))
    return str(path)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> Any:
        code = run(cli, [*arguments, "-o", "json"])
        captured = capsys.readouterr()
        assert code == Exit.OK, captured.err
        return json.loads(captured.out)

    return call


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> str:
        assert run(cli, list(arguments)) != Exit.OK
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    return call


def test_a_bundle_answers_why_and_replays(say: Any, world: World, tmp_path: Path) -> None:
    bundle = bundled(tmp_path / "bundle.zip", world)
    assert say("why", "b", "--state", bundle, "--no-forecast")["reason"] == "gpus"
    replayed = say("replay", "--verify", bundle)
    assert (replayed["digest"], replayed["verified"]) == (str(world.state.digest), True)


def test_a_job_of_a_saved_state_can_be_named_while_its_name_is_its_own(
    say: Any, refusal: Any, tmp_path: Path, world: World
) -> None:
    world.submit(a_job("c", 8, name="mine"))
    bundle = bundled(tmp_path / "bundle.zip", world)
    assert say("why", "mine", "--state", bundle, "--no-forecast")["job"] == "c"
    world.submit(a_job("d", 8, name="mine"))
    assert "several jobs are named 'mine': say which of c, d" in refusal(
        "why", "mine", "--state", bundled(tmp_path / "two.zip", world)
    )
    assert "there is no job 'yours'" in refusal("why", "yours", "--state", bundle)


def test_the_queues_nodes_and_reservations_of_a_saved_state_are_listed_without_a_server(
    say: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_ADDR", "http://127.0.0.1:1")
    quotas = Queue("lab", deserved=Quota(16_000)), Queue("lab/a"), Queue("lab/b")
    world = World(replace(flat(2, 8), queues=quotas), "backfill")
    world.run(a_job("runs", 8, queue="lab/a", duration_ms=100_000))
    world.submit(a_job("waits", 8, count=2, queue="lab/b", duration_ms=50_000), after_ms=10_000)
    bundle = bundled(tmp_path / "bundle.zip", world)
    counts = {
        each["name"]: (each["running"], each["waiting"], each["gpus_used"], each["gpus_waiting"])
        for each in say("queues", "--state", bundle)
    }
    assert counts == {"lab": (1, 1, 8, 16), "lab/a": (1, 0, 8, 0), "lab/b": (0, 1, 0, 16)}
    (reserved,) = say("reservations", "--state", bundle)
    assert (reserved["job"], reserved["in"], reserved["nodes"]) == ("waits", "1m30s", ["n0", "n1"])
    nodes = say("nodes", "--state", bundle)
    assert [(node["name"], node["gpus_used"], node["jobs"]) for node in nodes] == [("n0", 8, ["runs"]), ("n1", 0, [])]
    assert say("nodes", "--state", bundle, "--health", "failed") == []


def test_gpus_that_foreign_work_holds_are_shown_as_used(say: Any, tmp_path: Path) -> None:
    world = World(flat(2, 4))
    world.turn(ForeignUse("n1", devices=(0,), gpus=1))
    nodes = say("nodes", "--state", bundled(tmp_path / "bundle.zip", world))
    assert [(node["name"], node["gpus_used"], node["jobs"]) for node in nodes] == [("n0", 0, []), ("n1", 2, [])]


def test_what_queues_use_of_their_quotas_is_shown_by_the_count_of_the_quotas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three halves of a GPU on two devices are all of a limit of 1.5; CPUs are shown where somebody has a quota."""
    half = {"share": fraction_ask(500), "cpus_milli": 2_000, "cpus_limit_milli": 2_000}
    node = Node("n0", (), 4, "H100", 80.0, cpus_milli=16_000)
    quotas = Queue("a", limit=Quota(1_500)), Queue("b", deserved=Quota(None, 4_000), limit=Quota(None, 8_000))
    world = World(Cluster((node,), queues=quotas), "fair")
    world.run(*(a_job(f"a{i}", queue="a", task=half) for i in range(3)), a_job("b0", queue="b", task=half))
    world.submit(a_job("a3", queue="a", task=half))
    saved = bundled(tmp_path / "bundle.zip", world)
    assert run(cli, ["queues", "--state", saved]) == Exit.OK
    head, a, b = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head[-2:] == ["LIMIT", "CPUS"]
    assert a == ["a", "3", "1", "1.5", "1", "-", "-", "1.5", "-"]
    assert b == ["b", "1", "0", "0.5", "0", "-", "-", "-", "2", "(deserved", "4,", "limit", "8)"]
    assert run(cli, ["why", "a3", "--no-forecast", "--state", saved]) == Exit.OK
    assert "a: 1.5 GPUs in 3 jobs" in capsys.readouterr().out


def test_how_many_jobs_came_to_what_is_told_in_words(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["replay", bundled(tmp_path / "bundle.zip", world)]) == Exit.OK
    assert "JOBS      1 running, 1 waiting" in capsys.readouterr().out


def test_a_bundle_of_a_long_journal_replays_from_the_state_before_it(say: Any, world: World, tmp_path: Path) -> None:
    bundle = bundled(tmp_path / "bundle.zip", world, first=4)
    replayed = say("replay", "--verify", bundle)
    assert replayed["digest"] == str(world.state.digest)
    assert replayed["records"] == len(world.journal.records) - 4


def test_a_bundle_of_another_release_is_folded_from_its_journal(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundled(tmp_path / "bundle.zip", world, snapshot=b"phalanx snapshot 3 000000000000 7\n")
    assert run(cli, ["why", "b", "--state", bundle, "--no-forecast", "-o", "json"]) == Exit.OK
    captured = capsys.readouterr()
    assert json.loads(captured.out)["reason"] == "gpus"
    assert "a snapshot of another release of phalanx" in captured.err


@pytest.mark.parametrize("kind", ["bundle.zip", "snapshot.bin", "journal.jsonl"])
def test_two_futures_of_a_saved_state_are_told_apart(say: Any, world: World, tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "bundle.zip":
        bundled(path, world)
    elif kind == "snapshot.bin":
        path.write_bytes(dump(world.state))
    else:
        save_journal(world.journal, str(path))
    job = tmp_path / "job.yaml"
    job.write_text("name: mine\ngpus: 8\nduration: 10s\ncommand: 'true'\n")
    futures = say("what-if", "--state", str(path), "--job", str(job), "--policy", "sjf")
    assert (futures["as_it_is"]["policy"], futures["what_if"]["policy"]) == ("fifo", "sjf")
    assert (futures["as_it_is"]["finished"], futures["what_if"]["finished"]) == (2, 3)
    [mine] = futures["what_if"]["submitted"]
    assert 100_000 <= mine["start_ms"] < 150_000, "the shortest goes before b"


def test_what_becomes_of_a_job_is_told_from_that_moment_on(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: mine\ngpus: 8\nduration: 10s\ncommand: 'true'\n")
    bundle = bundled(tmp_path / "bundle.zip", world)
    assert run(cli, ["what-if", "--state", bundle, "--job", str(job), "--add-nodes", "1"]) == Exit.OK
    assert "mine starts 50s later and ends 1m later" in capsys.readouterr().out, "b has the new node first"


@pytest.mark.parametrize(
    ("arguments", "line", "code"),
    [
        (("--fail", "n9"), "nothing can fail there: there is no node 'n9': ", Exit.NOT_FOUND),
        (("--add-nodes", "2:n9"), "there is no node 'n9' that others could be like", Exit.NOT_FOUND),
        (("--policy", "fastest"), "unknown policy 'fastest'", Exit.ERROR),
        (("--fail", "n0", "--until", "1h"), "--until is for saved runs", Exit.USAGE),
    ],
)
def test_what_cannot_happen_to_a_saved_state_is_refused(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], line: str, code: Exit
) -> None:
    assert run(cli, ["what-if", "--state", bundled(tmp_path / "bundle.zip", world), *arguments]) == code
    assert line in capsys.readouterr().err


def test_a_torn_or_foreign_archive_is_no_bundle(refusal: Any, world: World, tmp_path: Path) -> None:
    whole = Path(bundled(tmp_path / "bundle.zip", world)).read_bytes()
    torn, foreign = tmp_path / "torn.zip", tmp_path / "foreign.zip"
    torn.write_bytes(whole[: len(whole) // 2])
    with zipfile.ZipFile(foreign, "w") as archive:
        archive.writestr("holiday.txt", "sun")
    for verb in (("why", "b", "--state"), ("what-if", "--fail", "n0", "--state"), ("replay",)):
        assert "torn or no debug bundle" in refusal(*verb, str(torn))
        assert "no debug bundle: there is no journal.jsonl in it" in refusal(*verb, str(foreign))
        assert "No such file" in refusal(*verb, str(tmp_path / "nowhere.zip"))


def test_a_journal_is_read_up_to_a_line_that_was_not_written_to_its_end(world: World, tmp_path: Path) -> None:
    """A scheduler that writes it still, or was killed while it did."""
    torn = tmp_path / "journal"
    torn.write_bytes(b"".join(line + b"\n" for line in world.journal.lines()) + b'{"seq":7,"no')
    for verb in (("why", "b", "--state", str(torn)), ("replay", "--verify", str(torn))):
        result = CliRunner().invoke(cli, list(verb))
        assert result.exit_code == Exit.OK
        assert result.stderr == f"note: {torn}: its last line was not written to its end; it is left out\n"


def test_a_file_of_one_line_that_is_no_record_is_no_journal(refusal: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("sun")
    assert "journal line 1: not a journal record" in refusal("replay", str(other))


def test_what_if_says_how_many_jobs_start_where_none_says_how_long_it_takes(say: Any, tmp_path: Path) -> None:
    made = World(flat(1, 8), "fifo")
    made.run(a_job("a", 8))
    made.submit(a_job("b", 8), after_ms=10_000)
    journal = tmp_path / "journal"
    journal.write_bytes(b"".join(line + b"\n" for line in made.journal.lines()))
    told = say("what-if", "--add-nodes", "1", "--state", str(journal))
    assert [told[future]["started"] for future in ("as_it_is", "what_if")] == [1, 2]


@pytest.fixture
def decided_by_mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Jobs under a policy in a file, which is known to no later process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    Path("mine.py").write_text(MINE)
    made = World(flat(1, 8), resolve_policy("./mine.py:Newest"))
    made.submit(a_job("old", 8, duration_ms=100_000), a_job("new", 8, duration_ms=100_000))
    save_journal(made.journal, "run.jsonl")
    Path("snapshot.bin").write_bytes(dump(made.state))
    bundled(Path("bundle.zip"), made)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    return made


@pytest.mark.usefixtures("decided_by_mine")
@pytest.mark.parametrize("saved", ["run.jsonl", "bundle.zip"])
def test_a_journal_decided_by_a_policy_in_a_file_is_verified_with_it(
    saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["replay", "--verify", saved]) == Exit.OK
    assert "was decided by ./mine.py:Newest, which is loaded for it" in capsys.readouterr().err


@pytest.mark.usefixtures("decided_by_mine")
@pytest.mark.parametrize("saved", ["run.jsonl", "bundle.zip", "snapshot.bin"])
def test_a_state_decided_by_a_policy_in_a_file_answers_why_and_what_if(say: Any, saved: str) -> None:
    assert say("why", "old", "--state", saved, "--no-forecast")["reason"] == "gpus"
    assert say("what-if", "--state", saved, "--add-nodes", "1")["as_it_is"]["policy"] == "./mine.py:Newest"


@pytest.mark.usefixtures("decided_by_mine")
@pytest.mark.parametrize("saved", ["run.jsonl", "bundle.zip", "snapshot.bin"])
def test_a_policy_whose_file_is_gone_is_named_with_what_to_do(refusal: Any, saved: str) -> None:
    Path("mine.py").unlink()
    told = refusal("why", "old", "--state", saved)
    assert f"{saved}" in told
    assert "./mine.py" in told
    assert "there is no such file" in told
    assert "put the file back" in told


@pytest.mark.usefixtures("decided_by_mine")
def test_a_policy_that_decides_otherwise_by_now_is_found_out(refusal: Any) -> None:
    Path("mine.py").write_text(MINE.replace("-job.number", "job.number"))
    assert "decided again, the plan differs" in refusal("replay", "--verify", "run.jsonl")


def test_a_run_saved_under_a_policy_in_a_file_is_asked_without_naming_it_again(
    say: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    Path("mine.py").write_text(MINE)
    Path("cluster.yaml").write_text("nodes: [{count: 1, gpus: 8}]\n")
    Path("trace.csv").write_text("job_id,submit_s,duration_s,gpus\n1,0,100,8\n2,1,100,8\n")
    run_it = ("simulate", "--cluster", "cluster.yaml", "--trace", "trace.csv", "--policy", "./mine.py:Newest")
    say(*run_it, "--until", "50s", "--save", "half.sim")
    monkeypatch.setattr(registry, "_REGISTERED", {})
    assert say("why", "2", "--state", "half.sim", "--no-forecast")["reason"] == "gpus"
    monkeypatch.setattr(registry, "_REGISTERED", {})
    assert say("what-if", "--state", "half.sim", "--add-nodes", "1")["what_if"]["jobs"]["completed"] == 2


def test_a_run_is_asked_at_the_moment_it_was_let_go_to(say: Any, tmp_path: Path) -> None:
    cluster, trace, saved = (tmp_path / name for name in ("cluster.yaml", "trace.csv", "run"))
    cluster.write_text("nodes: [{count: 1, gpus: 8}]\nqueues: [{name: a}]\n")
    trace.write_text("job_id,submit_s,duration_s,gpus,queue\n1,0,36000,8,a\n2,60,60,8,a\n")
    say(
        "simulate", *(f"--cluster={cluster}", f"--trace={trace}", "--policy=fair-tree", "--until=2h", f"--save={saved}")
    )
    answer = say("why", "2", f"--state={saved}", "--no-forecast")
    (level,) = answer["position"]["levels"]
    assert dict(level["measures"])["decayed_gpu_hours"] == pytest.approx(16, rel=0.01)


def test_an_empty_journal_is_refused(refusal: Any, tmp_path: Path) -> None:
    for number, content in enumerate((b"", b"\n\n")):
        (empty := tmp_path / f"empty{number}.jsonl").write_bytes(content)
        for verb in (("replay", "--verify"), ("replay",), ("why", "b", "--state")):
            assert "expected a journal, with a record in each line, found none" in refusal(*verb, str(empty))


WHOLE, MOST = Slot(0, "worker", "n0", (0,)), Portion(Mode.FRACTION, 800, 0)


@pytest.mark.parametrize(
    ("job", "slots"),
    [
        (a_job("j", 1, 2), (WHOLE, replace(WHOLE, rank=1))),
        (
            a_job("j", 1, 2, task={"share": fraction_ask(800)}),
            tuple(Slot(rank, "worker", "n0", (0,), MOST) for rank in (0, 1)),
        ),
    ],
    ids=["a whole device", "most of a device"],
)
def test_a_journal_that_gives_something_twice_is_refused_in_one_line(
    refusal: Any, tmp_path: Path, job: Job, slots: tuple[Slot, ...]
) -> None:
    journal, twice = Journal(), Plan(claims=(Claim("j", 1, Placement(slots)),))
    for body in (ClusterDefined(flat(1, 8), "fifo"), JobSubmitted(job), twice):
        journal.records.append(Record(len(journal.records), 0, body))
    save_journal(journal, str(tmp_path / "twice.jsonl"))
    for verb in (("replay",), ("why", "j", "--state")):
        (line,) = refusal(*verb, str(tmp_path / "twice.jsonl")).splitlines()
        assert "twice.jsonl: " in line
