"""The pure packages hold what a linter cannot see: no set's order, no I/O by a builtin, whole milliseconds."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ["cluster", "workload", "placement", "protocol", "policy", "engine"]
MODULES = {
    *("__future__", "bisect", "collections", "copy", "dataclasses", "decimal", "difflib", "enum", "fnmatch"),
    *("fractions", "functools", "hashlib", "heapq", "itertools", "math", "operator", "re", "shlex", "types"),
    *("typing", "zlib", "phalanx"),
}
"""What a pure package may import. Of the standard library no more than these is known to need nothing from outside."""

LIBRARIES = {"protocol": {"msgspec"}, "engine": {"msgspec", "pickle", "io"}}
"""The protocol defines records; the engine writes them, and snapshots as bytes in memory."""

BANNED_BUILTINS = {
    "open": "does I/O",
    "print": "does I/O",
    "input": "does I/O",
    "breakpoint": "does I/O",
    "exec": "runs code that no check has seen",
    "eval": "runs code that no check has seen",
    "compile": "runs code that no check has seen",
    "__import__": "runs code that no check has seen",
    "__builtins__": "runs code that no check has seen",
    "__loader__": "runs code that no check has seen",
    "__spec__": "runs code that no check has seen",
    "globals": "is state that everybody can change",
    "hash": "differs between processes",
    "id": "differs between processes",
}
SET_TYPES = {"set", "frozenset", "Set", "AbstractSet", "MutableSet", "FrozenSet"}
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference", "copy"}
SET_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
# Functions whose result follows the order of what they are given.
ORDERED_CONSUMERS = {
    *("list", "tuple", "iter", "enumerate", "zip", "map", "filter", "reversed", "sum", "dict", "deque", "OrderedDict"),
    *("nsmallest", "nlargest", "merge", "accumulate", "chain", "islice", "groupby", "pairwise", "starmap", "reduce"),
}
ORDERED_METHODS = {"join", "extend", "extendleft", "fromkeys", "from_iterable"}
MAPPINGS = {"dict", "defaultdict", "Mapping", "MutableMapping", "OrderedDict"}
# What a mapping gives back of its values, and the views of it that are sets as soon as they are combined.
MAPPING_METHODS = {"get", "setdefault", "pop"}
VIEWS = {"keys", "items"}
INSTANTS = ("now", "now_ms", "deadline", "deadline_ms")


def violations(source: str) -> list[str]:
    """Each as `line: what is wrong`."""
    tree = ast.parse(source)
    sets = SetNames(tree)
    found = [*banned_calls(tree), *set_iterations(tree, sets), *fractional_instants(tree)]
    return [f"{line}: {problem}" for line, problem in sorted(found)]


def banned_calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in BANNED_BUILTINS:
            yield node.lineno, f"{node.id}() {BANNED_BUILTINS[node.id]}"


def fractional_instants(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                pass
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation):
                pass
            case _:
                continue
        is_instant = name in INSTANTS or name.endswith(("_at", "_at_ms"))
        if is_instant and any(isinstance(part, ast.Name) and part.id == "float" for part in ast.walk(annotation)):
            yield node.lineno, f"{name} is a float: time is an integer of milliseconds"


class SetNames:
    """Knows which expressions of a module are sets, from literals, calls, annotations and assignments.

    Names count for the whole module: one name for a set here and a list there would mislead a reader too.
    """

    def __init__(self, tree: ast.AST) -> None:
        self.names: set[str] = set()
        self.mappings: set[str] = set()
        self.functions: set[str] = set()
        for node in ast.walk(tree):
            self.note_annotation(node)
        known = -1
        while known < len(self.names):
            known = len(self.names)
            for node in ast.walk(tree):
                self.note_assignment(node)

    def note_annotation(self, node: ast.AST) -> None:
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                names = [name]
            case ast.AnnAssign(annotation=annotation):
                # In the body of a class the name declares a field.
                names = [self.name_of(node.target), f".{self.name_of(node.target)}"]
            case ast.FunctionDef(name=name, returns=ast.expr() as annotation) if self.is_set_type(annotation):
                self.functions.update([name, f".{name}"])
                if any(self.name_of(decorator).endswith("property") for decorator in node.decorator_list):
                    self.names.add(f".{name}")
                return
            case _:
                return
        if self.is_set_type(annotation):
            self.names.update(names)
        elif self.is_mapping_to_sets(annotation):
            self.mappings.update(names)

    def note_assignment(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=[ast.expr() as target]) | ast.NamedExpr(target=target):
                if self.is_set(node.value):
                    self.names.add(self.name_of(target))
            case (
                ast.For(target=target, iter=ast.Call(func=ast.Attribute(value=owner, attr=view)))
                | ast.comprehension(target=target, iter=ast.Call(func=ast.Attribute(value=owner, attr=view)))
            ) if self.name_of(owner) in self.mappings:
                match view, target:
                    case ("values", ast.Name() as each) | ("items", ast.Tuple(elts=[_, each])):
                        self.names.add(self.name_of(each))
                    case _:
                        pass
            case _:
                pass

    def is_set(self, node: ast.AST) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Call(func=ast.Name(id=name)):
                return name in SET_TYPES or name in self.functions
            case ast.Call(func=ast.Attribute(value=owner, attr=method)):
                if method in MAPPING_METHODS and self.name_of(owner) in self.mappings:
                    return True
                return f".{method}" in self.functions or (method in SET_METHODS and self.is_set(owner))
            case ast.Subscript(value=owner):
                return self.name_of(owner) in self.mappings
            case ast.BinOp(left=left, op=operator, right=right):
                sides = (left, right)
                return isinstance(operator, SET_OPERATORS) and any(map(self.is_set_or_view, sides))
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_set(body) or self.is_set(orelse)
            case ast.Name() | ast.Attribute():
                return self.name_of(node) in self.names
            case _:
                return False

    def is_set_or_view(self, node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(attr=method), args=[]) if method in VIEWS:
                return True
            case _:
                return self.is_set(node)

    @staticmethod
    def is_mapping_to_sets(annotation: ast.expr) -> bool:
        match annotation:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=[_, value])) if name in MAPPINGS:
                return SetNames.is_set_type(value)
            case _:
                return False

    @staticmethod
    def is_set_type(annotation: ast.expr) -> bool:
        match annotation:
            case ast.Name(id=name) | ast.Subscript(value=ast.Name(id=name)):
                return name in SET_TYPES
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return SetNames.is_set_type(left) or SetNames.is_set_type(right)
            case _:
                return False

    @staticmethod
    def name_of(target: ast.AST) -> str:
        """`victims` for a variable, `.victims` for a field of whatever object."""
        match target:
            case ast.Name(id=name):
                return name
            case ast.Attribute(attr=name):
                return f".{name}"
            case _:
                return ""


def set_iterations(tree: ast.AST, sets: SetNames) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        for iterated in iterated_by(node):
            if sets.is_set(iterated):
                yield iterated.lineno, f"goes through {ast.unparse(iterated)} in hash order: use sorted()"


def iterated_by(node: ast.AST) -> Iterable[ast.expr]:
    """The expressions whose order this node follows."""
    match node:
        case ast.For(iter=iterated) | ast.comprehension(iter=iterated) | ast.Starred(value=iterated):
            return [iterated]
        case ast.YieldFrom(value=iterated):
            return [iterated]
        case ast.Assign(targets=[ast.Tuple() | ast.List()], value=unpacked):
            return [unpacked]
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in ORDERED_CONSUMERS:
            return arguments
        case ast.Call(func=ast.Name(id="min" | "max"), args=arguments, keywords=[_, *_]):
            return arguments
        case ast.Call(func=ast.Attribute(attr=name), args=arguments) if name in ORDERED_CONSUMERS | ORDERED_METHODS:
            return arguments
        case ast.Call(func=ast.Attribute(value=owner, attr="pop"), args=[]):
            return [owner]
        case _:
            return []


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str() as module):
                yield module.partition(".")[0]


def sources(package: str) -> list[Path]:
    return sorted((ROOT / "src" / "phalanx" / package).rglob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_pure_package_does_no_io_and_follows_no_hash_order(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{problem}"
        for path in sources(package)
        for problem in violations(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_pure_package_imports_only_what_needs_nothing_from_outside(package: str) -> None:
    allowed = MODULES | LIBRARIES.get(package, set())
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(package)
        for name in imported(ast.parse(path.read_text(encoding="utf-8")))
        if name not in allowed
    ]
    assert not found, "\n".join(found)


def linted(package: str, source: str) -> subprocess.CompletedProcess[str]:
    """What the linter says of a file in a package."""
    file = ROOT / "src" / "phalanx" / package / "clock.py"
    ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", str(file), "-"]
    return subprocess.run(ruff, input=source, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_linter_refuses_a_clock_in_a_pure_package(package: str) -> None:
    result = linted(package, "import time\n")
    assert result.returncode == 1
    assert "A pure package has no clock" in result.stdout


@pytest.mark.parametrize(
    "source",
    [
        "import codecs\n\ncodecs.open('x')\n",
        "from codecs import open as unpack\n\nunpack('x')\n",
        "import builtins\n\nbuiltins.open('x')\n",
        "import ctypes\n\nctypes.CDLL('libc.so.6')\n",
        "import resource\n\nresource.getrusage(0)\n",
    ],
)
def test_the_linter_refuses_the_ways_round_in_a_pure_package(source: str) -> None:
    result = linted("engine", source)
    assert result.returncode == 1
    assert "A pure package" in result.stdout


@pytest.mark.parametrize(
    "source",
    [
        "for job in {1, 2}: ...",
        "for job in set(jobs): ...",
        "waiting = frozenset(jobs)\nfor job in waiting: ...",
        "def f(victims: set[int]): return [victim for victim in victims]",
        "class State:\n    held: set[int]\n    def f(self): return list(self.held)",
        "waiting: set[int] | None = None\nfirst = next(iter(waiting))",
        "waiting = set()\nrest = tuple(waiting - {3})",
        "waiting = set()\njob = waiting.pop()",
        "waiting = set()\nfirst, second = waiting",
        "waiting = set()\njobs = [*waiting]",
        "waiting = set()\nbest = min(waiting, key=cost)",
        "text = ','.join({'a', 'b'})",
        "total = sum({0.1, 0.2})",
        "for job in a.union(b) if x else {1}: ...",
        "for name in a.keys() & b.keys(): ...",
        "changed = [key for key, _ in a.items() - b.items()]",
        "def found() -> set[int]: ...\nfor job in found(): ...",
        "class State:\n    def found(self) -> frozenset[int]: ...\njobs = list(state.found())",
        "class State:\n    @property\n    def held(self) -> set[int]: ...\njobs = list(state.held)",
        "waiting = set()\nothers = waiting\nfor job in others: ...",
        "victims: dict[str, set[int]] = {}\nfor job in victims['a']: ...",
        "victims: dict[str, set[int]] = {}\nfor job in victims.get('a', ()): ...",
        "def f(victims: Mapping[str, set[int]]):\n    for each in victims.values():\n        return list(each)",
        "def f(victims: Mapping[str, set[int]]): return [job for _, each in victims.items() for job in each]",
        "waiting = set()\nline = deque(waiting)",
        "waiting = set()\nfirst = heapq.nsmallest(1, waiting, key=cost)",
        "waiting = set()\nfirst = next(itertools.chain(waiting, [1]))",
        "waiting = set()\nfirst = next(filter(None, waiting))",
        "open('x')",
        "print('x')",
        "__builtins__['open']('x')",
        "compile('x', 'y', 'exec')",
        "key = hash(job)",
        "key = sorted(jobs, key=id)",
        "def decide(state, now: float): ...",
        "class Timer:\n    fires_at_ms: float | None",
    ],
)
def test_what_would_depend_on_chance_is_found(source: str) -> None:
    assert len(violations(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "for job in sorted({1, 2}): ...",
        "if job in {1, 2}: ...",
        "count = len(set(jobs))",
        "lowest = min({1, 2})",
        "waiting = {1} | {2}\nseen = set(waiting)",
        "for job in [1, 2]: ...",
        "for name in {'a': 1}: ...",
        "bits = a & b\nfor index in members(bits): ...",
        "for name in sorted(a.keys() & b.keys()): ...",
        "for name in a.keys(): ...",
        "victims: dict[str, list[int]] = {}\nfor job in victims['a']: ...",
        "victims: dict[str, set[int]] = {}\nfor name in victims: ...",
        "def found() -> list[int]: ...\nfor job in found(): ...",
        "job.id = 3\nkey = job.id",
        "def decide(state, now: int): ...",
        "def cost(step_ms: float): ...",
    ],
)
def test_what_is_the_same_in_every_process_is_left_alone(source: str) -> None:
    assert violations(source) == []
