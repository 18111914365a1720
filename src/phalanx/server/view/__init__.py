"""The view: what of the State may be looked up without asking the loop, as rows of the store."""
