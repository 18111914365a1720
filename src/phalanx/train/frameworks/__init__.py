"""Callbacks for the trainers of other libraries, and a loop: checkpoints, each sample once, and leaving when told."""
