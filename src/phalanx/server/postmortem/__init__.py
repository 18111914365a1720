"""What became of a job's time: what each second went to, why attempts ended, and what would have saved it."""
