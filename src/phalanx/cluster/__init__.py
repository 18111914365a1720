"""The machine room: hardware catalogue, topology, health and free capacity."""
