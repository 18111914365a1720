"""fetch_uv.py VERSION FILE: gets the uv program with nothing but the standard library.

For a Python that has neither pip nor venv, as a fresh Debian's. The package index is the one that uv.lock names.
"""

import hashlib
import html
import io
import os
import platform
import re
import sys
import zipfile
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import urlopen

LOCK = Path(__file__).resolve().parent.parent / "uv.lock"


def main(version, file):
    url, sha256 = find_wheel(version)
    content = get(url)
    if hashlib.sha256(content).hexdigest() != sha256:
        sys.exit(f"{url} is not what the index announced")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        Path(file).write_bytes(archive.read(f"uv-{version}.data/scripts/uv"))
    os.chmod(file, 0o755)


def find_wheel(version):
    index = re.search(r'registry = "([^"]+)"', LOCK.read_text(encoding="utf-8")).group(1)
    page = f"{index.rstrip('/')}/uv/"
    libc = "manylinux" if platform.libc_ver()[0] == "glibc" else "musllinux"
    wanted = re.compile(rf"uv-{re.escape(version)}-.*{libc}[0-9_]*_{platform.machine()}\b.*\.whl")
    links = re.findall(r'href="([^"#]+)#sha256=([0-9a-f]{64})"', get(page).decode("utf-8"))
    for link, sha256 in links:
        url = urljoin(page, html.unescape(link))
        if wanted.fullmatch(url.rpartition("/")[2]):
            return url, sha256
    return sys.exit(f"{page} has no uv {version} for {libc} on {platform.machine()}")


def get(url):
    try:
        with urlopen(url, timeout=120) as answer:
            return answer.read()
    except OSError as error:
        sys.exit(f"{url}: {error}")


main(*sys.argv[1:])
