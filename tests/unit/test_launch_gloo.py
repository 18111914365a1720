"""Where gloo is told to listen: where the machine's own name leads to no address that other hosts reach."""

from __future__ import annotations

import logging
import socket

import pytest

from phalanx.train.launch import gloo
from phalanx.train.launch.epoch import Agent, Epoch

OF_ONE_HOST = Epoch(1, (Agent("a", "10.0.0.1", 1, slots=2), Agent("b", "10.0.0.1", 2, slots=2)))
OF_TWO_HOSTS = Epoch(1, (Agent("a", "127.0.0.1", 1, slots=2), Agent("b", "10.0.0.2", 2, slots=2)))


@pytest.fixture(autouse=True)
def _own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(gloo.VARIABLE, raising=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    gloo._tell.cache_clear()


def test_a_world_of_several_hosts_has_the_interface_of_the_agents_own_address() -> None:
    assert gloo.variables(OF_TWO_HOSTS, "127.0.0.1") == {"GLOO_SOCKET_IFNAME": "lo"}


def test_a_world_of_one_host_and_what_the_user_has_set_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gloo.variables(OF_ONE_HOST, "10.0.0.1") == {}
    monkeypatch.setenv(gloo.VARIABLE, "ib0")
    assert gloo.variables(OF_TWO_HOSTS, "127.0.0.1") == {}


def test_a_name_that_other_hosts_reach_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo, "name_leads_nowhere", lambda: False)
    assert gloo.variables(OF_TWO_HOSTS, "127.0.0.1") == {}


def test_a_name_that_is_not_known_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert gloo.name_leads_nowhere()


def test_it_is_told_once_where_no_interface_has_the_address(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "phalanx.launch"):
        assert [gloo.variables(OF_TWO_HOSTS, "192.0.2.7") for _ in range(2)] == [{}, {}]
    assert [record.getMessage().count("no interface has 192.0.2.7") for record in caplog.records] == [1]
