"""Callbacks for the trainers of other libraries: checkpoints, each sample once, and leaving when told to."""
