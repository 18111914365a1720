"""The saver: asks pods to save their work, all at once, and waits for their answers within their times."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterable

from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.saving import Saving, saving_of


def save_all(pods: Iterable[Pod]) -> tuple[tuple[Pod, str], ...]:
    """Asks each pod that says how; gives back those that did not save, with why."""
    asked = [(pod, saving) for pod in pods if (saving := _saving(pod)) is not None]
    unsaved: list[tuple[Pod, str]] = []

    def ask(pod: Pod, saving: Saving) -> None:
        why = _ask(pod, saving)
        if why:
            unsaved.append((pod, why))

    threads = [threading.Thread(target=ask, args=each, name="save", daemon=True) for each in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(unsaved)


def _saving(pod: Pod) -> Saving | None:
    try:
        return saving_of(pod)
    except ValueError:
        # It was changed since the pod was bound.
        return None


def _ask(pod: Pod, saving: Saving) -> str:
    """Asks one pod; says why it did not save, if it did not."""
    until = time.monotonic() + saving.within_s
    connection = http.client.HTTPConnection(pod.status.pod_ip, saving.port, timeout=saving.within_s)
    try:
        connection.request("POST", saving.path, headers={"Content-Length": "0"})
        connection.sock.settimeout(max(until - time.monotonic(), 0.01))
        status = connection.getresponse().status
    except TimeoutError:
        return f"it did not save its work within {saving.within_s} s"
    except (OSError, http.client.HTTPException) as error:
        return f"it could not be asked to save its work: {error}"
    finally:
        connection.close()
    return "" if 200 <= status < 300 else f"it did not save its work: it answered with {status}"
