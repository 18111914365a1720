"""The pending jobs: the order in which they claim capacity, and the candidates of a decision."""
