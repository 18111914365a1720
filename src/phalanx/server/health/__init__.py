"""What operators say of nodes and GPUs."""
