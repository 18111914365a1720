"""When pending jobs will start, by running ahead."""
