"""Nodes, jobs and the loss of elastic trainings at a glance, in the terminal or as a page.

python monitoring_dashboard.py [--once] [--html FILE]
"""

from __future__ import annotations

import argparse
import html
import json
import os
import subprocess
import sys
import time
from typing import Any

from elastic_training import Stretch, stretches

EVERY_S = 2.0
LIVE = ("waiting", "claimed", "starting", "running", "resizing", "stopping")


def told(*verb: str) -> Any:
    """What a verb of phalanx says, as data."""
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", *verb, "-o", "json"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr.strip())
    found = json.loads(done.stdout)
    return found.get("items", found) if isinstance(found, dict) else found


def losses(jobs: list[dict[str, Any]]) -> dict[str, list[Stretch]]:
    """How far each job is that prints steps."""
    found = {}
    for job in jobs:
        log = subprocess.run(
            [sys.executable, "-m", "phalanx", "logs", str(job["id"]), "--rank", "0", "--stream", "out"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        if steps := stretches(log):
            found[str(job["id"])] = steps
    return found


def lines(nodes: list[dict[str, Any]], jobs: list[dict[str, Any]], steps: dict[str, list[Stretch]]) -> list[str]:
    """The dashboard as text."""
    shown = [f"{'NODE':<16}{'HEALTH':<10}GPUS"]
    for node in nodes:
        gpus, used = node["gpus"], node["gpus_used"]
        shown.append(f"{node['name']:<16}{node['health']:<10}{'#' * used}{'.' * (gpus - used)}")
    shown += ["", f"{'JOB':<6}{'NAME':<20}{'STATE':<11}{'RANKS':<7}{'STEP':<7}LOSS"]
    for job in jobs:
        last = steps.get(str(job["id"]), [None])[-1]
        far = f"{last.ranks:<7}{last.last:<7}{last.loss:.5f}" if last else ""
        shown.append(f"{job['id']:<6}{job['name'][:19]:<20}{job['state']:<11}{far}".rstrip())
    return shown


def page(text: list[str]) -> str:
    """The dashboard as a page that reloads itself."""
    body = html.escape("\n".join(text))
    return f'<!doctype html><title>Lab 4</title><meta http-equiv="refresh" content="{EVERY_S:g}"><pre>{body}</pre>\n'


def look() -> list[str]:
    """What there is now."""
    jobs = [job for job in told("jobs") if job["state"] in LIVE]
    return lines(told("nodes"), jobs, losses(jobs))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--once", action="store_true", help="look once")
    parser.add_argument("--html", default="", metavar="FILE", help="write a page in place of printing")
    given = parser.parse_args()
    while True:
        text = look()
        if given.html:
            with open(f"{given.html}.new", "w") as file:
                file.write(page(text))
            os.replace(f"{given.html}.new", given.html)
        else:
            print("\n".join(text if given.once else ["\033[2J\033[H", *text]), flush=True)
        if given.once:
            break
        time.sleep(EVERY_S)
