"""The extender: phalanx decides, and kube-scheduler binds as it asks for each pod."""
