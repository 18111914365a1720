"""What the API answers with, as it is documented in OpenAPI."""
