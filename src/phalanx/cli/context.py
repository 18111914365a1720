"""Contexts: which server a client talks to, and by which token. Environment first, then the config file."""

from __future__ import annotations

import os
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from phalanx.cli.output import as_yaml
from phalanx.errors import PhalanxError
from phalanx.folders import default_data

DEFAULT_ADDR = "http://127.0.0.1:8470"
PRIVATE = 0o600
LISTENS = "0A"
"""The state of a listening socket in the kernel's tables."""


class ConfigError(PhalanxError):
    """A config file or token that cannot be used."""


@dataclass(frozen=True, slots=True)
class Context:
    """One server and how to be let in. `ca_file` holds certificates to trust beside the system's."""

    addr: str = DEFAULT_ADDR
    token: str = ""
    ca_file: str = ""


@dataclass(slots=True)
class Config:
    """All contexts of the config file, and which of them is in use."""

    current: str = ""
    contexts: dict[str, Context] = field(default_factory=dict)


def config_path() -> Path:
    """Where the config file is: PHALANX_CONFIG, or `phalanx/config.yaml` in the folder for configuration."""
    given = os.environ.get("PHALANX_CONFIG")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "phalanx" / "config.yaml"


def load_config() -> Config:
    """The config file; an empty one if there is none. One that others may read is refused: it holds tokens."""
    path = config_path()
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return Config()
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{path}: others may read the tokens in it; run `chmod 600 {path}`")
    return _config_of(_tree_of(path), path)


def _tree_of(path: Path) -> dict[str, Any]:
    import yaml

    try:
        tree = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}; mend it, or remove it and log in again") from None
    if tree is not None and not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected keys `current` and `contexts`; mend it, or remove it and log in again")
    return tree or {}


def _config_of(tree: dict[str, Any], path: Path) -> Config:
    try:
        contexts = {str(name): Context(**entry) for name, entry in (tree.get("contexts") or {}).items()}
    except (TypeError, AttributeError):
        known = ", ".join(Context.__dataclass_fields__)
        raise ConfigError(f"{path}: a context has other keys than {known}; mend it, or log in again") from None
    return Config(str(tree.get("current") or ""), contexts)


def save_config(config: Config) -> None:
    """Replaces the config file; nobody else can read it at any moment."""
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    contexts = {name: asdict(context) for name, context in config.contexts.items()}
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "w") as file:
        file.write(as_yaml({"current": config.current, "contexts": contexts}))
    os.replace(draft, path)


def current_context() -> Context:
    """The context a verb talks through.

    PHALANX_ADDR, PHALANX_TOKEN and PHALANX_TOKEN_FILE come first, then the context named by PHALANX_CONTEXT or in use.
    With none of these, it is the server that `phalanx up` starts here by default, by the token it left for its user.
    """
    config = load_config()
    name = os.environ.get("PHALANX_CONTEXT") or config.current
    if name and name not in config.contexts:
        known = ", ".join(config.contexts) or "none yet"
        raise ConfigError(f"context '{name}': {config_path()} has no such context; it has {known}")
    chosen = config.contexts.get(name, Context())
    addr = os.environ.get("PHALANX_ADDR") or chosen.addr
    token = _token_given() or (chosen.token if addr == chosen.addr else "")
    if not token and addr == DEFAULT_ADDR:
        addr, token = _server_left_here(addr)
    return Context(addr.rstrip("/"), token, os.environ.get("PHALANX_CA_FILE") or chosen.ca_file)


def _token_given() -> str:
    token = os.environ.get("PHALANX_TOKEN")
    path = os.environ.get("PHALANX_TOKEN_FILE")
    if token or not path:
        return token or ""
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(f"PHALANX_TOKEN_FILE={path}: {reason}") from None


def _server_left_here(addr: str) -> tuple[str, str]:
    """Where this user's server is and the token it left; no token if another user listens there meanwhile."""
    folder = Path(default_data())
    try:
        token = (folder / "admin.token").read_text("utf-8").strip()
        said = folder / "url"
        addr = said.read_text("utf-8").strip() if said.exists() else addr
        owner = (folder / "admin.token").stat().st_uid
    except OSError:
        return addr, ""
    return addr, "" if _listener_of(addr) not in (None, owner) else token


def _listener_of(addr: str) -> int | None:
    """The Unix user that listens at a port of this machine; None if none does, or the kernel does not tell."""
    port = urlsplit(addr).port
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, _, _, _, uid, *_ = line.split()
            if state == LISTENS and int(local.rpartition(":")[2], 16) == port:
                return int(uid)
    return None
