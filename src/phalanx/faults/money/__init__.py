"""Money: whether to own GPUs or to rent them."""
