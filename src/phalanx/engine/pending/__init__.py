"""The pending jobs: which of them is the next candidate of a decision."""
