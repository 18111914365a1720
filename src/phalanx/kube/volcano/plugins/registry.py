"""The plugins by name."""

from __future__ import annotations

from phalanx.kube.volcano.plugins.env import Env
from phalanx.kube.volcano.plugins.plugin import Plugin
from phalanx.kube.volcano.plugins.ssh import Ssh
from phalanx.kube.volcano.plugins.svc import Svc

PLUGINS: dict[str, Plugin] = {"env": Env(), "ssh": Ssh(), "svc": Svc()}
