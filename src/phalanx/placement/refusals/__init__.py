"""What stands in the way of a gang that has no place: too small a cluster, parts of devices, other resources."""
