"""Secrets of jobs: their names, their values, and the grants that let jobs use them."""
