"""The default policy on random histories: nobody loses unsaved work to one of its own priority."""

from __future__ import annotations

import pytest
from hypothesis import settings
from test_engine_properties import QuotaEngine, RankingEngine

from phalanx.workload.job import Job

POLICY = "phalanx:first=1,factor=2,patience=1"


class PhalanxEngine(RankingEngine):
    policy = POLICY

    def may_stop(self, head: Job, victim: Job) -> bool:
        """No job of these histories tells of what it saved."""
        return victim.checkpoint.saves or head.priority > victim.priority


class QuotaPhalanxEngine(QuotaEngine):
    policy = POLICY

    def may_stop(self, head: Job, victim: Job) -> bool:
        return head.queue != victim.queue or victim.checkpoint.saves or head.priority > victim.priority


TestPhalanx = PhalanxEngine.TestCase
TestQuotaPhalanx = QuotaPhalanxEngine.TestCase
TestPhalanx.settings = settings(max_examples=20, stateful_step_count=40)
TestQuotaPhalanx.settings = settings(max_examples=10, stateful_step_count=40)
pytest.mark.long(TestPhalanx)
