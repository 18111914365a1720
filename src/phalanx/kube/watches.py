"""The watches of a run: one for each kind of object that the API server has, begun and ended with the kind itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ForbiddenError, NotFoundError
from phalanx.kube.api.reflector import Broken, News, Reflector
from phalanx.kube.gangs.discovery import KINDS, Kinds


class Watches:
    """Reflectors by the kind they tell of. `paths` says where the objects of each are, `say` tells a person what
    begins and ends later.
    """

    def __init__(self, client: Client, tell: Callable[[News], None], say: Callable[[str], None]) -> None:
        self._client = client
        self._tell = tell
        self._say = say
        self._late: dict[str, None] = {}
        self._refused: dict[str, str] = {}
        self.reflectors: dict[str, Reflector[Any]] = {}
        self.paths: dict[str, str] = {}

    def begin(self, kinds: Kinds) -> None:
        """Begins to watch all that cannot be done without."""
        for kind in kinds:
            self._begin(kind, *kinds[kind])

    def renew(self, served: Kinds) -> list[str]:
        """Begins to watch what is served by now, and ends the watch of what is served no more: which this is."""
        ended = [kind for kind in self.paths if kind in KINDS and kind not in served]
        for kind in ended:
            self._end(kind)
            self._say(f"{kind}: no longer served by the API server, and no longer watched")
        moved = [kind for kind in self.paths if kind in served and served[kind][0] != self.paths[kind]]
        for kind in moved:
            self._end(kind)
        for kind in [kind for kind in served if kind not in self.paths]:
            self._late[kind] = None
            self._begin(kind, *served[kind])
            if kind not in self._refused:
                self._say(f"{kind}: served by the API server from now on, and watched at {self.paths[kind]}")
        return ended

    def may_miss(self, broken: Broken) -> bool:
        """Whether what is refused may be done without, as what came later: it is tried again then."""
        if broken.kind not in self._late or not isinstance(broken.error, ForbiddenError | NotFoundError):
            return False
        if broken.kind in self.paths:
            self._end(broken.kind)
        if isinstance(broken.error, ForbiddenError) and self._refused.get(broken.kind) != str(broken.error):
            self._refused[broken.kind] = str(broken.error)
            self._say(f"{broken.kind}: served by the API server, and cannot be watched: {broken.error}")
        return True

    def close(self) -> None:
        """Ends them all."""
        for reflector in self.reflectors.values():
            reflector.close()

    def _begin(self, kind: str, path: str, as_type: type[Any]) -> None:
        self.paths[kind] = path
        self.reflectors[kind] = Reflector(self._client, kind, path, as_type, self._tell)
        self.reflectors[kind].start()

    def _end(self, kind: str) -> None:
        del self.paths[kind]
        self.reflectors.pop(kind).close()
