"""What a job file says about the processes themselves, which the scheduler hands on as it is."""

from __future__ import annotations

import shlex

from phalanx.document import Field, Fields
from phalanx.workload.formats.limits import ARGUMENTS_MAX, MOUNTS_MAX, SECRETS_MAX, VARIABLES_MAX
from phalanx.workload.job import Execution

EXECUTION_KEYS = ("command", "image", "env", "workdir", "mounts", "secrets")
MOUNT_KEYS = ("source", "target")


def read_execution(job: Fields) -> Execution:
    """The command of a job and what surrounds it."""
    return Execution(
        command=job.get("command", _read_command, ()),
        image=job.get("image", Field.title, ""),
        env=job.get("env", _read_env, ()),
        workdir=job.get("workdir", Field.text, ""),
        mounts=job.get("mounts", lambda mounts: tuple(map(_read_mount, mounts.items(0, MOUNTS_MAX))), ()),
        secrets=job.get("secrets", lambda names: tuple(map(Field.title, names.items(0, SECRETS_MAX))), ()),
    )


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


def _read_mount(field: Field) -> tuple[str, str]:
    if field.is_mapping:
        mount = field.mapping(MOUNT_KEYS)
        return mount.need("source", Field.title), mount.need("target", Field.title)
    source, _, target = field.title().partition(":")
    if not source or not target or ":" in target:
        raise field.expected("source:target, or a mapping with these two keys")
    return source, target
