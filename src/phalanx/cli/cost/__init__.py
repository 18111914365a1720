"""`phalanx cost`: spot nodes with a deadline, and whether to own GPUs or to rent them."""
