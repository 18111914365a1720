"""The State: records of jobs and attempts, the indexes over them, and the journal that it follows from."""
