"""How an API server is found and what is shown to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from phalanx.kube.api.access import find_access, from_kubeconfig, in_cluster
from phalanx.kube.api.errors import ConfigError


def written(path: Path, user: dict[str, Any] | None = None, server: str = "http://kube:8080") -> Path:
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_bytes(msgspec.yaml.encode(config))
    return path


def test_a_kubeconfig_says_where_the_server_is_and_which_token_it_wants(tmp_path: Path) -> None:
    access = from_kubeconfig(written(tmp_path / "config", {"token": "secret"}), None)
    assert (access.host, access.port, access.token(), str(access)) == ("kube", 8080, "secret", "http://kube:8080")


def test_a_token_in_a_file_is_read_anew_for_every_request(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    access = from_kubeconfig(written(tmp_path / "config", {"tokenFile": "token"}), None)
    assert access.token() == "first"
    (tmp_path / "token").write_text("second\n")
    assert access.token() == "second"


def test_the_variable_goes_before_the_file_of_the_user(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    written(tmp_path / ".kube" / "config", server="http://home")
    written(tmp_path / "other", server="http://other")
    env = {"HOME": str(tmp_path)}
    assert find_access(None, None, env).host == "home"
    assert find_access(None, None, {**env, "KUBECONFIG": str(tmp_path / "other")}).host == "other"


@pytest.mark.parametrize(
    ("user", "server", "context", "said"),
    [
        ({}, "http://kube", "other", "contexts has no 'other'"),
        ({}, "kube:443", None, "server: expected https://HOST:PORT, got 'kube:443'"),
        ({"exec": {"command": "aws"}}, "https://kube", None, "logs in by a plugin"),
        ({"client-certificate-data": "e", "client-key-data": "e"}, "https://kube", None, "certificates cannot be used"),
    ],
)
def test_a_kubeconfig_that_is_of_no_use_is_named_with_what_is_wrong(
    tmp_path: Path, user: dict[str, Any], server: str, context: str | None, said: str
) -> None:
    path = written(tmp_path / "config", user, server)
    with pytest.raises(ConfigError, match=said) as refused:
        from_kubeconfig(path, context)
    assert str(refused.value).startswith(f"{path}: ")


def test_where_there_is_no_kubeconfig_the_error_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="config is not there: name a kubeconfig with --kubeconfig or KUBECONFIG"):
        find_access(None, None, {"HOME": str(tmp_path)})
    (tmp_path / "text").write_text("just text")
    with pytest.raises(ConfigError, match="expected a kubeconfig, got str"):
        from_kubeconfig(tmp_path / "text", None)


def test_a_pod_without_an_account_is_told_to_have_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the pod needs a service account"):
        in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
