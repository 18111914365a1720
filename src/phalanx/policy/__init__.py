"""Which job goes next and which is preempted, one file a policy."""
