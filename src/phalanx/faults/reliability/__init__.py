"""What failures cost a job: time to failure, intervals between saves, replicas, spares, storage, and whole designs."""
