"""Sizing: how many replicas, and so GPUs, a service needs for a load and a latency."""
