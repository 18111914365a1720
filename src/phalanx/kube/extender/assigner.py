"""The assigner: offers the pods of whole gangs to kube-scheduler, which asks where each goes and has it bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError
from phalanx.kube.binder import Answer, Binder, Bound, Fenced, bind_one
from phalanx.kube.mirror import Mirror
from phalanx.kube.objects.meta import Metadata
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import demand_of

GPUS_ANNOTATION = "phalanx.dev/gpus"
"""The indices of the GPUs of its node that a pod is meant for. A change of it also has kube-scheduler look again."""

OFFERED_S = 120.0
"""How long kube-scheduler may take to have all pods of a gang bound; then those that were bound are deleted."""

DIGITS_MAX = 4


@dataclass(slots=True)
class _Offer:
    job: str
    attempt: int
    places: dict[str, tuple[Pod, str]]
    until_s: float
    bound: dict[str, None] = field(default_factory=dict)


class Assigner(Binder):
    """A binder whose binds are asked for by kube-scheduler. Any thread may ask `node_for` and `bind_pod`."""

    def __init__(self, client: Client, tell: Callable[[Answer], None], may: Callable[[], bool], mirror: Mirror) -> None:
        super().__init__(client, tell, may)
        self._tell = tell
        self._fenced = Fenced(client, may)
        self._mirror = mirror
        self._lock = threading.Lock()
        self._offers: dict[str, _Offer] = {}

    def bind(self, job: str, attempt: int, places: tuple[tuple[Pod, str], ...]) -> None:
        """Offers the pods of a gang."""
        found = {pod.metadata.uid: (pod, node) for pod, node in places}
        offer = _Offer(job, attempt, found, time.monotonic() + OFFERED_S)
        with self._lock:
            self._offers |= dict.fromkeys(found, offer)
        taken: dict[str, list[int]] = {}
        for pod, node in places:
            indices = self._free_indices(node, demand_of(pod).gpus, taken)
            self._pool.submit(self._annotate, pod, indices)

    def node_for(self, uid: str) -> str:
        """The node that a pod was given; empty while it has none."""
        with self._lock:
            offer = self._offers.get(uid)
            return offer.places[uid][1] if offer is not None else ""

    def bind_pod(self, uid: str, node: str) -> str:
        """Binds a pod for kube-scheduler; what is wrong, if something is."""
        with self._lock:
            offer = self._offers.get(uid)
        if offer is None or offer.places[uid][1] != node:
            return "phalanx has not given the pod this node"
        try:
            bind_one(self._fenced, offer.job, *offer.places[uid])
        except ApiError as error:
            self._give_up(offer, str(error))
            return str(error)
        with self._lock:
            offer.bound[uid] = None
            is_whole = len(offer.bound) == len(offer.places) and self._withdraw(offer)
        if is_whole:
            self._tell(Bound(offer.job, offer.attempt, _keys(offer)))
        return ""

    def bind_other(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Binds a pod on which phalanx does not decide, as kube-scheduler has; what is wrong, if something is.
        kube-scheduler has all its pods bound by an extender that binds.
        """
        pod = Pod(metadata=Metadata(name=name, namespace=namespace, uid=uid))
        try:
            bind_one(self._fenced, "", pod, node)
        except ApiError as error:
            return str(error)
        return ""

    def expire(self) -> None:
        """Gives up offers that were not taken in time, and those of pods that are gone."""
        now = time.monotonic()
        with self._lock:
            offers = {id(offer): offer for offer in self._offers.values()}
        for offer in offers.values():
            gone = any(
                pod.metadata.key not in self._mirror.pods
                or self._mirror.pods[pod.metadata.key].metadata.uid != pod.metadata.uid
                for pod, _ in offer.places.values()
            )
            if gone or offer.until_s < now:
                late = f"kube-scheduler did not take it in {OFFERED_S:g} s"
                self._give_up(offer, "a pod of it is gone" if gone else late)

    def _give_up(self, offer: _Offer, why: str) -> None:
        with self._lock:
            if not self._withdraw(offer):
                return
            undone = tuple(offer.places[uid][0] for uid in offer.bound)
        self.delete(undone)
        self._tell(Bound(offer.job, offer.attempt, _keys(offer), why, tuple(pod.metadata.key for pod in undone)))

    def _withdraw(self, offer: _Offer) -> bool:
        """Takes an offer back; False if it was already."""
        mine = [uid for uid in offer.places if self._offers.get(uid) is offer]
        for uid in mine:
            del self._offers[uid]
        return bool(mine)

    def _free_indices(self, node: str, count: int, taken: dict[str, list[int]]) -> tuple[int, ...]:
        """The next GPUs of a node that no pod there is meant for."""
        used = taken.setdefault(node, [])
        if not used:
            for key in self._mirror.by_node.get(node, ()):
                pod = self._mirror.pods[key]
                if not pod.is_over:
                    used += indices_of(pod)
        found: list[int] = []
        index = 0
        while len(found) < count:
            if index not in used:
                found.append(index)
            index += 1
        used += found
        return tuple(found)

    def _annotate(self, pod: Pod, indices: tuple[int, ...]) -> None:
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        said = ",".join(map(str, indices))
        try:
            self._fenced.patch(path, {"metadata": {"uid": pod.metadata.uid, "annotations": {GPUS_ANNOTATION: said}}})
        except ApiError:
            # kube-scheduler comes back to the pod by itself, only later.
            return


def indices_of(pod: Pod) -> list[int]:
    """The GPUs that a pod is meant for. Users may write it, too: what is no list of small numbers is none."""
    said = (pod.metadata.annotations or {}).get(GPUS_ANNOTATION, "")[:1000].split(",")
    return [int(each) for each in said if each.isascii() and each.isdecimal() and len(each) <= DIGITS_MAX]


def _keys(offer: _Offer) -> tuple[str, ...]:
    return tuple(pod.metadata.key for pod, _ in offer.places.values())
