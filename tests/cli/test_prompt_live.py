"""What the verbs that people type all day load, each in a process of its own against the real server.

Time at the prompt is mostly imports. Which modules are loaded is the same on every machine; how long that takes is not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from live import Phalanx, Server, until

HEAVY = (
    *("email", "http.client", "msgspec", "pydantic", "rich", "sqlalchemy", "ssl", "yaml"),
    # Each takes as long as what a verb itself does, and has a lighter one beside it in the standard library or here.
    *("dataclasses", "encodings.idna", "pathlib", "shutil", "urllib.parse", "click.shell_completion"),
    *("phalanx.advice", "phalanx.cluster", "phalanx.engine", "phalanx.placement", "phalanx.policy", "phalanx.protocol"),
    *("phalanx.server", "phalanx.simulate", "phalanx.words", "phalanx.workload"),
)
PROGRAM = """
import sys
from phalanx.cli.main import cli, run
code = run(cli, sys.argv[2:])
open(sys.argv[1], "w").write("\\n".join(sys.modules))
sys.exit(code)
"""


def loaded_by(server: Server, folder: Path, *arguments: str) -> list[str]:
    """The heavy modules that a verb loads."""
    listed = folder / "modules"
    # What measures coverage imports much of its own.
    around = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    around |= {"PHALANX_ADDR": server.url, "PHALANX_TOKEN_FILE": server.token_file}
    around["PHALANX_CONFIG"] = str(folder / "config.yaml")
    command = [sys.executable, "-c", PROGRAM, str(listed), *arguments]
    done = subprocess.run(command, env=around, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    modules = listed.read_text().split()
    return [each for each in HEAVY if any(name == each or name.startswith(f"{each}.") for name in modules)]


def runs_by_now(phalanx: Phalanx, job: str) -> None:
    until(lambda: phalanx("job", job, "-o", "json").data["state"] == "running")


@pytest.mark.parametrize("verb", [["jobs"], ["why", "{job}"], ["logs", "{job}"], ["job", "{job}"], ["cancel", "{job}"]])
def test_verbs_of_every_day_load_nothing_heavy(
    server: Server, phalanx: Phalanx, tmp_path: Path, verb: list[str]
) -> None:
    job = phalanx("submit", "-o", "json", "--gpus", "1", "--", "sleep", "60").data["id"]
    runs_by_now(phalanx, job)
    assert loaded_by(server, tmp_path, *[each.format(job=job) for each in verb]) == []
    phalanx("cancel", job)


def test_nor_do_they_for_a_user_who_has_logged_in(server: Server, phalanx: Phalanx, tmp_path: Path) -> None:
    assert phalanx("login", "--context", "here").code == 0
    assert (tmp_path / "config.yaml").exists()
    assert loaded_by(server, tmp_path, "jobs") == []


@pytest.mark.parametrize("verb", ["why", "when"])
def test_nor_do_those_that_ask_of_a_job_whose_start_is_unknown(
    server: Server, phalanx: Phalanx, tmp_path: Path, verb: str
) -> None:
    runs = phalanx("submit", "-o", "json", "--gpus", "4", "--tasks", "2", "--", "sleep", "60").data["id"]
    runs_by_now(phalanx, runs)
    job = phalanx("submit", "-o", "json", "--gpus", "1", "--", "true").data["id"]
    assert "no forecast" in phalanx("why", job).out
    assert loaded_by(server, tmp_path, verb, job) == []
    phalanx("cancel", job, runs)


def test_a_job_of_options_is_submitted_without_reading_any_file_format(server: Server, tmp_path: Path) -> None:
    assert loaded_by(server, tmp_path, "submit", "--gpus", "1", "--tasks", "2", "--env", "A=b", "--", "true") == []


def test_a_job_file_is_sent_as_it_is_and_read_as_yaml_only_where_an_option_changes_it(
    server: Server, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "job.yaml").write_text("command: 'true'\ngpus: 1\n")
    assert loaded_by(server, tmp_path, "submit", "job.yaml") == []
    assert loaded_by(server, tmp_path, "submit", "job.yaml", "--name", "changed") == ["yaml"]


COLLECTIONS = """
import atexit, gc, sys
from phalanx.cli.entry import main
loaded = []
gc.callbacks.append(lambda phase, info: loaded.append(hasattr(sys.modules.get("phalanx.cli.main"), "run")))
atexit.register(lambda: print(all(loaded), len(gc.get_objects()) < 1000))
sys.argv = ["phalanx", "--version"]
main()
"""


def test_no_garbage_is_looked_for_while_modules_load_nor_at_the_end() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECTIONS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[1:] == ["True True"]
