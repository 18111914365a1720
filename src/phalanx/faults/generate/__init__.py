"""Failures of a run, made by chance: which node fails when, why, and how long until that is noticed and repaired."""
