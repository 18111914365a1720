"""What a training state is made of."""
