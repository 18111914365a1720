"""Images made of this machine's own files, for tests of containers where no registry is reached."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

PROGRAMS = ("/bin/sh", "/bin/cat", "/bin/sleep", "/bin/ls", "/usr/bin/env", "/usr/bin/id", "/usr/bin/touch")


def image_of_this_machine(folder: Path) -> str:
    """An image with a shell from this machine's own files, loaded into podman."""
    root = folder / "root"
    for program in PROGRAMS:
        copy_with_libraries(Path(shutil.which(Path(program).name) or program), root, Path(program))
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    archive = folder / "root.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(root, arcname=".")
    subprocess.run(["podman", "import", str(archive), "phalanx-test"], check=True, capture_output=True, timeout=120)
    return "localhost/phalanx-test"


def copy_with_libraries(source: Path, root: Path, target: Path) -> None:
    listed = subprocess.run(["ldd", str(source.resolve())], check=True, capture_output=True, text=True).stdout
    for word in listed.split():
        if word.startswith("/"):
            place = root / word[1:]
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, place)
    place = root / str(target)[1:]
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source.resolve(), place)


def engine_settings(folder: Path) -> Path:
    """What an administrator sets where limits may not be raised and control groups are of both versions."""
    path = folder / "containers.conf"
    path.write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        f'[engine]\nruntime = "{"runc" if shutil.which("runc") else "crun"}"\ncgroup_manager = "cgroupfs"\n'
    )
    return path
