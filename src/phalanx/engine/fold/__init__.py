"""How records change the State: each is checked, then folded in. Snapshots are here, too."""
