"""How many nodes of which group: predicted by the engine itself before any is asked for, and given back when idle."""
