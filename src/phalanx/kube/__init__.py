"""Kubernetes: phalanx as the scheduler of a cluster of it."""
