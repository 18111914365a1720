"""The API: workers that read the store, hand mutations to the loop, and never wait for a decision."""
