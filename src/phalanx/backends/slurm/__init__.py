"""The Slurm backend: phalanx decides, Slurm runs. Each gang is one allocation on the nodes of its placement."""
