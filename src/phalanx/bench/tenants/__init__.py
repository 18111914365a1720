"""Benchmarks of many queues on one cluster."""
