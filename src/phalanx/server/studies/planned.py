"""A study of capacity: how many nodes keep waits below a target, and the curve around that."""

from __future__ import annotations

from typing import Any

from phalanx.capacity.answer import never_notes, plan_data, sentences
from phalanx.capacity.planner import Planner
from phalanx.capacity.question import check_jobs, draws_of, numbers_of
from phalanx.capacity.runs import Runs
from phalanx.capacity.target import Target
from phalanx.server.studies.asked import CAPACITY, Asked
from phalanx.server.studies.sources import notes_of, specs_of
from phalanx.server.studies.telling import Telling
from phalanx.simulate.studies.study import Study


def planned(study: Study, asked: Asked, telling: Telling) -> dict[str, Any]:
    """Looks for the least number of nodes under each policy."""
    targets = [Target.parse(text) for text in asked.targets]
    figures = tuple(dict.fromkeys(target.figure for target in targets))
    between = numbers_of(asked.nodes or None)
    seeds, notes = draws_of(study, asked.seeds)
    check_jobs(study, figures)
    plans: list[dict[str, Any]] = []
    for policy, spec in specs_of(asked.policies, study).items():

        def tell(done: int, text: str, policy: str = policy) -> None:
            telling(done, 0, f"{policy}: {text}")

        runs = Runs(study, policy, spec, figures, workers=1, price_usd_h=asked.price_usd_h, tell=tell)
        plan = Planner(runs, targets, seeds, (between[0], between[-1]) if between else None).plan()
        notes += never_notes(policy, runs.never)
        plans.append({**plan_data(plan, figures), "sentences": sentences(plan, seeds)})
    return {
        "kind": CAPACITY,
        "trace": asked.trace,
        "cluster": {"name": study.cluster.name, "nodes": len(study.cluster.nodes), "gpus": study.cluster.gpus},
        "seeds": seeds,
        "plans": plans,
        "notes": [*notes_of(study, asked), *notes],
    }
