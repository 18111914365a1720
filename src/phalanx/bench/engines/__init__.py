"""The same jobs on every engine that runs jobs: beside the simulator, and on Slurm beside Slurm's own decisions."""
