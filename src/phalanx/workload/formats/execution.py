"""What a job file says about the processes themselves, which the scheduler hands on as it is."""

from __future__ import annotations

import re
import shlex

from phalanx.document import Field, Fields
from phalanx.document.error import brief
from phalanx.workload.formats.limits import ARGUMENTS_MAX, MOUNTS_MAX, SECRETS_MAX, VARIABLES_MAX
from phalanx.workload.job import Execution, Probe, ProbeKind

EXECUTION_KEYS = ("command", "image", "env", "inherit_env", "workdir", "mounts", "secrets", "health", "idle_timeout")
HEALTH_KEYS = ("http", "tcp", "command", "interval", "timeout", "failures", "after")
MOUNT_KEYS = ("source", "target")

PORT_MAX = 65_535
FAILURES_MAX = 1_000

_SECRET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""A secret is a file and a variable of this name: nothing in it leads to another folder or ends the variable's name."""


def read_execution(job: Fields) -> Execution:
    """The command of a job and what surrounds it. `inherit_env` is for `submit`, which has done it by now."""
    job.get("inherit_env", Field.boolean, True)
    return Execution(
        command=job.get("command", _read_command, ()),
        image=job.get("image", _read_image, ""),
        env=job.get("env", _read_env, ()),
        workdir=job.get("workdir", Field.text, ""),
        mounts=job.get("mounts", lambda mounts: tuple(map(_read_mount, mounts.items(0, MOUNTS_MAX))), ()),
        secrets=job.get("secrets", lambda names: tuple(map(_read_secret, names.items(0, SECRETS_MAX))), ()),
        probe=job.get("health", _read_probe, None),
        idle_timeout_ms=job.get("idle_timeout", Field.duration_ms, None),
    )


def _read_probe(field: Field) -> Probe:
    """`{http: ":8080/healthz"}`, `{tcp: 8080}` or `{command: [...]}`, and how often, how long, how many times."""
    fields = field.mapping(HEALTH_KEYS)
    kinds = [kind for kind in ProbeKind if kind.value in fields]
    if len(kinds) != 1:
        raise field.expected(f"one of {', '.join(ProbeKind)}")
    (kind,) = kinds
    port, path = 0, "/"
    if kind is ProbeKind.HTTP:
        port, path = _read_http(fields["http"])
    elif kind is ProbeKind.TCP:
        port = fields["tcp"].integer(1, PORT_MAX)
    return Probe(
        kind,
        port,
        path,
        command=fields.get("command", _read_command, ()),
        interval_ms=fields.get("interval", Field.duration_ms, 10_000),
        timeout_ms=fields.get("timeout", Field.duration_ms, 5_000),
        failures_max=fields.get("failures", lambda failures: failures.integer(1, FAILURES_MAX), 3),
        after_ms=fields.get("after", Field.duration_ms, 0),
    )


def _read_http(field: Field) -> tuple[int, str]:
    port, slash, path = field.text().removeprefix(":").partition("/")
    if not port.isdecimal() or not 1 <= int(port) <= PORT_MAX:
        raise field.expected("a port and a path such as :8080/healthz")
    return int(port), slash + path or "/"


def _read_command(field: Field) -> tuple[str, ...]:
    if field.is_list:
        return tuple(item.text() for item in field.items(1, ARGUMENTS_MAX))
    # A line that ends in a backslash goes on in the next. No shell runs the words, so other line breaks would be lost.
    text = field.text().replace("\\\n", " ").strip()
    if not text or "\n" in text:
        raise field.error("expected one line of words, or a list such as [bash, -c, 'first; second'] for a script")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise field.error(f"expected words as a shell reads them, got one with {str(error).lower()}") from None
    if len(words) > ARGUMENTS_MAX:
        raise field.error(f"expected at most {ARGUMENTS_MAX} words, got {len(words)}")
    return tuple(words)


def _read_env(field: Field) -> tuple[tuple[str, str], ...]:
    pairs = field.pairs(VARIABLES_MAX)
    for name, _ in pairs:
        if "=" in name:
            raise field.error(f"expected names of variables without '=', got '{name}'")
    return pairs


def _read_image(field: Field) -> str:
    image = field.title()
    if image.startswith("-") or " " in image:
        raise field.expected("the name of an image, such as registry.example/team/image:tag")
    return image


def _read_secret(field: Field) -> str:
    return secret_name(field, field.title())


def secret_name(field: Field, name: str) -> str:
    """The name of a secret at a field, if it can be one."""
    if not _SECRET.fullmatch(name):
        raise field.error(f"expected a secret's name of letters, digits, '_', '.' and '-', got {brief(repr(name))}")
    return name


def _read_mount(field: Field) -> tuple[str, str]:
    if field.is_mapping:
        mount = field.mapping(MOUNT_KEYS)
        return mount.need("source", Field.title), mount.need("target", Field.title)
    source, _, target = field.title().partition(":")
    if not source or not target or ":" in target:
        raise field.expected("source:target, or a mapping with these two keys")
    return source, target
