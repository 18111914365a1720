"""What a leader tells the scheduler of the tasks of its run."""
