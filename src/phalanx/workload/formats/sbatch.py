"""Batch scripts of Slurm as jobs: the options of `sbatch`, on its command line and on #SBATCH lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phalanx.errors import PhalanxError
from phalanx.workload.formats.hostlist import HostlistError, expand
from phalanx.workload.selector import excluding

SHORT = {
    "A": "account",
    "a": "array",
    "b": "begin",
    "C": "constraint",
    "c": "cpus-per-task",
    "D": "chdir",
    "d": "dependency",
    "e": "error",
    "G": "gpus",
    "H": "hold",
    "i": "input",
    "J": "job-name",
    "k": "no-kill",
    "L": "licenses",
    "N": "nodes",
    "n": "ntasks",
    "o": "output",
    "O": "overcommit",
    "p": "partition",
    "Q": "quiet",
    "q": "qos",
    "S": "core-spec",
    "s": "oversubscribe",
    "t": "time",
    "v": "verbose",
    "W": "wait",
    "w": "nodelist",
    "x": "exclude",
}
"""Long names of short options."""

FLAGS = frozenset(
    {
        *("hold", "no-kill", "overcommit", "quiet", "oversubscribe", "verbose", "wait", "requeue", "no-requeue"),
        *("parsable", "test-only", "contiguous", "exclusive", "spread-job", "use-min-nodes", "dry-run", "help"),
    }
)
"""Options that need no value."""

TOLD = {
    **dict.fromkeys(("mail-type", "mail-user"), "no mail is sent; operators have alerts (`phalanx up --alerts FILE`)"),
    **dict.fromkeys(("output", "error", "open-mode"), "no file is written; see `phalanx logs ID`"),
    "time-min": "the time limit is not shortened",
    "no-requeue": "a job whose node fails is started again all the same",
    "exclusive": "other jobs may have what the job leaves of its nodes",
    "oversubscribe": "GPUs are not oversubscribed",
    "no-kill": "a gang that loses a node is started again as a whole",
    "switches": "the policy packs gangs; `topology` of a job file demands it",
    "distribution": "ranks are placed by the scheduler",
    **dict.fromkeys(("gpu-bind", "cpu-bind", "mem-bind", "hint", "threads-per-core"), "tasks are not bound"),
    **dict.fromkeys(("overcommit", "spread-job", "use-min-nodes", "contiguous"), "the scheduler chooses the nodes"),
    "profile": "nothing is profiled",
    "wckey": "there are no such keys",
    "input": "standard input is empty",
}
"""Options that change nothing that a job computes, and what is done instead."""

QUIET = frozenset({"requeue", "verbose", "quiet", "parsable", "wait", "test-only"})
"""Options that say what happens anyway, or how to print."""

LABELS = {"partition": "slurm/partition", "account": "slurm/account", "qos": "slurm/qos"}
SHELLS, PYTHON = ("sh", "bash", "dash", "ksh", "zsh"), re.compile(r"python[\d.]*$")
_GRES = re.compile(r"(?:gres[:/])?gpu(?::([A-Za-z][^:]*))?(?::(\d+))?$")
_COUNT = re.compile(r"(?:([A-Za-z][^:=]*)[:=])?(\d+)$")
_SIZE_GB = {"K": 1 / 1024**2, "M": 1 / 1024, "": 1 / 1024, "G": 1.0, "T": 1024.0}

PREAMBLE = """\
export SLURM_JOB_ID="$PHALANX_JOB_ID" SLURM_JOBID="$PHALANX_JOB_ID" SLURM_JOB_NAME="$PHALANX_JOB_NAME"
export SLURM_PROCID="$RANK" SLURM_NTASKS="$WORLD_SIZE" SLURM_NPROCS="$WORLD_SIZE" SLURM_NODEID="$RANK" SLURM_LOCALID=0
export SLURM_NNODES="$WORLD_SIZE" SLURM_JOB_NUM_NODES="$WORLD_SIZE" SLURMD_NODENAME="$PHALANX_NODE"
export SLURM_RESTART_COUNT="$PHALANX_RESTART_COUNT" SLURM_SUBMIT_DIR="$PWD"
if [ -n "${PHALANX_ARRAY_INDEX:-}" ]; then
    export SLURM_ARRAY_TASK_ID="$PHALANX_ARRAY_INDEX" SLURM_ARRAY_JOB_ID="$PHALANX_ARRAY_JOB_ID"
