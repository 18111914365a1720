"""What the operator says of the cluster: a file that the variable PHALANX_KUBERNETES names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import yaml

from phalanx.errors import PhalanxError

VARIABLE = "PHALANX_KUBERNETES"
UserId = Annotated[int, msgspec.Meta(ge=1, le=(1 << 32) - 2)]


class SettingsError(PhalanxError):
    """The file says what cannot be."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where pods run, and what they may have. A job chooses none of this.

    `image` is that of jobs that name none. `host_paths` are folders of the nodes that jobs may mount; `checkpoints` is
    a claim that all attempts share. `user` is the Unix user of jobs whose account has none, by number. A node that is
    not ready for `lost_after_s` has failed. The jobs of one user have at most `pods_of_user_max` pods at a time.
    """

    namespace: str = "phalanx"
    context: str | None = None
    image: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = "default"
    runtime_class: str = ""
    priority_class: str = ""
    host_paths: tuple[str, ...] = ()
    checkpoints: str = ""
    host_network: bool = False
    user: UserId | None = None
    group: UserId | None = None
    lost_after_s: float = 300.0
    pods_of_user_max: Annotated[int, msgspec.Meta(ge=1)] = 10_000

    def __post_init__(self) -> None:
        for path in self.host_paths:
            if not path.startswith("/") or os.path.normpath(path) != path or path == "/":
                raise ValueError(f"host_paths: '{path}': expected a plain absolute path below '/'")
        if not self.namespace:
            raise ValueError("namespace: expected a name")


def read_settings(env: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this server; the defaults without a file."""
    path = env.get(VARIABLE, "")
    if not path:
        return Settings()
    try:
        return msgspec.convert(yaml.safe_load(Path(path).read_text()) or {}, Settings)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{VARIABLE}={path}: {error}") from error
    except msgspec.ValidationError as error:
        known = ", ".join(field.name for field in msgspec.structs.fields(Settings))
        raise SettingsError(f"{path}: {error}; the keys are {known}") from error
