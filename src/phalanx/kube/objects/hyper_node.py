"""HyperNodes of Volcano: which nodes a switch connects, in tiers of which the first is the nearest."""

from __future__ import annotations

from phalanx.kube.objects.meta import Stored, Wire
from phalanx.kube.objects.pod import LabelSelector


class ExactMatch(Wire, frozen=True):
    """A name."""

    name: str = ""


class RegexMatch(Wire, frozen=True):
    """What a name matches."""

    pattern: str = ""


class MemberSelector(Wire, frozen=True):
    """Members by one of these."""

    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


class Member(Wire, frozen=True):
    """Nodes, or HyperNodes of a lower tier, that belong to a HyperNode."""

    type: str = ""
    selector: MemberSelector = MemberSelector()


class HyperNodeSpec(Wire, frozen=True):
    """The tier of a HyperNode and what belongs to it."""

    tier: int = 0
    members: list[Member] | None = None


class HyperNode(Stored, frozen=True):
    """A HyperNode."""

    spec: HyperNodeSpec = HyperNodeSpec()
