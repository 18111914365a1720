"""The Ray backend: phalanx decides, Ray reserves, and an agent on each node of Ray runs the tasks."""
