"""Copies of snapshots on other machines, and what ranks agree on."""
