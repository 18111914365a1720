"""The folder of secrets: one file for each value, readable by the server alone."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from phalanx.errors import PhalanxError
from phalanx.server.secrets.names import is_file_name

VALUE_BYTES_MAX = 64 << 10
"""How large a value may be. The kernel takes variables of up to twice that."""


class SecretError(PhalanxError):
    """A secret cannot be read or used. The text never has anything of the value."""


@dataclass(frozen=True, slots=True)
class SecretFolder:
    """The values of secrets. A file that is put there by hand counts like one that was set."""

    path: Path

    def names(self) -> list[str]:
        """The secrets that have a value."""
        try:
            found = [each.name for each in os.scandir(self.path) if is_file_name(each.name) and each.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(found)

    def has(self, name: str) -> bool:
        """Whether a secret has a value."""
        return (self.path / name).is_file()

    def value(self, name: str) -> str:
        """The value of a secret. Line breaks at its end, which editors leave, are no part of it."""
        try:
            value = (self.path / name).read_bytes().decode()
        except OSError as error:
            raise SecretError(f"secret '{name}': {error.strerror}; `phalanx secrets set {name}` sets it") from None
        except UnicodeDecodeError:
            # The error itself holds the value.
            raise SecretError(f"secret '{name}': expected text in UTF-8; set one, such as its base64") from None
        if "\0" in value:
            raise SecretError(f"secret '{name}': expected text without NUL, which no variable can hold")
        return value.rstrip("\n")

    def write(self, name: str, value: str) -> None:
        """Sets a value: the old one, or the new one whole, is on the disk whatever happens meanwhile."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        self.path.chmod(0o700)
        beside = self.path / f".{name}.part"
        try:
            beside.unlink(missing_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(value.encode())
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path / name)
        except OSError:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise
        self._sync()

    def remove(self, name: str) -> None:
        """Removes a value, if there is one."""
        if self.path.is_dir():
            (self.path / name).unlink(missing_ok=True)
            self._sync()

    def _sync(self) -> None:
        """Has the names of the files on the disk, too."""
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
