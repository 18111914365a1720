"""What every test may use: the `needs` marker and the Hypothesis profiles.

A test marked `@pytest.mark.needs("torch")` runs where torch is. Elsewhere it is skipped, and the run closes
with one line for each missing thing: what was skipped and how to get it. With PHALANX_REQUIRE=all (or names with
commas between) a missing thing fails the test instead, so that a green run in CI has run everything. What only some
machines can have, a GPU say, is demanded by its name alone. What takes minutes runs only where its name is demanded:
CI has an end.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# The same examples on every run: a red build is about the change in it. To explore instead, run pytest with
# `--hypothesis-profile thorough`. Hypothesis also draws constants of the modules imported so far, which differ with
# what a worker ran before; derandomized examples are the same only without them.
# Whether an example is slow depends on what else the machine does, so time never decides.
settings.register_profile(
    "ci", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")
providers._get_local_constants = lambda: providers._local_constants


@dataclass(frozen=True, slots=True)
class Need:
    """Something a test needs beyond the base install."""

    is_here: Callable[[], bool]
    how_to_get: str
    is_of_machine: bool = False
    """Whether no command could get it: some machines have it and others not."""
    by_name: bool = False
    """Whether its tests run only where PHALANX_REQUIRE names it: they take minutes, or what they need takes them."""


def has_modules(*names: str) -> bool:
    return all(importlib.util.find_spec(name) for name in names)


def has_programs(*names: str) -> bool:
    # Servers live in sbin, which is not on everybody's PATH.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])
    return all(shutil.which(name, path=path) for name in names)


def has_postgres() -> bool:
    # Debian keeps the server out of PATH, one folder a version.
    return has_programs("postgres") or any(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


def has_gpu() -> bool:
    from phalanx.backends.local.host.gpus import find_gpus

    return bool(find_gpus())


def has_control_groups() -> bool:
    from phalanx.backends.local.host.cgroup import find_grounds

    return bool(find_grounds()["cpu"])


def has_s3_server() -> bool:
    from s3_server import program

    return has_modules("s3fs") and program().exists()


def has_kuberay() -> bool:
    from kube_cluster import folder

    return (folder() / "ray-operator").exists()


def has_kubernetes() -> bool:
    from kube_cluster import is_here

    return is_here()


def has_older_kubernetes() -> bool:
    from kube_cluster import is_here

    return is_here("older_version")


def has_streaming_etcd() -> bool:
    from kube_cluster import folder, is_here

    return is_here() and (folder() / "etcd").exists()


def has_kubelets() -> bool:
    from kubelets import are_here

    return are_here()


def has_kube_scheduler() -> bool:
    from kube_cluster import folder

    return has_kubernetes() and (folder() / "kube-scheduler").exists()


def has_kwok() -> bool:
    from kube_cluster import folder

    return has_kubernetes() and (folder() / "kwok").exists()


def has_namespaces() -> bool:
    """Whether network namespaces can be made here, with links between them."""
    if os.getuid() != 0 or not has_programs("ip", "unshare") or not Path("/dev/net/tun").exists():
        return False
    link = ["ip", "link", "add", "phalanx0", "type", "veth", "peer", "name", "phalanx1"]
    return subprocess.run(["unshare", "--net", *link], capture_output=True).returncode == 0


NEEDS = {
    "polars": Need(lambda: has_modules("polars"), "uv sync --extra traces"),
    "plotly": Need(lambda: has_modules("plotly"), "uv sync --extra report"),
    "highspy": Need(lambda: has_modules("highspy"), "uv sync --extra solve"),
    "podman": Need(lambda: has_programs("podman"), "apt-get install podman crun runc"),
    "torch": Need(lambda: has_modules("torch"), "uv sync --extra train"),
    "transformers": Need(lambda: has_modules("torch", "transformers", "accelerate"), "uv sync --extra transformers"),
    "lightning": Need(lambda: has_modules("torch", "lightning"), "uv sync --extra lightning"),
    "s3": Need(has_s3_server, "uv sync --extra s3 && scripts/s3-server"),
    "kubernetes": Need(
        has_kubernetes, "apt-get install etcd-server openssl && scripts/kube-cluster kube-apiserver definitions"
    ),
    "kube134": Need(
        has_older_kubernetes,
        "PHALANX_REQUIRE=all,kube134, after "
        "apt-get install etcd-server openssl && scripts/kube-cluster --older kube-apiserver definitions",
        by_name=True,
    ),
    "kuberay": Need(has_kuberay, "PHALANX_REQUIRE=all,kuberay, after scripts/kube-cluster ray-operator", by_name=True),
    "etcd36": Need(
        has_streaming_etcd,
        "PHALANX_REQUIRE=all,etcd36, after scripts/kube-cluster kube-apiserver definitions etcd",
        by_name=True,
    ),
    "kubelet": Need(
        has_kubelets,
        "PHALANX_REQUIRE=all,kubelet as root, after apt-get install containerd runc containernetworking-plugins "
        "busybox-static && scripts/kube-cluster --older kubelet",
        by_name=True,
    ),
    "kube_scheduler": Need(
        has_kube_scheduler,
        "PHALANX_REQUIRE=all,kube_scheduler, after scripts/kube-cluster kube-apiserver definitions kube-scheduler",
        by_name=True,
    ),
    "kwok": Need(
        has_kwok, "PHALANX_REQUIRE=all,kwok, after scripts/kube-cluster kube-apiserver definitions kwok", by_name=True
    ),
    "kubectl": Need(lambda: has_programs("kubectl"), "apt-get install kubernetes-client"),
    "slurm": Need(
        lambda: has_programs("munged", "slurmctld", "slurmd", "sbatch"),
        "apt-get install munge slurmctld slurmd slurm-client",
    ),
    "ray": Need(lambda: has_modules("ray"), "uv sync --extra ray"),
    "ray_head": Need(
        lambda: has_modules("ray"),
        "PHALANX_REQUIRE=all,ray_head, after uv sync --extra ray: heads and nodes of Ray come and go",
        by_name=True,
    ),
    "soak": Need(lambda: True, "PHALANX_REQUIRE=all,soak: minutes of load, kills and restarts", by_name=True),
    "conformance": Need(
        lambda: True, "PHALANX_REQUIRE=all,conformance: every case on Ray and Slurm as well, in minutes", by_name=True
    ),
    "postgres": Need(has_postgres, "apt-get install postgresql"),
    "chromium": Need(
        lambda: any(has_programs(name) for name in ("chromium", "chromium-browser", "google-chrome")),
        "apt-get install chromium",
    ),
    "gpu": Need(has_gpu, "a machine with an NVIDIA GPU and its driver, and uv sync --extra train", is_of_machine=True),
    "mps": Need(lambda: has_programs("nvidia-cuda-mps-control"), "NVIDIA's driver with MPS", is_of_machine=True),
    "namespaces": Need(has_namespaces, "run as root, with iproute2 (apt-get install iproute2)", is_of_machine=True),
    "cgroups": Need(
        has_control_groups,
        "run as root, or where control groups are yours: systemd-run --user --scope -p Delegate=yes",
        is_of_machine=True,
    ),
}

ENGINES = {"ray": "ray_cluster", "slurm": "slurm_cluster"}
"""Engines of which tests share one cluster, which costs seconds to build and processor time to keep, by the module."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the suite in the background has SIGINT ignored, and nohup SIGHUP; and so would every program
    # that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if os.getuid() == 0 and config.option.basetemp is None:
        # Jobs of a server that is root run as other users, who cannot pass the folder that pytest keeps for root.
        config.option.basetemp = tempfile.mkdtemp(prefix="phalanx-tests-")
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))
    config.addinivalue_line("markers", f"needs(*names): runs only where these are: {', '.join(NEEDS)}")
    config.addinivalue_line("markers", "long: takes so long that `scripts/test fast` leaves it out")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names bytes by their argument: those packed with the hour would be other tests in each worker; none would run."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        unknown = [name for name in needs_of(item) if name not in NEEDS]
        if unknown:
            raise pytest.UsageError(f"{item.nodeid} needs {unknown[0]!r}, which is not one of {', '.join(NEEDS)}")
    # One behind the other, so that one worker builds each engine, once, and ends it when the last of them is over.
    items.sort(key=lambda item: tuple(engine not in needs_of(item) for engine in ENGINES))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    yield
    for engine in ENGINES:
        if engine in needs_of(item) and (nextitem is None or engine not in needs_of(nextitem)):
            end_engine(engine)


