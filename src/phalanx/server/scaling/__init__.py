"""Services that follow their load: what is measured of it, and the sizes that follow."""
