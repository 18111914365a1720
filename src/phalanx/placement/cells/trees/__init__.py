"""The trees of cells: hardware, and what is owed of it."""
