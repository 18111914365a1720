"""Access to an API server: its address and credentials, of a kubeconfig or of the pod that this runs in."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from phalanx.kube.api.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def no_token() -> str:
    """For clients that show a certificate instead."""
    return ""


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is and how to talk to it. `token` is asked for every request: mounted ones are renewed."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    token: Callable[[], str] = no_token

    def __str__(self) -> str:
        return f"{'https' if self.tls is not None else 'http'}://{self.host}:{self.port}"


def find_access(kubeconfig: str | None, context: str | None, env: Mapping[str, str]) -> Access:
    """The access that is named, else that of KUBECONFIG, of the pod that this runs in, or of ~/.kube/config."""
    if kubeconfig is not None:
        return from_kubeconfig(Path(kubeconfig), context)
    if env.get("KUBECONFIG"):
        return from_kubeconfig(Path(env["KUBECONFIG"].split(os.pathsep)[0]), context)
    if env.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(SERVICE_ACCOUNT, env)
    return from_kubeconfig(Path(env.get("HOME", "/")) / ".kube" / "config", context)


def in_cluster(folder: Path, env: Mapping[str, str]) -> Access:
    """The access of the service account that a pod has."""
    token_file = folder / "token"
    if not token_file.exists():
        raise ConfigError(f"{token_file} is not there: the pod needs a service account with a mounted token")

    def token() -> str:
        return token_file.read_text().strip()

    context = _trusting(str(folder / "ca.crt"), None)
    return Access(env["KUBERNETES_SERVICE_HOST"], int(env.get("KUBERNETES_SERVICE_PORT", "443")), context, token)


def from_kubeconfig(path: Path, context: str | None) -> Access:
    """The access that a kubeconfig gives: by a token, a file with a token, or a client certificate."""
    try:
        config = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path} is not there: name a kubeconfig with --kubeconfig or KUBECONFIG") from None
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a kubeconfig: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: expected a kubeconfig, got {type(config).__name__}")
    name = context or config.get("current-context")
    chosen = _named(path, config, "contexts", name, "context")
    cluster = _named(path, config, "clusters", chosen.get("cluster"), "cluster")
    user = _named(path, config, "users", chosen.get("user"), "user")
    return _access(path, cluster, user)


def _named(path: Path, config: dict[str, Any], part: str, name: object, key: str) -> dict[str, Any]:
    for each in config.get(part) or ():
        if isinstance(each, dict) and each.get("name") == name:
            return each.get(key) or {}
    raise ConfigError(f"{path}: {part} has no {name!r}")


def _access(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Access:
    address = urlsplit(str(cluster.get("server", "")))
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ConfigError(f"{path}: server: expected https://HOST:PORT, got {cluster.get('server')!r}")
    if "exec" in user or "auth-provider" in user:
        raise ConfigError(f"{path}: the user logs in by a plugin; phalanx takes a token or a client certificate")
    tls = None
    if address.scheme == "https":
        tls = _context(path, cluster, user)
    return Access(address.hostname, address.port or (443 if tls is not None else 80), tls, _token(path, user))


def _token(path: Path, user: dict[str, Any]) -> Callable[[], str]:
    if user.get("token"):
        return lambda: str(user["token"])
    if user.get("tokenFile"):
        file = path.parent / str(user["tokenFile"])
        return lambda: file.read_text().strip()
    return no_token


def _context(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    try:
        data = _bytes(cluster, "certificate-authority-data")
        file = cluster.get("certificate-authority")
        context = _trusting(str(path.parent / file) if file else None, data.decode() if data is not None else None)
        if cluster.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        _show_certificate(path, context, user)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: the certificates cannot be used: {error}") from error
    return context


def _trusting(file: str | None, data: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=file, cadata=data)
    # Certificates that an API server makes for itself lack fields that Python 3.13 asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _show_certificate(path: Path, context: ssl.SSLContext, user: dict[str, Any]) -> None:
    certificate, key = _bytes(user, "client-certificate-data"), _bytes(user, "client-key-data")
    if certificate is not None and key is not None:
        # OpenSSL reads a chain from files only. The folder is this user's alone.
        with tempfile.TemporaryDirectory(prefix="phalanx-kube-") as folder:
            chain, secret = Path(folder) / "certificate", Path(folder) / "key"
            chain.write_bytes(certificate)
            secret.write_bytes(key)
            context.load_cert_chain(chain, secret)
    elif user.get("client-certificate") and user.get("client-key"):
        context.load_cert_chain(path.parent / user["client-certificate"], path.parent / user["client-key"])


def _bytes(section: dict[str, Any], name: str) -> bytes | None:
    return base64.b64decode(section[name]) if section.get(name) else None
