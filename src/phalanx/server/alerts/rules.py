"""Rules of alerts, and the file they are read from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from phalanx.document import Field, Limits, read_document

ALERT_LIMITS = Limits(text=1024 * 1024, values=10_000)
RULES_MAX = 100
TIMES_MAX = 1_000
FILE_KEYS = ("version", "webhook", "rules")
RULE_KEYS = ("name", "when", "for", "busy_below", "times", "then")


class When(StrEnum):
    """What a rule watches for."""

    IDLE_GPUS = "idle_gpus"
    STUCK_JOB = "stuck_job"
    FLAPPING_NODE = "flapping_node"


class Then(StrEnum):
    """What follows when a rule comes true: it is only told, or the job is stopped, or the node is drained as well."""

    NOTIFY = "notify"
    STOP = "stop"
    DRAIN = "drain"


FITTING = {
    When.IDLE_GPUS: (Then.NOTIFY, Then.STOP),
    When.STUCK_JOB: (Then.NOTIFY, Then.STOP),
    When.FLAPPING_NODE: (Then.NOTIFY, Then.DRAIN),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `for_ms` is how long something must have been so, or within which time it must have happened."""

    name: str
    when: When
    for_ms: int
    then: Then = Then.NOTIFY
    busy_below: float = 0.05
    times: int = 3


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules, and where alerts are told; without a webhook that is the log and `GET /alerts` alone."""

    rules: tuple[Rule, ...] = ()
    webhook: str = ""


def read_rules(text: str, source: str) -> Rules:
    """Reads a file of rules. `source` names it in errors; nothing is opened."""
    fields = read_document(text, source, ALERT_LIMITS).mapping(FILE_KEYS)
    fields.get("version", lambda version: version.integer(1, 1), 1)
    rules = fields.get("rules", lambda rules: tuple(map(_read_rule, rules.items(0, RULES_MAX))), ())
    names = [rule.name for rule in rules]
    if len(set(names)) < len(names):
        raise fields["rules"].error("two rules have one name")
    return Rules(rules, fields.get("webhook", _read_webhook, ""))


def _read_rule(field: Field) -> Rule:
    fields = field.mapping(RULE_KEYS)
    when = When(fields.need("when", lambda when: when.choice(tuple(When))))
    then = Then(fields.get("then", lambda then: then.choice(tuple(Then)), Then.NOTIFY))
    if then not in FITTING[when]:
        raise fields["then"].expected(" or ".join(FITTING[when]) + f" for {when.value}")
    return Rule(
        name=fields.get("name", Field.name, when.value),
        when=when,
        for_ms=fields.need("for", Field.duration_ms),
        then=then,
        busy_below=fields.get("busy_below", lambda share: share.number(0, 1), 0.05),
        times=fields.get("times", lambda times: times.integer(1, TIMES_MAX), 3),
    )


def _read_webhook(field: Field) -> str:
    text = field.title()
    if not text.startswith(("http://", "https://")):
        raise field.expected("an address that begins with http:// or https://")
    return text
