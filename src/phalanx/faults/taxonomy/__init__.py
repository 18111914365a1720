"""What breaks in clusters, how often, and how a job recovers from it: data, with where each figure comes from."""
