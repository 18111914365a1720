"""Names of secrets. A secret becomes a variable of its name, so names that steer a program or phalanx are reserved."""

from __future__ import annotations

import re

from phalanx.server.refusal import Refusal

NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"

FILE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}$"
"""What a job file may name: files put into the folder by hand may have names that no variable of a shell has."""

_OF_THE_SYSTEM = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "LANG",
    "TZ",
    "PWD",
    "OLDPWD",
    "SHLVL",
    "TERM",
    "_",
    "GCONV_PATH",
)
_OF_INTERPRETERS = (
    "IFS",
    "ENV",
    "PS4",
    "PROMPT_COMMAND",
    "CDPATH",
    "GLOBIGNORE",
    "SHELLOPTS",
    "BASHOPTS",
    "PERL5LIB",
    "PERL5OPT",
    "RUBYLIB",
    "RUBYOPT",
    "NODE_OPTIONS",
    "NODE_PATH",
    "JAVA_TOOL_OPTIONS",
)
_OF_THE_GANG = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_NAME",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
)
RESERVED = frozenset((*_OF_THE_SYSTEM, *_OF_INTERPRETERS, *_OF_THE_GANG))
RESERVED_BEGINNINGS = ("LD_", "LC_", "BASH_", "PYTHON", "PHALANX_", "PET_", "TORCHELASTIC_", "TORCH_ELASTIC_", "CUDA_")
"""The loader, the language, the shell, the interpreter, and what phalanx and torch tell every task."""

_name = re.compile(NAME)
_file_name = re.compile(FILE_NAME)


def is_reserved(name: str) -> bool:
    """Whether a variable of this name means something to the system, to torch or to phalanx."""
    return name in RESERVED or name.startswith(RESERVED_BEGINNINGS)


def is_file_name(name: str) -> bool:
    """Whether a file of this name in the folder of secrets can be one."""
    return _file_name.fullmatch(name) is not None


def need_new_name(name: str) -> None:
    """Refuses a name that no new secret may have."""
    if not _name.fullmatch(name):
        raise Refusal(
            "invalid",
            f"secret {name[:80]!r}: expected the name of a variable: letters, digits and '_', at most 64, "
            "no digit at the beginning",
        )
    need_free_name(name)


def need_free_name(name: str) -> None:
    """Refuses a name that is reserved."""
    if is_reserved(name):
        raise Refusal(
            "invalid", f"secret {name!r}: tasks have a variable of this name that means something: choose another name"
        )
