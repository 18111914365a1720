"""The view: what of the State everybody may look up without asking the loop, as rows of the store."""
