"""Virtual clusters in the cycle: the cells place a gang, choose victims, and say what it lacks."""
