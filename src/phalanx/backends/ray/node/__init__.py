"""What runs on the nodes of Ray. It is sent there: a node needs Python and Ray, and no phalanx."""
