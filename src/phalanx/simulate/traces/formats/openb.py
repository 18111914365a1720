"""Alibaba's trace of 2023 (Weng et al., ATC'23; openb): a list of pods, with parts of GPUs, and a list of nodes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.formats.limits import GPUS_PER_NODE_MAX
from phalanx.simulate.trace import Ending, Trace, TraceJob
from phalanx.simulate.traces import values
from phalanx.simulate.traces.dated import since_first
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.intake import Intake, LeftOut, with_gpus
from phalanx.simulate.traces.rows import open_rows

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time", "deletion_time")
ENDINGS = {"Succeeded": Ending.COMPLETED, "Running": Ending.COMPLETED, "Failed": Ending.FAILED, "Pending": None}
CPUS_MILLI_MAX = 10_000_000
PARTS_OF_SEVERAL = "parts of several GPUs in one pod, read as whole GPUs"
"""A pod is on one node, and parts of devices are asked for one by one, wherever they are."""


def read_pods(path: str, skip_bad_rows: bool = False) -> Trace:
    """Reads a list of pods. A pod is a job of one task, and ran from when it was scheduled to its deletion."""
    intake = Intake(path, skip_bad_rows)
    with open_rows(path) as table:
        # Times first: a list without them is no trace, whatever else it lacks.
        created = table.reader("creation_time", values.milliseconds, values.SECONDS)
        deleted = table.reader("deletion_time", values.milliseconds, values.SECONDS)
        scheduled = table.reader("scheduled_time", _milliseconds_or_none, values.SECONDS)
        name = table.reader("name", values.identity, "the name of a pod")
        gpus = table.reader("num_gpu", values.gpus, values.GPUS)
        milli = table.reader("gpu_milli", values.milli, values.MILLI)
        spec = table.reader("gpu_spec", _types, "names of GPU models between bars, as V100M16|V100M32")
        cpus = table.reader("cpu_milli", partial(values.within, least=0, most=CPUS_MILLI_MAX), "thousandths of a CPU")
        memory = table.reader("memory_mib", values.memory_mb, values.MEMORY_MB)
        qos = table.reader("qos", values.text, "a class of service")
        phase = table.reader("pod_phase", _ending, f"one of {', '.join(ENDINGS)}")
        jobs = []
        for at in table.rows(intake.refuse):
            try:
                ending, start_ms, end_ms = phase(*at), scheduled(*at), deleted(*at)
                if ending is None or start_ms is None:
                    raise LeftOut("that were never scheduled")
                if end_ms < start_ms:
                    raise TraceError(path, "expected a time after scheduled_time", at[0], "deletion_time")
                whole, part = gpus(*at), milli(*at)
                job = TraceJob(
                    name(*at),
                    created(*at),
                    end_ms - start_ms,
                    whole,
                    queue=qos(*at) or "default",
                    gpu_type=spec(*at),
                    ending=ending,
                    gpu_milli=part if whole == 1 else 0,
                    cpus_milli=cpus(*at),
                    memory_mb=memory(*at),
                )
                with_gpus(job)
                intake.name(job.id, at[0], "name")
                jobs.append(job)
                if part and whole > 1:
                    intake.remark(PARTS_OF_SEVERAL)
            except (TraceError, LeftOut) as reason:
                intake.refuse(reason)
    return intake.trace(since_first(jobs))


def _types(text: str) -> str:
    """GPU models that will do; none means any."""
    names = [name.strip() for name in text.split("|") if name.strip()]
    return values.text("|".join(names))


def _ending(text: str) -> Ending | None:
    if text not in ENDINGS:
        raise ValueError(text)
    return ENDINGS[text]


def _milliseconds_or_none(text: str) -> int | None:
    return values.milliseconds(text) if text.strip() else None


def read_nodes(path: str) -> Cluster:
    """Reads a list of nodes. It tells nothing of racks. Nodes without GPUs are part of it."""
    with open_rows(path) as table:
        name = table.reader("sn", values.identity, "the name of a node")
        most = GPUS_PER_NODE_MAX
        gpus = table.reader("gpu", partial(values.within, least=0, most=most), values.span(0, most))
        model = table.reader("model", values.text, "the name of a GPU model")
        cpus = table.reader("cpu_milli", partial(values.within, least=0, most=CPUS_MILLI_MAX), "thousandths of a CPU")
        memory = table.reader("memory_mib", values.memory_mb, values.MEMORY_MB)
        nodes: dict[str, Node] = {}
        for at in table.rows():
            node = Node(name(*at), (), gpus(*at), model(*at), cpus_milli=cpus(*at), memory_mb=memory(*at))
            if node.name in nodes:
                raise TraceError(path, f"expected a name that no other node has, got {node.name}", at[0], "sn")
            nodes[node.name] = node
    if not nodes:
        raise TraceError(path, "expected at least one node")
    return Cluster(tuple(nodes.values()), name=Path(path).stem)
