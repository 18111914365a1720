"""The rows of the catalogue, by vendor and cloud."""
