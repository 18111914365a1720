"""What carries decisions out: one protocol, one conformance suite, one folder a backend."""
