"""Beside the scheduler that a cluster has: it is recorded without any effect, and compared with phalanx."""
