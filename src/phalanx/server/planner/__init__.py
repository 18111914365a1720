"""The planner: answers what would happen, from a copy of the State that follows the journal. It decides nothing."""
