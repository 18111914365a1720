"""Every case of the suite is run against every backend that can do what the case is about.

A backend to come adds its subject to SUBJECTS; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest
from kubelet_subject import KubeletSubject
from kubernetes_subject import KubernetesSubject
from ray_subject import RaySubject
from rig import Rig
from slurm_subject import SlurmSubject
from subject import LocalSubject, Subject
from virtual_subject import VirtualSubject

from phalanx.backends.capability import Capability
from phalanx.backends.ray.offer import LACKS

SUBJECTS: dict[str, Callable[[], Subject]] = {
    "local": LocalSubject,
    "virtual": VirtualSubject,
    "kubernetes": KubernetesSubject,
    "kubelet": KubeletSubject,
    "ray": RaySubject,
    "slurm": SlurmSubject,
}

NEEDS = ("kubelet", "kubernetes", "ray", "slurm")
"""Backends that need more than the base install. On all of them each start takes a second."""


@cache
def abilities(name: str) -> tuple[object, ...]:
    """All that a backend can do here."""
    if name == "ray":
        return (*(each for each in Capability if each not in LACKS), *RaySubject.programs)
    subject = SUBJECTS[name]()
    subject.close()
    return (*subject.offer.has, *subject.programs)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" in metafunc.fixturenames:
        needs = getattr(metafunc.function, "needs", ())
        able = [name for name in SUBJECTS if all(need in abilities(name) for need in needs)]
        kills = "apart" in metafunc.fixturenames
        metafunc.parametrize("subject", [_case(name, kills) for name in able], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where each start takes a second, cases that are run for several ranks or moments are run for few of them."""
    for item in items:
        if _is_spared(item):
            item.add_marker(pytest.mark.needs("conformance"))


def _is_spared(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    if params.get("subject") not in NEEDS:
        return False
    spared = getattr(getattr(item, "function", None), "spares", ())
    return params["subject"] in spared or params.get("rank") in (1, 2) or params.get("trial")


def _case(name: str, kills: bool) -> object:
    """A backend. On Kubernetes cases that kill the server take minutes in all; some are among its own tests."""
    if name == "kubernetes" and kills:
        return pytest.param(name, marks=pytest.mark.needs("kubernetes", "soak"))
    return pytest.param(name, marks=pytest.mark.needs(name)) if name in NEEDS else name


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    made = SUBJECTS[request.param]()
    yield made
    made.close()


@pytest.fixture
def rig(subject: Subject) -> Rig:
    return Rig(subject)


@pytest.fixture
def apart(subject: Subject) -> Rig:
    """A rig whose backend is in a process of its own."""
    return Rig(subject, apart=True)
