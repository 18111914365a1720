"""Job files that work as they are, to be changed by hand."""
