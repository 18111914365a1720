"""Changes to the State that can be taken back: what a plan would do, done, looked at and undone."""
