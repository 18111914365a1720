"""The files of the page, without a browser."""

from __future__ import annotations

import re
import subprocess
import sys
from os.path import normpath
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from phalanx.server.api.web_files import static_files

ROOT = Path(__file__).parents[2]
KB_MAX = 250
PICTURE_BYTES_MAX = 100_000
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|dangerously|document\.write|eval\(")


def test_the_page_weighs_less_than_a_photograph() -> None:
    assert sum(len(file.compressed) for file in static_files().values()) < KB_MAX * 1000


def test_what_others_wrote_is_as_it_was_fetched() -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "vendor-web", "--check"], check=True)


def test_modules_import_only_what_is_there() -> None:
    files = static_files()
    for path, file in files.items():
        for name in re.findall(r'(?:from|import)\s*\(?"(\.[^"]+)"', file.content.decode()):
            found = normpath(Path(path).parent / name)
            assert found in files, f"{path} imports {name}"


def imported(path: str, found: set[str]) -> set[str]:
    """What a module needs before it runs."""
    for name in re.findall(r'(?:from|import)\s*"(\.[^"]+)"', static_files()[path].content.decode()):
        module = normpath(Path(path).parent / name)
        if module not in found:
            found.add(module)
            imported(module, found)
    return found


def test_the_document_names_all_modules_of_the_shell_so_that_none_is_found_late() -> None:
    page = static_files()["index.html"].content.decode()
    preloaded = re.findall(r'<link rel="modulepreload" href="/ui/static/([^"]+)">', page)
    assert preloaded == sorted(imported("main.js", set()))


def test_no_module_sets_markup() -> None:
    for path, file in static_files().items():
        if not path.startswith("vendor/"):
            assert not MARKUP.search(file.content.decode()), path


def test_every_view_has_a_page_of_the_guide_with_a_picture() -> None:
    guide = ROOT / "docs" / "guides"
    shell = static_files()["shell/views.js"].content.decode()
    views = re.search(r"NAVIGATION = (\[.*\])", shell)
    assert views is not None
    for view in [*re.findall(r'"(\w+)"', views.group(1)), "job"]:
        page = (guide / "page" / f"{view}.md").read_text("utf-8")
        pictures = re.findall(r"!\[[^\]]+\]\(([^)]+\.webp)\)", page)
        assert pictures, view
        assert all((guide / "page" / picture).stat().st_size < PICTURE_BYTES_MAX for picture in pictures)
        assert f"(page/{view}.md)" in (guide / "page.md").read_text("utf-8")
