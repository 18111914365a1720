"""How many nodes a cluster needs: the same jobs on clusters of several sizes, until waits are as short as wanted."""
