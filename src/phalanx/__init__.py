"""phalanx."""
