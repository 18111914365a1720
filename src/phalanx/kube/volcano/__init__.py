"""Volcano's Jobs, for clusters in which its controller does not run."""
