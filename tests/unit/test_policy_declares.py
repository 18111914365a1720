"""What a policy does is asked of the policy, in one place."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import phalanx
from phalanx.policy.policy import Policy

SOURCE = Path(phalanx.__file__).parent
DEFAULTS = {each.default.__name__ for each in fields(Policy) if callable(each.default)}
COMPARED = re.compile(rf"\bis (?:not )?(?:{'|'.join(sorted(DEFAULTS))})\b(?=[^\"]*$)", re.MULTILINE)
THE_POLICY = SOURCE / "policy" / "policy.py"


def test_the_policy_itself_compares_its_functions() -> None:
    assert COMPARED.findall(THE_POLICY.read_text())


def test_nothing_else_goes_by_which_function_a_policy_has() -> None:
    compares = {
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        if path != THE_POLICY
        for line in path.read_text().splitlines()
        if re.search(r"\.\w+ is (?:not )?\w+", line) and COMPARED.search(line)
    }
    assert compares == set()
