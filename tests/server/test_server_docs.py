"""The documents of the server say what the server does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from running import Server

from phalanx.server.accounts.roles import Role
from phalanx.server.alerts.rules import FILE_KEYS, RULE_KEYS
from phalanx.server.api import bodies
from phalanx.server.api.examples import EXAMPLES
from phalanx.server.api.models import accounts, base, cluster, found, jobs, planning, studies
from phalanx.server.api.overview import models as overview
from phalanx.server.api.overview import operator_models
from phalanx.server.api.reference import document, page

DOCS = Path(__file__).parents[2] / "docs"
METRIC = re.compile(r"\bphalanx_[a-z_]+\b")


def test_the_reference_of_the_api_is_the_one_the_server_describes() -> None:
    """To write it anew: python -m phalanx.server.api.reference > docs/reference/rest.md"""
    assert (DOCS / "reference" / "rest.md").read_text() == page(document())


def test_every_route_has_a_description_and_every_body_an_example_or_few_keys() -> None:
    described = document()
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], f"{method} {path}"
            assert "200" in operation["responses"] or "201" in operation["responses"] or "204" in operation["responses"]


def test_every_metric_is_documented_and_every_documented_metric_is_there(rehearsal: Server) -> None:
    text = rehearsal.client.get(rehearsal.url + "/metrics").text
    served = {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE phalanx_")}
    table = (DOCS / "reference" / "metrics-server.md").read_text()
    documented = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `phalanx_")}
    assert served <= documented
    assert documented - served <= {"phalanx_http_refused_total"}, "what has not happened is not told"


def test_the_dashboard_asks_only_for_metrics_there_are() -> None:
    dashboard = json.loads((DOCS / "guides" / "grafana-dashboard.json").read_text())
    table = (DOCS / "reference" / "metrics-server.md").read_text()
    documented = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `phalanx_")}
    asked = {
        name.removesuffix("_bucket")
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in METRIC.findall(target["expr"])
    }
    assert asked <= documented
    assert len(asked) > 12


def test_the_guide_tells_of_every_role() -> None:
    guide = (DOCS / "guides" / "server.md").read_text()
    for role in Role:
        assert f"| {role.value} |" in guide


def test_the_reference_of_alerts_has_every_key() -> None:
    text = (DOCS / "reference" / "alerts.md").read_text()
    for key in {*FILE_KEYS, *RULE_KEYS} - {"version"}:
        assert f"| `{key}` |" in text


MODULES = (base, jobs, cluster, planning, studies, accounts, found, overview, operator_models, bodies)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_example_is_one_of_what_it_stands_for(name: str) -> None:
    model = next(model for module in MODULES if (model := getattr(module, name, None)))
    model.model_validate(EXAMPLES[name])


def test_everything_that_goes_over_the_api_has_an_example() -> None:
    described = document()

    def shown(content: dict[str, Any]) -> bool:
        schemas = [content["schema"], *content["schema"].get("anyOf", ())]
        named = [
            described["components"]["schemas"][each["$ref"].rpartition("/")[2]] for each in schemas if "$ref" in each
        ]
        return "example" in content or any("example" in each for each in (*schemas, *named))

    lacking = [
        f"{method} {path} {media}"
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
        for answer in (operation.get("requestBody", {}), *operation["responses"].values())
        for media, content in answer.get("content", {}).items()
        if media not in ("application/zip", "application/octet-stream") and not shown(content)
    ]
    assert lacking == []