fi
srun() {
    while [ $# -gt 0 ]; do
        case "$1" in
        --) shift && break ;;
        --*=* | -[a-zA-Z]?*) shift ;;
        --label | --exclusive | --exact | --overlap | --unbuffered | --kill-on-bad-exit | -[luKk]) shift ;;
        -*) shift 2 ;;
        *) break ;;
        esac
    done
    "$@"
}
"""
"""Before a script of a shell: Slurm's variables, and `srun` as a command that runs what every task has come to."""


NODES_NAMED_MAX = 4_096
"""Nodes that one option may name: a job is told to the server with all of them."""


class SbatchError(PhalanxError):
    """A script or an option that cannot be run as it is."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option, by its long name, and where it is written."""

    name: str
    value: str
    place: str


@dataclass(slots=True)
class Batch:
    """A job file, what of the options is not honoured, and those that say how to submit."""

    keys: dict[str, Any] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    flags: frozenset[str] = frozenset()


def read_sbatch(
    script: str, source: str, arguments: Sequence[str] = (), options: Sequence[Option] = (), name: str = ""
) -> Batch:
    """A script as a job. Options of the command line come before those of the script."""
    given: dict[str, Option] = {}
    for option in (*script_options(script, source), *options):
        given[option.name] = option
    batch = Batch(flags=frozenset(each for each in given if each in QUIET))
    batch.keys = {"name": name or source.rpartition("/")[2]}
    wanted = _Wanted(given, batch)
    wanted.read()
    batch.keys["command"] = command_of(script, source, arguments)
    return batch


