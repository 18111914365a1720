"""Files of throughputs: ours, a list of measurements, or the one that came with Gavel."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from phalanx.cluster.cluster import Cluster
from phalanx.document.error import brief
from phalanx.errors import PhalanxError
from phalanx.simulate.trace import Trace
from phalanx.workload.throughputs import Throughput, Throughputs, batch_of, name_of, type_key

KEYS = ("model", "batch", "gpus", "steps_per_s")
RATES = (1e-9, 1e9)
"""The least and the most that was ever measured, and more: a step in thirty years is none."""
ALONE = "null"
SPREAD = "_unconsolidated"
"""How Gavel's file marks types whose GPUs lie apart: how much that costs is reckoned elsewhere."""


class ThroughputError(PhalanxError):
    """A file of throughputs that cannot be read. The text names the file, the entry and what was expected."""


def read_throughputs(path: str) -> Throughputs:
    """Reads `[{model, batch, gpus, steps_per_s: {V100: 4.8, …}}, …]`, or `{type: {"('model', gpus)": {null: …}}}`."""
    try:
        told = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ThroughputError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ThroughputError(f"{path}: expected JSON: {error}") from error
    except RecursionError:
        raise ThroughputError(f"{path}: expected throughputs, found values nested without end") from None
    rows = tuple(_gavels(path, told) if isinstance(told, dict) else _ours(path, told))
    if not rows:
        raise ThroughputError(f"{path}: expected throughputs, found none")
    return Throughputs(path, rows)


def missing_models(throughputs: Throughputs, trace: Trace) -> dict[str, int]:
    """Models of a trace of which nothing was measured, each with how many jobs it has."""
    found: dict[str, int] = {}
    for job in trace.jobs:
        if not throughputs.knows(job.model):
            found[job.model] = found.get(job.model, 0) + 1
    return found


def gaps(throughputs: Throughputs, trace: Trace, cluster: Cluster) -> Iterator[str]:
    """What a file does not tell of the models of a trace on the types of a cluster, and where they cannot run."""
    for model, jobs in missing_models(throughputs, trace).items():
        named = f"model {model}" if model else "jobs that name no model"
        yield f"{throughputs.source} has nothing of {named} ({jobs:,} jobs): they go by the catalogue"
    types = list(dict.fromkeys(node.gpu_type for node in cluster.nodes if node.gpus and node.gpu_type))
    unmeasured: Counter[tuple[str, str]] = Counter()
    unable: Counter[tuple[str, str]] = Counter()
    for (model, gpus), jobs in Counter((job.model, job.gpus) for job in trace.jobs).items():
        steps = throughputs.steps_per_s(model, gpus)
        if not steps or not types:
            continue
        missing = [name for name in types if type_key(name) not in steps]
        if missing:
            only = ", ".join(steps) if len(missing) == len(types) else ""
            unmeasured[model, f" but on {only}" if only else f" on {', '.join(missing)}"] += jobs
        nowhere = throughputs.unable(model, gpus, types)
        if nowhere:
            unable[model, _where(nowhere, types)] += jobs
    for (model, where), jobs in unmeasured.items():
        told = "they go" if where.startswith(" but") else "there they go"
        yield f"{throughputs.source} has nothing of model {model}{where} ({jobs:,} jobs): {told} by the catalogue"
    for (model, where), jobs in unable.items():
        yield f"{throughputs.source} has 0 steps a second for model {model} ({jobs:,} jobs): they {where}"


def _where(unable: Sequence[str], types: Sequence[str]) -> str:
    return "never start here" if len(unable) == len(types) else f"never go to {', '.join(unable)}"


