"""Where a gang can go: fit, pack, mesh, sharing and cost."""