def script_options(script: str, source: str) -> list[Option]:
    """The options of the #SBATCH lines: those before the first command."""
    found: list[Option] = []
    for number, line in enumerate(script.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        if line.startswith("#SBATCH"):
            try:
                words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
            except ValueError as error:
                raise SbatchError(f"{source}:{number}: {error}") from None
            options, rest = parse_options(words, f"{source}:{number}")
            if rest:
                raise SbatchError(f"{source}:{number}: expected an option, got '{rest[0]}'")
            found += options
    return found


def parse_options(words: Sequence[str], place: str) -> tuple[list[Option], list[str]]:
    """Options as sbatch takes them, and the words behind them."""
    found: list[Option] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        name, equals, value = _split(word, place)
        if not equals and name not in FLAGS:
            if at == len(words):
                raise SbatchError(f"{place}: {word} needs a value")
            value = words[at]
            at += 1
        found.append(Option(name, value, place))
    return found, list(words[at:])


def command_of(script: str, source: str, arguments: Sequence[str]) -> list[str]:
    """What each task runs: the whole script, by the program that its first line names."""
    first, _, rest = script.partition("\n")
    if not first.startswith("#!"):
        raise SbatchError(f"{source}:1: expected a first line such as #!/bin/bash, got {first[:60]!r}")
    words = first.removeprefix("#!").split()
    program = words[1] if len(words) > 1 and words[0].endswith("/env") else words[0] if words else ""
    base = program.rpartition("/")[2]
    if base in SHELLS:
        switches = [word for word in words[1:] if word.startswith("-")]
        return [program, *switches, "-c", PREAMBLE + rest, source, *arguments]
    if PYTHON.match(base):
        return [program, "-c", rest, *arguments]
    raise SbatchError(f"{source}:1: a script for {program or 'nothing'} is not read; expected a shell or python")


def seconds_of(text: str) -> int:
    """One of Slurm's time limits: MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts) or (dash and not days.isdecimal()) or len(parts) > 3:
        raise ValueError(text)
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
        return int(days) * 86_400 + hours * 3_600 + minutes * 60 + seconds
    if len(numbers) == 3:
        return numbers[0] * 3_600 + numbers[1] * 60 + numbers[2]
    return numbers[0] * 60 + (numbers[1] if len(numbers) == 2 else 0)


def _split(word: str, place: str) -> tuple[str, str, str]:
    if word.startswith("--"):
        return word[2:].partition("=")
    name = SHORT.get(word[1:2])
    if name is None:
        raise SbatchError(f"{place}: {word}: sbatch has no such option")
    return name, "=" if len(word) > 2 else "", word[2:].removeprefix("=")


class _Wanted:
    """Turns options into the keys of a job file, and remembers which were used."""

    def __init__(self, given: Mapping[str, Option], batch: Batch) -> None:
        self._given = dict(given)
        self._batch = batch
        self._keys = batch.keys

    def read(self) -> None:
        self._tasks()
        self._words()
        self._times()
        self._places()
        self._environment()
        for option in self._given.values():
            if option.name in TOLD:
                self._tell(option, TOLD[option.name])
            elif option.name not in QUIET:
                raise SbatchError(
                    f"{option.place}: --{option.name}: phalanx does not have this; take it out, or write a job file "
                    "(`phalanx sbatch --dry-run` prints one)"
                )

    def _take(self, name: str) -> str | None:
        option = self._given.pop(name, None)
        return option.value if option is not None else None

    def _count(self, name: str, least: int = 1) -> int | None:
        option = self._given.get(name)
        text = self._take(name)
        if text is None or option is None:
            return None
        if not text.isdecimal() or int(text) < least:
            raise SbatchError(f"{option.place}: --{name}={text}: expected a number of at least {least}")
        return int(text)

    def _tell(self, option: Option, why: str) -> None:
        shown = f"--{option.name}={option.value}" if option.value else f"--{option.name}"
        self._batch.told.append(f"{option.place}: {shown}: {why}")

    def _tasks(self) -> None:
        asked_nodes = self._given.get("nodes")
        nodes = self._nodes()
        per_node = self._count("ntasks-per-node")
        tasks = self._count("ntasks") or (nodes or 1) * (per_node or 1)
        per_gpu = self._count("ntasks-per-gpu")
        if per_gpu not in (None, 1):
            raise SbatchError("--ntasks-per-gpu: tasks do not share a GPU here")
        kind, gpus = self._gpus(nodes or 1, tasks)
        self._memory(nodes or 1, tasks, gpus)
        cpus = self._count("cpus-per-task")
        per_gpu_cpus = self._count("cpus-per-gpu")
        task: dict[str, Any] = {"gpus": gpus} if gpus else {}
        if kind:
            task["gpu_type"] = kind.upper() if kind.islower() else kind
        if cpus or (per_gpu_cpus and gpus):
            task["cpus"] = cpus or (per_gpu_cpus or 0) * gpus
        if "memory_gb" in self._keys:
            task["memory_gb"] = self._keys.pop("memory_gb")
        if tasks > 1:
            self._keys["gang"] = [{"role": "worker", "replicas": tasks, **task}]
        else:
            self._keys.update(task)
        if asked_nodes is not None and nodes and nodes > 1:
            self._tell(asked_nodes, f"{tasks} tasks are started together; some may share a node that has room for them")

    def _nodes(self) -> int | None:
        option = self._given.get("nodes")
        text = self._take("nodes")
        if text is None or option is None:
            return None
        least, dash, most = text.partition("-")
        if not least.isdecimal() or int(least) < 1 or (dash and not most.isdecimal()):
            raise SbatchError(f"{option.place}: --nodes={text}: expected a number, or a range such as 2-4")
        if dash and most != least:
            self._tell(option, f"the job gets {least}; `--tasks MIN:MAX` of `phalanx submit` makes it elastic")
        return int(least)

    def _gpus(self, nodes: int, tasks: int) -> tuple[str, int]:
        """The type, and how many a task has."""
        found: dict[str, tuple[str, int]] = {}
        for name, per in (("gres", nodes), ("gpus-per-node", nodes), ("gpus", 1), ("gpus-per-task", tasks)):
            option = self._given.get(name)
            text = self._take(name)
            if text is not None and option is not None and text not in ("none", "0"):
                kind, count = _gres(option) if name == "gres" else _typed(option)
                found[name] = (kind, count * per)
        if not found:
            return "", 0
        name, (kind, total) = next(iter(found.items()))
        if any(each[1] != total for each in found.values()):
            raise SbatchError(f"{' and '.join(f'--{each}' for each in found)} ask for different numbers of GPUs")
        if total % tasks:
            raise SbatchError(f"--{name}: {total} GPUs cannot be divided among {tasks} tasks; ask for a multiple")
        return next((kind for kind, _ in found.values() if kind), ""), total // tasks

    def _memory(self, nodes: int, tasks: int, gpus: int) -> None:
        each = {
            "mem": nodes / tasks,
            "mem-per-gpu": gpus,
            "mem-per-cpu": int(self._given["cpus-per-task"].value or 1) if "cpus-per-task" in self._given else 1,
        }
        for name, times in each.items():
            option = self._given.get(name)
            text = self._take(name)
            if text is not None and option is not None and text != "0":
                self._keys["memory_gb"] = round(_gigabytes(option) * times, 3)

    def _words(self) -> None:
        if (name := self._take("job-name")) is not None:
            self._keys["name"] = name
        for option, label in LABELS.items():
            if (value := self._take(option)) is not None:
                self._keys.setdefault("labels", {})[label] = value
        if (comment := self._take("comment")) is not None:
            self._keys.setdefault("labels", {})["slurm/comment"] = comment
        if (nice := self._take("nice")) is not None:
            self._keys["priority"] = -int(nice or 100) if (nice or "100").lstrip("-").isdecimal() else 0
        if (priority := self._take("priority")) is not None and priority.isdecimal():
            self._keys["priority"] = int(priority)
        if (array := self._take("array")) is not None:
            self._keys["array"] = array
        if (folder := self._take("chdir")) is not None:
            self._keys["workdir"] = folder
        if (text := self._take("dependency")) is not None:
            self._keys["after"] = _dependencies(text)

    def _times(self) -> None:
        option = self._given.get("time")
        limit = self._take("time")
        if limit is not None and option is not None and limit.upper() not in ("0", "UNLIMITED", "INFINITE"):
            try:
                self._keys["max_run"] = f"{seconds_of(limit)}s"
            except ValueError:
                raise SbatchError(f"{option.place}: --time={limit}: expected minutes, HH:MM:SS or D-HH:MM:SS") from None
        for name in ("begin", "deadline"):
            option = self._given.get(name)
            if (moment := self._take(name)) is not None and option is not None:
                self._keys[name] = _moment(moment, option)
                if self._keys[name].removesuffix("Z").startswith(moment):
                    self._tell(option, "a time without a zone is taken as UTC")
        option = self._given.get("signal")
        if (signal := self._take("signal")) is not None and option is not None:
            _, at, seconds = signal.partition("@")
            self._keys["grace"] = f"{seconds if at and seconds.isdecimal() else 60}s"
            self._tell(option, f"tasks get SIGTERM, and {self._keys['grace']} to save")

    def _places(self) -> None:
        option = self._given.get("constraint")
        if (wanted := self._take("constraint")) is not None and option is not None:
            features = wanted.split("&")
            if not all(re.fullmatch(r"[\w.\-]+", each) for each in features):
                raise SbatchError(f"{option.place}: --constraint={wanted}: expected features with '&' between")
            self._keys["node_selector"] = {f"slurm/feature-{each}": "true" for each in features}
        option = self._given.get("prefer")
        if (liked := self._take("prefer")) is not None and option is not None:
            features = liked.split("&")
            if not all(re.fullmatch(r"[\w.\-]+", each) for each in features):
                raise SbatchError(f"{option.place}: --prefer={liked}: expected features with '&' between")
            self._keys["prefer"] = {f"slurm/feature-{each}=true": 1 for each in features}
        listed, without = self._given.get("nodelist"), self._given.get("exclude")
        named, excluded = self._node_names("nodelist"), self._node_names("exclude")
        if named:
            # Slurm gives a job these and others if need be; the tasks of a gang may share a node.
            left = [node for node in named if node not in excluded]
            if listed is not None and len(named) > 1:
                self._tell(listed, "tasks run on these nodes alone, not on each of them")
            if without is not None and not left:
                raise SbatchError(f"{without.place}: --exclude={without.value}: leaves none of the nodes of --nodelist")
            self._keys.setdefault("node_selector", {})["phalanx/node"] = ",".join(left)
        elif excluded:
            self._keys.setdefault("node_selector", {})["phalanx/node"] = excluding(excluded)

    def _node_names(self, name: str) -> tuple[str, ...]:
        option, text = self._given.get(name), self._take(name)
        if text is None or option is None:
            return ()
        try:
            names = tuple(dict.fromkeys(expand(text)))
        except HostlistError as error:
            raise SbatchError(f"{option.place}: --{name}={text}: {error}") from None
        if len(names) > NODES_NAMED_MAX:
            raise SbatchError(f"{option.place}: --{name} names {len(names)} nodes: expected at most {NODES_NAMED_MAX}")
        if not names or not all(re.fullmatch(r"[A-Za-z0-9_.\-]+", each) for each in names):
            raise SbatchError(f"{option.place}: --{name}={text}: expected names of nodes, as n1,n3 or n[1-4]")
        return names

    def _environment(self) -> None:
        option = self._given.get("export")
        wanted = self._take("export")
        if wanted is None or option is None:
            return
        names = [each for each in wanted.split(",") if each]
        pairs = dict(each.split("=", 1) for each in names if "=" in each)
        if pairs:
            self._keys["env"] = pairs
        self._keys["inherit_env"] = "ALL" in names
        bare = [each for each in names if "=" not in each and each not in ("ALL", "NONE", "NIL")]
        if bare:
            self._tell(option, f"write {bare[0]}=VALUE: what this shell has is not passed on by name")
        elif "ALL" in names:
            self._tell(option, "PATH and the virtual environment are passed on, and no other variables")


def _gres(option: Option) -> tuple[str, int]:
    found = [_GRES.match(each) for each in option.value.split(",")]
    counted = [each for each in found if each is not None]
    if len(counted) != 1 or len(found) != 1 or counted[0] is None:
        raise SbatchError(f"{option.place}: --gres={option.value}: expected gpu:N or gpu:TYPE:N")
    return counted[0][1] or "", int(counted[0][2] or 1)


def _typed(option: Option) -> tuple[str, int]:
    found = _COUNT.match(option.value)
    if found is None:
        raise SbatchError(f"{option.place}: --{option.name}={option.value}: expected a number, or TYPE:N")
    return found[1] or "", int(found[2])


def _gigabytes(option: Option) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", option.value.upper())
    if found is None:
        raise SbatchError(f"{option.place}: --{option.name}={option.value}: expected a size such as 64G")
    return float(found[1]) * _SIZE_GB[found[2]]


_KINDS = {"afterok": "success", "afterany": "end", "afternotok": "failure", "after": "start"}


def _dependencies(text: str) -> list[dict[str, str]]:
    found = []
    for part in text.split(","):
        kind, *jobs = part.split(":")
        if kind not in _KINDS or not jobs or not all(re.fullmatch(r"[\w.\-]+", job) for job in jobs):
            kinds = ", ".join(f"{each}:ID" for each in _KINDS)
            raise SbatchError(f"--dependency={text}: expected some of {kinds}, with commas between, got '{part}'")
        found += [{"job": job, "on": _KINDS[kind]} for job in jobs]
    return found


_UNITS = {"s": "s", "m": "m", "h": "h", "d": "d"}


def _moment(text: str, option: Option) -> str:
    """`now+1hour` as `+1h`; a time of day has a zone, or is one of UTC."""
    later = re.fullmatch(r"now(?:\+(\d+)([a-z]*))?", text)
    if later is not None and (unit := _UNITS.get((later[2] or "s")[0])):
        return f"+{later[1] or 0}{unit}"
    if found := re.fullmatch(r"(\d{4}-\d\d-\d\d)(T\d\d:\d\d(?::\d\d)?)?(Z|[+-]\d\d:\d\d)?", text):
        return f"{found[1]}{found[2] or 'T00:00'}{found[3] or 'Z'}"
    raise SbatchError(f"{option.place}: --{option.name}={text}: expected now+1hour, or 2030-01-31T08:00")