def end_engine(name: str) -> None:
    """Ends the cluster that tests share, where one was started."""
    module = sys.modules.get(ENGINES[name])
    if module is not None:
        module.end_shared()


def pytest_runtest_setup(item: pytest.Item) -> None:
    required = os.environ.get("PHALANX_REQUIRE", "").split(",")
    missing = [
        name for name in needs_of(item) if (NEEDS[name].by_name and name not in required) or not NEEDS[name].is_here()
    ]
    if not missing:
        return
    for name in missing:
        if name in required or ("all" in required and not (NEEDS[name].is_of_machine or NEEDS[name].by_name)):
            pytest.fail(f"needs {name}, which PHALANX_REQUIRE demands: {NEEDS[name].how_to_get}", pytrace=False)
    # A property of the report travels from an xdist worker to the process that prints the summary.
    item.user_properties.append(("missing", missing))
    pytest.skip(f"needs {', '.join(missing)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = Counter(
        name
        for report in terminalreporter.stats.get("skipped", [])
        for key, missing in getattr(report, "user_properties", [])
        if key == "missing"
        for name in missing
    )
    for name, count in sorted(skipped.items()):
        terminalreporter.write_line(f"skipped {count} that need {name}; to run them: {NEEDS[name].how_to_get}")


def needs_of(item: pytest.Item) -> Iterator[str]:
    for marker in item.iter_markers("needs"):
        yield from marker.args


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 2 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
