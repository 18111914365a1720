"""Rates from a log of failures: by maximum likelihood, with what was still well when the log ended."""
