"""Tasks as processes: how they begin, what confines them, what they leave."""
