"""What puts phalanx into a Kubernetes cluster: its rights and its manifests."""
