"""`phalanx kube` before it has a server, and the manifest that puts it into a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from phalanx.cli.main import cli, run

MANIFEST = Path(__file__).parents[2] / "examples" / "kubernetes" / "phalanx.yaml"


@pytest.fixture
def nowhere(tmp_path: Path) -> str:
    """A kubeconfig of a server that does not answer."""
    config = tmp_path / "config"
    config.write_text(
        "current-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: c}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: c, user: {}}]\n"
    )
    return str(config)


def test_without_a_kubeconfig_the_verb_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert run(cli, ["kube"]) == 1
    said = capsys.readouterr().err
    assert said == f"phalanx: {tmp_path}/.kube/config is not there: name a kubeconfig with --kubeconfig or KUBECONFIG\n"


def test_an_unknown_policy_is_refused_before_anything_is_asked_of_the_server(
    nowhere: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["kube", "--kubeconfig", nowhere, "--policy", "none-such"]) == 1
    assert "none-such" in capsys.readouterr().err


def test_a_server_that_does_not_answer_ends_the_verb_with_its_address(
    nowhere: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["kube", "--kubeconfig", nowhere]) == 1
    assert "the API server at http://127.0.0.1:1 does not answer" in capsys.readouterr().err


def test_the_manifest_is_what_is_printed_and_runs_the_verb_with_a_lease(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["kube", "install", "--print", "--image", "phalanx:latest"]) == 0
    said, example = capsys.readouterr().out, MANIFEST.read_text()
    assert list(yaml.safe_load_all(said)) == list(yaml.safe_load_all(example))
    by_kind = {each["kind"]: each for each in yaml.safe_load_all(said)}
    spec = by_kind["Deployment"]["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == by_kind["ServiceAccount"]["metadata"]["name"]
    assert spec["containers"][0]["command"][:4] == ["phalanx", "kube", "--lease", "phalanx/phalanx"]
    create, renew = by_kind["Role"]["rules"]
    assert "resourceNames" not in create
    assert renew["resourceNames"] == ["phalanx"]


def test_install_applies_nothing_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["kube", "install"]) == 2
    assert "kubectl apply -f -" in capsys.readouterr().err


def test_an_address_to_listen_at_is_checked(nowhere: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["kube", "--kubeconfig", nowhere, "--listen", "9464"]) == 2
    assert "expected ADDRESS:PORT, got '9464'" in capsys.readouterr().err
