"""The Kubernetes backend: phalanx decides, and the tasks of its jobs run as pods on the nodes of the plan."""
