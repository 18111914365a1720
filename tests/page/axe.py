"""What axe finds on a page that keeps users out."""

from __future__ import annotations

import json
from pathlib import Path

from phalanx.bench.page.tab import Page

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
RULES = "axe.run(document, {resultTypes: ['violations']})"
WORST = ("serious", "critical")


def violations(page: Page) -> list[str]:
    """What axe finds that is serious: the rule and the first element that breaks it."""
    if not page.run("typeof axe === 'object'"):
        page.run(f"{AXE}; 0")
    found = json.loads(page.run(f"{RULES}.then((found) => JSON.stringify(found.violations))"))
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found if each["impact"] in WORST]
