"""What a request must pass before it is served: bounds, tokens, sizes, and whom it may act for."""
