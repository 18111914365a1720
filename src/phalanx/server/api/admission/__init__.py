"""What a request must pass before it is served: bounds, tokens, sizes, and the users it may act for."""
