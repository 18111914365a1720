"""Virtual time: a backend whose clock is a number."""
