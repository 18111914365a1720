"""Virtual clusters in the cycle: the cells seat a gang, choose victims, and say what it lacks."""
