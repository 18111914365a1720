"""HTTPS by flags."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner
from running import Server

from phalanx.cli.up import ListenError, address_of, up


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run([*command.split(), "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def test_a_server_with_a_certificate_speaks_https_and_says_so(certificate: tuple[Path, Path], folder: Path) -> None:
    cert, key = certificate
    server = Server(folder, "--backend", "rehearsal", "--tls-cert", str(cert), "--tls-key", str(key)).start()
    assert server.url.startswith("https://")
    with httpx2.Client(verify=ssl.create_default_context(cafile=str(cert))) as client:
        response = client.get(server.url + "/readyz")
        assert response.status_code == 200
        assert "max-age" in response.headers["Strict-Transport-Security"]
        token = (folder / "admin.token").read_text().strip()
        session = client.post(server.url + "/api/v1/session", json={"token": token})
        assert "secure" in session.headers["Set-Cookie"].lower()
    server.stop()


def test_a_certificate_needs_its_key() -> None:
    result = CliRunner().invoke(up, ["--tls-cert", "x"])
    assert result.exit_code == 2
    assert "go together" in result.output


def test_addresses_are_hosts_and_ports() -> None:
    assert address_of("0.0.0.0:80") == ("0.0.0.0", 80)
    assert address_of("8470") == ("127.0.0.1", 8470)
    assert address_of("[::1]:1") == ("::1", 1)
    for wrong in ("x:y", "host:99999", ":80", "host:"):
        with pytest.raises(ListenError):
            address_of(wrong)
