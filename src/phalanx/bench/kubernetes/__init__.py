"""The scheduler of a Kubernetes cluster, measured on a real API server, with kube-scheduler beside it."""
