"""Figures of the cluster, its queues, nodes and jobs: how they are and how they were, kept by the server itself."""
