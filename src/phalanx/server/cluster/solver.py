"""Solvers that policies ask for advice."""

from __future__ import annotations

from phalanx.advice.registry import adviser
from phalanx.errors import PhalanxError
from phalanx.policy.registry import policy as policy_named
from phalanx.server.refusal import Refusal


def need_adviser(policy: str) -> None:
    """A policy that asks a solver which is not here could not decide."""
    try:
        name = policy_named(policy).adviser
        if name:
            adviser(name)
    except PhalanxError as error:
        raise Refusal("conflict", f"policy {policy}: {error}") from None
