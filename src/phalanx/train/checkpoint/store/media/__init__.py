"""Where checkpoints lie."""
