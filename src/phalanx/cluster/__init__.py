"""The hardware: catalogue, topology, health and free capacity."""