def _ours(path: str, told: Any) -> Iterator[Throughput]:
    if not isinstance(told, list):
        raise ThroughputError(f"{path}: expected a list of throughputs, found {brief(json.dumps(told))}")
    said: dict[tuple[str, int, int, str], int] = {}
    for number, entry in enumerate(told, start=1):
        where = f"{path}: entry {number}"
        if not isinstance(entry, dict):
            raise ThroughputError(f"{where}: expected {{{', '.join(KEYS)}}}, found {brief(json.dumps(entry))}")
        for key in entry:
            if key not in KEYS:
                raise ThroughputError(f"{where}: unknown key {brief(key)!r}; known are {', '.join(KEYS)}")
        model, steps = entry.get("model"), entry.get("steps_per_s")
        if not isinstance(model, str) or not model:
            raise ThroughputError(f"{where}: model: expected the name of a model, found {brief(json.dumps(model))}")
        if not isinstance(steps, dict) or not steps:
            raise ThroughputError(f"{where}: steps_per_s: expected steps a second by GPU type, as {{V100: 4.8}}")
        row = Throughput(
            model,
            _count(entry.get("batch", 0), where, "batch", 0),
            _count(entry.get("gpus", 1), where, "gpus", 1),
            tuple((gpu_type.upper(), _rate(rate, where, gpu_type)) for gpu_type, rate in steps.items()),
        )
        for gpu_type in steps:
            key = (name_of(model), row.batch, row.gpus, type_key(gpu_type))
            if key in said:
                raise ThroughputError(f"{where}: {brief(gpu_type)}: was told in entry {said[key]}: expected it once")
            said[key] = number
        yield row


def _count(value: object, where: str, key: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        found = brief(json.dumps(value))
        raise ThroughputError(f"{where}: {key}: expected a whole number, at least {least}, found {found}")
    return value


def _rate(value: object, where: str, gpu_type: str) -> float:
    least, most = RATES
    if isinstance(value, bool) or not isinstance(value, int | float) or (value != 0 and not least <= value <= most):
        found = brief(json.dumps(value))
        expected = f"expected steps a second, not negative, and {least:g} to {most:g} if not 0"
        raise ThroughputError(f"{where}: {gpu_type}: {expected}, found {found}")
    return float(value)


def _gavels(path: str, told: dict[str, Any]) -> Iterator[Throughput]:
    """Gavel's file: by type, by `('model (batch size N)', gpus)`, alone (`null`) and, on one GPU, beside another."""
    found: dict[tuple[str, int], list[tuple[str, float]]] = {}
    beside: dict[tuple[str, int], list[tuple[str, str, float]]] = {}
    for gpu_type, measured in told.items():
        if gpu_type.endswith(SPREAD):
            continue
        if not isinstance(measured, dict):
            raise ThroughputError(f"{path}: {brief(gpu_type)}: expected throughputs by model and number of GPUs")
        for key, rates in measured.items():
            where = f"{path}: {gpu_type}: {brief(key)}"
            model, gpus = _model_and_gpus(key, where)
            rate = rates.get(ALONE) if isinstance(rates, dict) else None
            found.setdefault((model, gpus), []).append((gpu_type.upper(), _rate(rate, where, gpu_type)))
            for other, pair in rates.items():
                if other != ALONE and gpus == 1:
                    name, others = _model_and_gpus(other, where)
                    if others == 1:
                        told_of = (
                            gpu_type.upper(),
                            name,
                            _pair_rate(pair, f"{where}: beside {brief(other)}", gpu_type),
                        )
                        beside.setdefault((model, gpus), []).append(told_of)
    for (model, gpus), steps in found.items():
        yield Throughput(model, batch_of(model), gpus, tuple(steps), tuple(beside.get((model, gpus), ())))


def _pair_rate(pair: Any, where: str, gpu_type: str) -> float:
    if not isinstance(pair, list) or len(pair) != 2:
        raise ThroughputError(f"{where}: {gpu_type}: expected steps a second of both, found {brief(json.dumps(pair))}")
    return _rate(pair[0], where, gpu_type)


def _model_and_gpus(key: str, where: str) -> tuple[str, int]:
    try:
        model, gpus = ast.literal_eval(key)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise ThroughputError(f"{where}: expected ('model', gpus)") from None
    if not isinstance(model, str) or not isinstance(gpus, int) or gpus < 1:
        raise ThroughputError(f"{where}: expected ('model', gpus)")
    return model, gpus
