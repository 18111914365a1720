"""Files that browsers are sent: no script of others, nothing from another host."""
