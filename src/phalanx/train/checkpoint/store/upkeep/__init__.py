"""What people do with checkpoints at rest."""
