"""What the launcher takes to notice and name a failure, to go on after it and to change the world, beside torchrun."""
