"""Contexts: which server a client talks to, and by which token. Environment first, then the config file."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import Any, NamedTuple

from phalanx.cli.http import url_of
from phalanx.errors import PhalanxError
from phalanx.folders import default_data

DEFAULT_ADDR = "http://127.0.0.1:8470"
PRIVATE = 0o600
LISTENS = "0A"
"""The state of a listening socket in the kernel's tables."""


class ConfigError(PhalanxError):
    """A config file or token that cannot be used."""


class Context(NamedTuple):
    """One server and how to be let in. `ca_file` holds certificates to trust beside the system's."""

    addr: str = DEFAULT_ADDR
    token: str = ""
    ca_file: str = ""


class Config:
    """All contexts of the config file, and which of them is in use."""

    def __init__(self, current: str = "", contexts: Mapping[str, Context] | None = None) -> None:
        self.current = current
        self.contexts = dict(contexts or {})


def config_path() -> str:
    """Where the config file is: PHALANX_CONFIG, or `phalanx/config.yaml` in the folder for configuration."""
    given = os.environ.get("PHALANX_CONFIG")
    if given:
        return given
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(folder, "phalanx", "config.yaml")


def load_config() -> Config:
    """The config file; an empty one if there is none. One that others may read is refused: it holds tokens."""
    path = config_path()
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return Config()
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{path}: others may read the tokens in it; run `chmod 600 {path}`")
    return _config_of(_tree_of(path), path)


def _tree_of(path: str) -> dict[str, Any]:
    """What the file says. It is written as JSON, which is YAML that loads fast; what people write is any YAML."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: {error}; mend it, or remove it and log in again") from None
    try:
        tree = json.loads(text)
    except ValueError:
        tree = _yaml_of(text, path)
    if tree is not None and not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected keys `current` and `contexts`; mend it, or remove it and log in again")
    return tree or {}


def _yaml_of(text: str, path: str) -> object:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {error}; mend it, or remove it and log in again") from None


def _config_of(tree: dict[str, Any], path: str) -> Config:
    try:
        contexts = {str(name): Context(**entry) for name, entry in (tree.get("contexts") or {}).items()}
    except (TypeError, AttributeError):
        known = ", ".join(Context._fields)
        raise ConfigError(f"{path}: a context has other keys than {known}; mend it, or log in again") from None
    return Config(str(tree.get("current") or ""), contexts)


def save_config(config: Config) -> None:
    """Replaces the config file; at no moment can other users read it."""
    path = config_path()
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    draft = f"{path}.new"
    if os.path.lexists(draft):
        os.unlink(draft)
    contexts = {name: context._asdict() for name, context in config.contexts.items()}
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "w") as file:
        file.write(json.dumps({"current": config.current, "contexts": contexts}, indent=2, ensure_ascii=False) + "\n")
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
    token = os.environ.get("PHALANX_TOKEN", "").strip()
    path = os.environ.get("PHALANX_TOKEN_FILE")
    if token or not path:
        return _one_word(token, "PHALANX_TOKEN")
    try:
        return _one_word(_line_of(path), f"PHALANX_TOKEN_FILE={path}")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(f"PHALANX_TOKEN_FILE={path}: {reason}") from None


def _one_word(token: str, source: str) -> str:
    """A token as it can be sent."""
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError(f"{source}: expected one token such as phx_…, as `phalanx tokens add` prints it")
    return token


def _server_left_here(addr: str) -> tuple[str, str]:
    """Where this user's server is and the token it left; no token if another user listens there meanwhile."""
    token_file, said = (os.path.join(default_data(), name) for name in ("admin.token", "url"))
    try:
        token = _line_of(token_file)
        addr = _line_of(said) if os.path.exists(said) else addr
        owner = os.stat(token_file).st_uid
    except OSError:
        return addr, ""
    return addr, "" if _listener_of(addr) not in (None, owner) else token


def _line_of(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def _listener_of(addr: str) -> int | None:
    """The Unix user that listens at a port of this machine; None if none does, or the kernel does not tell."""
    url = url_of(addr)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = _line_of(table).splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, _, _, _, uid, *_ = line.split()
            if state == LISTENS and url and int(local.rpartition(":")[2], 16) == url.address.port:
                return int(uid)
    return None
