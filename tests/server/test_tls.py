"""HTTPS by flags."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner
from running import Server, eventually

from phalanx.cli.client import Client, Unreachable
from phalanx.cli.context import Context
from phalanx.cli.up import ListenError, address_of, up
from phalanx.server.options import Options


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
    with pytest.raises(Unreachable, match=r"self.signed certificate; if it is yours, .* PHALANX_CA_FILE"):
        Client(Context(server.url, token)).get("/me")
    with pytest.raises(Unreachable, match="certificates in /no/such/file: No such file"):
        Client(Context(server.url, token, "/no/such/file")).get("/me")
    trusting = Client(Context(server.url, token, str(cert)))
    assert trusting.get("/me")["user"] == "admin"
    trusting.close()
    server.stop()


def test_a_job_reports_to_a_server_with_a_certificate_of_its_own(certificate: tuple[Path, Path], folder: Path) -> None:
    cert, key = certificate
    server = Server(
        folder, "--simulate", "--nodes", "1", "--gpus", "1", "--tls-cert", str(cert), "--tls-key", str(key)
    ).start()
    token = (folder / "admin.token").read_text().strip()
    admin = Client(Context(server.url, token, str(cert)))
    report = (
        'curl -sS --fail --cacert "$PHALANX_CA_FILE" -H "Authorization: Bearer $PHALANX_PROGRESS_TOKEN" '
        '-H "Content-Type: application/json" -d \'{"step": 7}\' "$PHALANX_PROGRESS_URL"'
    )
    job = admin.post("/jobs", {"command": ["sh", "-c", report], "gpus": 1})["id"]
    eventually(lambda: admin.get(f"/jobs/{job}")["state"] in ("succeeded", "failed"))
    assert admin.get(f"/jobs/{job}")["progress"]["step"] == 7
    running = admin.post("/jobs", {"command": ["sleep", "600"], "gpus": 1, "grace": "0s"})["id"]
    eventually(lambda: admin.get(f"/jobs/{running}")["state"] == "running")
    context = {"PHALANX_ADDR": server.url, "PHALANX_TOKEN": token, "PHALANX_CA_FILE": str(cert)}
    beside = [sys.executable, "-m", "phalanx", "exec", running, "--", "sh", "-c", "exit 4"]
    assert subprocess.run(beside, env={**os.environ, **context}, stdin=subprocess.DEVNULL).returncode == 4
    context["PHALANX_CA_FILE"] = ""
    refused = subprocess.run(beside, env={**os.environ, **context}, capture_output=True, text=True)
    assert "PHALANX_CA_FILE" in refused.stderr
    admin.post(f"/jobs/{running}:cancel")
    admin.close()
    server.stop()


def test_a_server_that_listens_everywhere_is_reached_here_or_where_it_says() -> None:
    assert Options(data="/d", host="0.0.0.0", port=1).url == "http://127.0.0.1:1"
    assert Options(data="/d", host="::", port=1, tls_cert="c").url == "https://[::1]:1"
    assert Options(data="/d", host="0.0.0.0", port=1, public_url="https://phalanx.lab").url == "https://phalanx.lab"
    refused = CliRunner().invoke(up, ["--url", "phalanx.lab"])
    assert "expected http://HOST:PORT or https://HOST" in str(refused.exception)


def test_who_waits_for_a_server_finds_in_a_file_how_to_reach_it(certificate: tuple[Path, Path], folder: Path) -> None:
    cert, key = certificate
    told = folder.parent / "ready.json"
    options = ("--tls-cert", str(cert), "--tls-key", str(key), "--ready-file", str(told))
    server = Server(folder, "--backend", "rehearsal", *options).start()
    ready = json.loads(told.read_text())
    assert (ready["url"], ready["ca_file"]) == (server.url, str(cert))
    reached = Client(Context(ready["url"], Path(ready["token_file"]).read_text().strip(), ready["ca_file"]))
    assert reached.get("/me")["user"] == "admin"
    reached.close()
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


def test_a_certificate_that_cannot_be_used_is_told_at_the_start(certificate: tuple[Path, Path], folder: Path) -> None:
    cert, key = certificate
    for options, wrong in (
        ((cert, "/nowhere.pem"), "--tls-key /nowhere.pem: there is no such file"),
        ((key, cert), "key that"),
    ):
        server = Server(
            folder,
            "--simulate",
            "--nodes",
            "1",
            "--gpus",
            "1",
            "--tls-cert",
            str(options[0]),
            "--tls-key",
            str(options[1]),
        )
        with pytest.raises(AssertionError, match=wrong):
            server.start()
