"""Failures as an input: what breaks and how often, when it does so in a run, and what it costs."""
