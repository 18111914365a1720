"""Who goes next and who makes room, one file a policy."""
